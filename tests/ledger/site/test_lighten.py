"""Code in a table's cell breaks where its words end, and nowhere else."""

from markdown import Markdown

TABLE = '| option `--a_b` |\n|---|\n| `--use_double true`, `x="y"`, `CrossLoss` |\n\nIn prose `a_b`.\n'


def test_code_in_a_cell_breaks_after_its_words() -> None:
    page = Markdown(extensions=["tables", "ledger.site.lighten"]).convert(TABLE)
    assert "<th>option <code>--a_<wbr>b</code></th>" in page
    assert (
        '<td><code>--use_<wbr>double <wbr>true</code>, <code>x=<wbr>"y"</code>, <code>Cross<wbr>Loss</code></td>'
        in page
    )
    assert "<p>In prose <code>a_b</code>.</p>" in page
