"""What others' kernels took is committed with its source; what the formulas said of it is what they say today."""

from __future__ import annotations

import gzip
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from flops_bytes.time.gpus import GPUS
from flops_bytes.tools.kernels import Work, attention_work, matmul_work
from published.kernel_times import (
    DERIVED,
    LEAST_BYTES,
    Timed,
    cards,
    compared,
    derive,
    link_of,
    main,
    read_all,
    read_rows,
    read_source,
    reason,
    reasons,
    ring_seconds,
    roof_seconds,
    rounded,
    short,
    tile_of,
    tiled_flops,
    tiled_seconds,
)
from tests.conftest import ROOT
from tests.flops_bytes.test_kernels import GEMM, kernel, launch, operation
from tests.published.test_published import commit, git

FOLDER = ROOT / "measurements" / "published" / "kernels"
SOURCES = sorted(FOLDER.glob("*.toml"))
H100 = GPUS["H100 SXM"]
PEAK, BANDWIDTH = H100.peak_flop_per_second["bfloat16"], H100.bandwidth_bytes_per_second


def test_a_matmul_is_paid_in_whole_tiles_and_waves() -> None:
    assert tiled_flops(1, 4224, 4096, 512, sms=132) == 2 * 4224 * 4096 * 512  # 33 × 32 tiles, 8 waves
    assert tiled_flops(1, 4225, 4096, 512, sms=132) == 2 * 9 * 132 * 128 * 128 * 512
    assert tiled_flops(200, 20, 1, 512, sms=132) == 2 * 2 * 132 * 128 * 128 * 512  # a tile for each of 200, two waves
    work = matmul_work(1, 4225, 4096, 512, "bfloat16", 2)
    assert tiled_seconds(work, PEAK, BANDWIDTH, 132) == 2 * 9 * 132 * 128 * 128 * 512 / PEAK
    thin = matmul_work(1, 128, 16_896, 64, "bfloat16", 2)  # 132 tiles
    assert roof_seconds(thin, PEAK, BANDWIDTH) == thin.bytes / BANDWIDTH == tiled_seconds(thin, PEAK, BANDWIDTH, 132)


def test_only_matmuls_have_tiles_and_element_wise_operations_only_bytes() -> None:
    attention = attention_work((1, 8, 8, 4096, 4096, 128), "bfloat16", 2, 4, False, 4)
    assert tiled_seconds(attention, PEAK, BANDWIDTH, 132) == attention.flops / PEAK
    plain = Work("element-wise", (100, 100), "float32", 10**18, 800)
    assert roof_seconds(plain, PEAK, BANDWIDTH) == 800 / BANDWIDTH


def test_a_ring_sends_at_the_share_that_the_book_assumes() -> None:
    assert ring_seconds("allreduce", 8e9, 8, 450e9, 0) == 2 * 8e9 * 7 / 8 / (0.8 * 450e9)
    assert ring_seconds("allgather", 8e9, 16, 450e9, 25e9) == 8e9 * 15 / 16 / (0.8 * 200e9)


# What is committed
@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_each_source_has_rows_with_times_and_says_where_they_stand(path: Path) -> None:
    source = read_source(path)
    parts = [*source.get("traces", []), *source.get("tables", [])]
    assert set(source["derived"]["sha256"]) == {part["path"] for part in parts}
    assert all(re.fullmatch(r"[0-9a-f]{64}", each) for each in source["derived"]["sha256"].values())
    assert all(row.seconds for row in read_rows(path))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_what_was_predicted_is_what_the_formulas_say_today(path: Path) -> None:
    source = read_source(path)
    derived = source["derived"]
    for row in derived.get("operations", []):
        gpu, sms = cards(source)[source["traces"][row["trace"]]["card"]], derived["sms"][row["trace"]]
        size = {"float32": 4, "tf32": 4, "bfloat16": 2}.get(row["unit"], 0)
        work = Work(row["kind"], tuple(row["shape"]), "", row.get("flops", 0), row["bytes"])
        if row["kind"] == "matmul":
            batch, m, n, k = row["shape"]
            added = (row["bytes"] - matmul_work(batch, m, n, k, "", size).bytes) // size
            assert work.flops == 2 * batch * m * n * k and 0 <= added <= batch * m * n * ("add" in row["op"])
        elif row["kind"] == "attention":
            b, H, G, T, S, Q = row["shape"]
            assert work.bytes == 2 * size * b * (H * T + G * S) * Q
            assert work.flops in (4 * b * H * T * S * Q, 2 * b * H * T * (T + 1) * Q)
        else:
            assert work.bytes >= LEAST_BYTES
        peak = gpu.peak_flop_per_second.get(row["unit"], 1)
        assert row["roof_us"] == rounded(roof_seconds(work, peak, gpu.bandwidth_bytes_per_second))
        if row["kind"] == "matmul":
            assert row["tiled_us"] == rounded(tiled_seconds(work, peak, gpu.bandwidth_bytes_per_second, sms))
    tables = {part.get("name"): part for part in (*source.get("traces", []), *source.get("tables", []))}
    for row in derived.get("collectives", []):
        table = tables[row["table"]]
        links = link_of(table["card"]), table.get("between_bytes_per_second", 0)
        said = [ring_seconds(row["collective"], size, table["gpus"], *links) for size in row["bytes"]]
        assert row["ring_us"] == list(map(rounded, said)) and row["bytes"] == sorted(set(row["bytes"]))


def test_the_sources_hold_many_kernels_and_collectives_and_are_small() -> None:
    rows = read_all(FOLDER)
    matmuls = [row for row in rows if row.kind == "matmul"]
    assert len(matmuls) >= 250 and len({row.card for row in matmuls}) == 7
    assert sum(row.kind == "collective" for row in rows) >= 200
    assert sum(row.kind == "attention" for row in rows) == 10
    assert sum(path.stat().st_size for path in SOURCES) <= 150_000


def test_no_kernel_passes_the_peak_of_its_units() -> None:
    """Not in float32 on a V100 either, where a part of an operation's kernels over all of its FLOPs would."""
    shares = [row.predicted["roof"] / row.seconds for row in read_all(FOLDER) if row.kind == "matmul" and row.seconds]
    assert max(shares) < 0.82
    slower = [row for row in read_all(FOLDER) if row.kind == "element-wise" and row.seconds]
    above = [row for row in slower if row.seconds and row.predicted["roof"] / row.seconds > 1.05]
    assert {row.card for row in above} == {"A100 40GB SXM"}  # whose cache holds 40 MB
    assert all(row.predicted["roof"] * 1.555e12 < 60e6 for row in above)


# A source that is made up
@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A source with a trace, a trace of collectives, and a table; its clone lies in `clones`."""
    clone = tmp_path / "clones" / "a" / "b"
    clone.mkdir(parents=True)
    events: list[Any] = []
    for index, length in enumerate((100, 120)):
        at = 1000 * index
        events += [operation("mm", at, 9, [512, 256], [256, 1024]), launch(at + 1, 1, 3 * index + 1)]
        events += [kernel(GEMM, at + 20, length, 3 * index + 1)]
        for number, side in ((2, 1024), (3, 2048)):  # of 8 and of 32 MiB
            events += [
                operation("gelu", at + 20 * number, 9, [side, side]),
                launch(at + 20 * number + 1, 1, 3 * index + number),
            ]
            events += [kernel("elementwise_kernel<gelu", at + 150 * number, 30, 3 * index + number)]
    properties = [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}]
    (clone / "t.json.gz").write_bytes(
        gzip.compress(json.dumps({"deviceProperties": properties, "traceEvents": events}).encode())
    )
    told = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": 2**20}
    call = operation("x", 0, 10) | {"name": "record_param_comms", "args": told}
    reduce = [call, launch(5, 1, 1), kernel("ncclDevKernel_AllReduce", 20, 40, 1), kernel("nccl", 90, 7, 9)]
    (clone / "c.json").write_text(json.dumps({"deviceProperties": properties, "traceEvents": reduce}))
    (clone / "log.txt").write_text("# size time\n 0 9\n 1_024 50.5\n 2_048 60\n# end\n")
    git(clone, "init", "-q")
    committed = commit(clone)
    folder = tmp_path / "kernels"
    folder.mkdir()
    path = folder / "mine.toml"
    path.write_text(f"""# What is above stays.
repository = "a/b"
commit = "{committed}"
licence = "MIT"

[[traces]]
path = "t.json.gz"
card = "A100 80GB SXM"

[[traces]]
name = "two cards"
path = "c.json"
card = "A100 80GB SXM"
collective = "allreduce"
gpus = 2

[[tables]]
name = "log"
path = "log.txt"
lines = [2, 4]
pattern = '^ (?P<bytes>[1-9][\\d_]*) (?P<us>[\\d.]+)$'
count = 2
card = "B200"
collective = "allgather"
gpus = 8
""")
    return path


def test_rows_are_derived_from_a_clone_first_without_their_times(source: Path) -> None:
    clones = source.parent.parent / "clones"
    assert derive(source, clones, times=False) == 6
    before = tomllib.loads(source.read_text())["derived"]
    assert all("us" not in row for row in (*before["operations"], *before["collectives"]))
    assert all(row.seconds is None for row in read_rows(source))
    assert derive(source, clones) == 6
    assert source.read_text().startswith("# What is above stays.") and source.read_text().count(DERIVED) == 1
    after = tomllib.loads(source.read_text())["derived"]
    for part in ("operations", "collectives"):
        assert [{key: row[key] for key in row if key != "us"} for row in after[part]] == before[part]
    rows = read_rows(source)
    gelu = [row for row in rows if row.operation == "gelu"]
    assert [(row.kind, row.shape, row.calls) for row in gelu] == [
        ("element-wise", (2**20, 2**20), 2),
        ("element-wise", (2**22, 2**22), 2),
    ]
    (matmul,) = [row for row in rows if row.kind == "matmul"]
    assert (matmul.operation, matmul.shape, matmul.unit, matmul.sms) == ("mm", (1, 512, 1024, 256), "tf32", 108)
    assert matmul.calls == 2 and matmul.seconds == pytest.approx(110e-6)
    work = matmul_work(1, 512, 1024, 256, "float32", 4)
    assert matmul.predicted["roof"] == pytest.approx(roof_seconds(work, 156e12, 2.039e12), rel=1e-3)
    assert matmul.predicted["tiled"] == pytest.approx(tiled_seconds(work, 156e12, 2.039e12, 108), rel=1e-3)
    collectives = [row for row in rows if row.kind == "collective"]
    assert [(row.where, row.shape) for row in collectives] == [
        ("two cards", (2**22, 2)),
        ("log", (1024, 8)),
        ("log", (2048, 8)),
    ]
    assert [row.seconds for row in collectives] == pytest.approx([40e-6, 50.5e-6, 60e-6])


def test_small_element_wise_operations_are_left_out(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("published.kernel_times.LEAST_BYTES", 2**24)
    assert derive(source, source.parent.parent / "clones") == 5


def test_what_was_said_first_is_kept_where_it_has_changed(source: Path) -> None:
    clones = source.parent.parent / "clones"
    derive(source, clones)
    said = tomllib.loads(source.read_text())["derived"]["operations"][0]["roof_us"]
    source.write_text(source.read_text().replace(f"roof_us = {said}", "roof_us = 7.5", 1))
    for _ in range(2):
        derive(source, clones)
        row = tomllib.loads(source.read_text())["derived"]["operations"][0]
        assert (row["first_roof_us"], row["roof_us"]) == (7.5, said)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('licence = "MIT"', "", "says no licence"),
        ('commit = "', 'commit = "g', "40 hexadecimal digits"),
        ('card = "B200"', 'card = "B2000"', "B2000 is no card"),
        ("count = 2", "count = 3", "2 rows are found, not 3"),
        ('path = "log.txt"', 'path = "lost.txt"', "no lost.txt at"),
        ("[[tables]]", "[[tables", "kernels/mine.toml: "),
    ],
)
def test_a_mistake_in_a_source_is_named(
    old: str, new: str, why: str, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clones = source.parent.parent / "clones"
    source.write_text(source.read_text().replace(old, new, 1))
    assert main([str(source.parent), "--derive", str(clones)]) == 2
    assert why in capsys.readouterr().err
    source.write_text("")
    assert main([str(source.parent)]) == 2
    source.unlink()
    assert main([str(source.parent)]) == 2
    assert "no source" in capsys.readouterr().err


def row(kind: str, shape: tuple[int, ...], said: float, took: float | None, **more: Any) -> Timed:
    told: dict[str, Any] = {"kernel": "", "unit": "bfloat16", "why": "", "sms": 132} | more
    predicted = {"ring": said} if kind == "collective" else {"roof": said}
    return Timed("s", "w", "H100 SXM", kind, "op", shape, calls=1, predicted=predicted, seconds=took, **told)


def test_predicted_over_measured_is_told_by_kind() -> None:
    rows = [row("attention", (), said, 64e-6) for said in (16e-6, 48e-6, 72e-6)]
    rows += [row("attention", (), 5e-6, 10e-6), row("collective", (2**20, 8), 1e-6, 4e-6)]
    rows += [row("collective", (2**26, 8), 3e-3, 4e-3), row("attention", (), 1e-3, None)]
    assert compared(rows) == {
        ("attention", "roof"): dict(rows=3, median_ratio=0.75, low_ratio=0.25, high_ratio=1.125, near=2),
        ("attention, short", "roof"): dict(rows=1, median_ratio=0.5, low_ratio=0.5, high_ratio=0.5, near=0),
        ("collective", "ring"): dict(rows=1, median_ratio=0.75, low_ratio=0.75, high_ratio=0.75, near=1),
        ("collective, small", "ring"): dict(rows=1, median_ratio=0.25, low_ratio=0.25, high_ratio=0.25, near=0),
    }


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (row("collective", (2**20, 8), 1, 1, why="SHARP"), "SHARP"),
        (row("collective", (2**20, 8), 1, 1), "latency"),
        (row("collective", (2**26, 8), 1, 1), ""),
        (row("element-wise", (), 1, 1, kernel="Memcpy HtoD (Pinned -> Device)"), "host"),
        (row("element-wise", (), 1, 1, kernel="elementwise_kernel<128"), "not contiguous"),
        (row("element-wise", (), 1, 1, kernel="vectorized_elementwise_kernel<4"), ""),
        (row("element-wise", (), 9e-6, 1), "less than 10 µs"),
        (row("attention", (), 1, 1), "exponentials"),
        (row("matmul", (1, 1024, 1024, 64), 1, 1), "fewer tiles"),
        (row("matmul", (1, 4096, 4096, 63), 1, 1), "multiple of 16 bytes"),
        (row("matmul", (1, 4096, 4096, 60), 1, 1, unit="tf32"), ""),
        (row("matmul", (1, 4096, 4096, 64), 1, 1, kernel="sm90_tilesize64x256x64"), "another tile"),
        (row("matmul", (1, 4096, 4096, 64), 1, 1, kernel="sm90_tilesize128x128x64"), ""),
    ],
)
def test_why_a_row_may_be_far_off_follows_from_what_stands_there(told: Timed, why: str) -> None:
    assert why in reason(told) and bool(why) == bool(reason(told))
    (found,) = reasons([told])
    assert found == (told.kind, reason(told))


def test_the_tile_is_read_from_a_kernels_name() -> None:
    for name, tile in (
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x128_32x6_tn_align4>(x)", (64, 128)),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x256x64_warpgroupsize1x1x1_execute", (128, 256)),
        ("Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN", (256, 192)),
        ("ampere_sgemm_128x64_nn", (128, 64)),
        ("void gemv2T_kernel_val<int, int, float>", None),
    ):
        assert tile_of(short(name)) == tile and len(short(name)) <= 48


def test_the_command_prints_the_figures_and_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(FOLDER), "--rows"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert sum(line.startswith(("H100", "V100", "A100", "MI", "B200", "H200")) for line in said) == len(
        read_all(FOLDER)
    )
    assert any(line.startswith("collective ") and " ring " in line for line in said)
