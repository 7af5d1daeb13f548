"""A step of a reader's own is counted to the byte, by moment and line, or refused with the line that keeps it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from torch.distributed._tools.mem_tracker import MemTracker

from flops_bytes.counting.command import main, script
from flops_bytes.counting.count import count, fit
from flops_bytes.counting.step_trace import Uncountable

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"  # three lines
LINEAR = """model = nn.Linear(1000, 1000, bias=False).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
def step():
    x = torch.ones(100, 1000, device="cuda")
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
ATTENTION = """q = nn.Parameter(torch.randn(2, 8, 1024, 64, dtype=torch.bfloat16, device="cuda"))
def step():
    F.scaled_dot_product_attention(q, q, q, is_causal=True{options}).sum().backward()
    q.grad = None
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "train.py"
        path.write_text(HEAD + text)
        return path

    return write


def counted(path: Path, name: str = "step", **options: Any) -> Any:
    return count(script(path, name, []), **options)


def test_bytes_are_those_of_the_second_step(write: Write) -> None:
    found = counted(write(LINEAR))
    weights, inputs, outputs = 4 * 1000 * 1000, 4 * 100 * 1000, 4 * 100 * 1000
    assert found.kinds["weights"] == found.kinds["optimizer state"] == found.kinds["gradients"] == weights
    assert found.moments["forward"] == 2 * weights + inputs + outputs + 4
    assert found.moments["backward"] == found.peak_bytes == 3 * weights + inputs + 2 * 4
    assert found.weights == {"all": 1000 * 1000, "trained": 1000 * 1000}


def test_flops_are_by_kind_and_type(write: Write) -> None:
    found = counted(write(LINEAR))
    assert (found.flops, found.flops_dtype) == ({"matmul": 2 * 2 * 100 * 1000 * 1000}, "float32")


def test_bytes_are_by_the_readers_line(write: Write) -> None:
    assert counted(write(LINEAR)).lines["train.py:7"] == 4 * 100 * 1000, "x"


def test_a_script_runs_until_its_optimizer_has_worked_twice(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    text = LINEAR + "for turn in range(5):\n    print('turn', turn)\n    step()\nprint('done')\n"
    found = counted(write(text), "")
    assert found == counted(write(LINEAR))
    assert "turn 1" in (printed := capsys.readouterr().out)
    assert "turn 2" not in printed and "done" not in printed


def test_a_function_may_build_the_step(write: Write) -> None:
    lines = LINEAR.splitlines()
    text = "def make():\n" + "\n".join(f"    {line}" for line in lines) + "\n    return step\n"
    found = counted(write(text), "make")
    assert found.kinds == counted(write(LINEAR)).kinds


def test_attention_keeps_no_square(write: Write) -> None:
    found = counted(write(ATTENTION.format(options="")))
    assert found.peak_bytes < 8 * (q := 2 * 2 * 8 * 1024 * 64)
    assert found.flops == {"attention": (4 + 10) * 2 * 8 * 1024 * 1024 * 64}
    assert counted(write(ATTENTION.format(options=", dropout_p=0.1"))).peak_bytes < 8 * q


def test_keys_that_several_queries_share_keep_scores_in_float32(write: Write) -> None:
    """No kernel but flash attention's takes them, and it takes 16 bits alone."""
    text = """q = torch.randn(2, 8, 1024, 64, device="cuda", dtype=torch.{0}, requires_grad=True)
k = torch.randn(2, 2, 1024, 64, device="cuda", dtype=torch.{0}, requires_grad=True)
def step():
    F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True).sum().backward()
    q.grad = k.grad = None
"""
    scores = 2 * 8 * 1024 * 1024
    assert counted(write(text.format("float32"))).peak_bytes > 4 * scores
    assert counted(write(text.format("bfloat16"))).peak_bytes < scores


def test_autocast_is_that_of_cuda(write: Write) -> None:
    text = """w = nn.Parameter(torch.randn(512, 512, device="cuda"))
def step():
    with torch.autocast("cuda", torch.bfloat16):
        y = (torch.ones(64, 512, device="cuda") @ w).softmax(-1)
    assert y.dtype == torch.float32
    y.sum().backward()
"""
    assert counted(write(text)).flops_dtype == "bfloat16"


def test_autocasts_cross_entropy_is_that_of_cuda(write: Write) -> None:
    """Logits and their log_softmax in 16 bits, a copy and its gradient in 32, as counted by a GPU's own allocator."""
    text = """w = nn.Parameter(torch.randn(8, 50000, device="cuda"))
def step():
    with torch.autocast("cuda", torch.bfloat16):
        y = torch.ones(1000, 8, device="cuda") @ w
        loss = F.cross_entropy(y, torch.zeros(1000, dtype=torch.int64, device="cuda"))
    loss.backward()
    w.grad = None
"""
    assert counted(write(text)).peak_bytes // (1000 * 50000) == 2 + 2 + 4 + 4


def test_dropout_keeps_a_byte_a_number(write: Write) -> None:
    text = """model = nn.Sequential(nn.Linear(8, 1000, bias=False), nn.Dropout(0.5)).cuda()
def step():
    y = model(torch.ones(1000, 8, device="cuda"))
    kept.append(y.sum())
    kept.pop().backward()
kept = []
"""
    both = counted(write(text)).moments["forward"]
    assert both - counted(write(text.replace("0.5", "0.0"))).moments["forward"] == 5 * 1000 * 1000 - 2 * 4, (
        "result and mask, before the sum"
    )


IN_TURN = """G, D = nn.Linear(8, 1000).cuda(), nn.Linear(1000, 4).cuda()
a, b = torch.optim.Adam(D.parameters()), torch.optim.Adam(G.parameters())
for turn in range(3):
    for _ in range({critics}):
        D(G(torch.ones(2, 8, device="cuda")).detach()).sum().backward()
        a.step()
    D(G(torch.ones(2, 8, device="cuda"))).sum().backward()
    b.step()
"""


def test_optimizers_in_turn_make_one_step(write: Write) -> None:
    found = counted(write(IN_TURN.format(critics=1)), "")
    generator, discriminator = 2 * 2 * 8 * 1000, 2 * 2 * 1000 * 4
    assert found.flops == {"matmul": (1 + 2) * generator + (2 + 3) * discriminator}
    assert found.kinds["optimizer state"] // 1000 == 2 * 4 * (9 + 4) and not found.notes


def test_an_optimizer_that_does_not_work_in_the_step_is_said(write: Write) -> None:
    (note,) = counted(write(IN_TURN.format(critics=2)), "").notes
    assert note.startswith("Adam did not work in this step")


def test_one_step_alone_is_said(write: Write) -> None:
    (note,) = counted(write(LINEAR + "step()\n"), "").notes
    assert note.startswith("only the first step was whole")
    (note,) = counted(write("torch.ones(2, 2) @ torch.ones(2, 2)\n"), "").notes
    assert note.startswith("no optimizer worked")


WITHOUT_GRAPH = """    with torch.no_grad():
        y = model(torch.ones(700, 1000, device="cuda"))
"""


def test_an_evaluation_between_two_steps_is_no_part_of_one(write: Write) -> None:
    found, alone = counted(write(LINEAR + WITHOUT_GRAPH)), counted(write(LINEAR))
    assert found.flops == alone.flops and found.moments["backward"] == alone.moments["backward"]
    assert found.notes == [
        "train.py:13: 1.4e+09 FLOPs of forward passes without a graph, of which the step uses nothing, are left out; "
        "bytes are not"
    ]


def test_a_teacher_is_part_of_the_step(write: Write) -> None:
    text = LINEAR.replace("def step():\n", f"def step():\n{WITHOUT_GRAPH}").replace(".sum()", ".sum() * y.mean()")
    found = counted(write(text))
    assert found.flops == {"matmul": 2 * (2 * 100 + 700) * 1000 * 1000} and not found.notes


@pytest.mark.parametrize("kind", ["Conv2d", "ConvTranspose2d"])
@pytest.mark.parametrize("groups", [1, 4, 32])
def test_a_group_sees_its_own_channels_alone(write: Write, kind: str, groups: int) -> None:
    text = f"""model = nn.{kind}(32, 64, 3, padding=1, groups={groups}).cuda()
def step():
    x = torch.ones(2, 32, 14, 14, device="cuda", requires_grad=True)
    model(x).sum().backward()
"""
    assert counted(write(text)).flops == {"convolution": 3 * 2 * 2 * 64 * 14 * 14 * (32 // groups) * 3**2}


@pytest.fixture
def as_before() -> Iterator[None]:
    yield
    torch.set_float32_matmul_precision("highest")


@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize("line", ["backends.cuda.matmul.allow_tf32 = True", "set_float32_matmul_precision('high')"])
def test_float32_on_tensor_cores_takes_their_time(write: Write, line: str) -> None:
    slow, fast = counted(write(LINEAR)), counted(write(f"torch.{line}\n{LINEAR}"))
    assert (slow.flops_dtype, fast.flops_dtype) == ("float32", "tf32")
    for card, faster in (("A100 80GB SXM", 156 / 19.5), ("T4", 1)):
        times = [fit(found, card).step_seconds[0.4] for found in (slow, fast)]
        assert times[0] == pytest.approx(faster * times[1])


def test_an_accelerator_answers_as_cuda_does(write: Write) -> None:
    text = """device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu"
w = nn.Parameter(torch.randn(64, 64, device=device))
def step():
    with torch.autocast(device.type, torch.float16, enabled=device.type == "cuda"):
        (w @ w).sum().backward()
    assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated() > 0
"""
    assert counted(write(text)).flops_dtype == "float16"


def test_a_pretrained_model_is_that_of_its_configuration(write: Write) -> None:
    """Its weights need not be there: a file of them would have memory."""
    text = """from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel
def make(model):
    def step():
        words = torch.zeros(2, 16, dtype=torch.int64, device="cuda")
        model(input_ids=words, labels=words).loss.backward()
    return step
def read():
    return make(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).cuda())
def built():
    return make(GPT2LMHeadModel(config).bfloat16().eval().cuda())
config = GPT2Config(n_layer=1, n_embd=64, n_head=2, vocab_size=100)
"""
    path = write(text)
    path.write_text(path.read_text() + f"folder = {str(path.parent)!r}\nconfig.save_pretrained(folder)\n")
    read, built = counted(path, "read"), counted(path, "built")
    assert (read.weights, read.flops, read.peak_bytes) == (built.weights, built.flops, built.peak_bytes)
    assert built.notes == [] and len(read.notes) == 1
    assert read.notes[0].startswith("train.py:11 → ") and read.notes[0].endswith(
        "GPT2LMHeadModel was built of its configuration, in torch.bfloat16; no weights were read"
    )


def test_what_is_made_again_is_told(write: Write) -> None:
    text = """from torch.utils.checkpoint import checkpoint
model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)).cuda()
def step():
    x = torch.ones(32, 64, device="cuda", requires_grad=True)
    checkpoint(model, x, use_reentrant=False).sum().backward()
"""
    found = counted(write(text))
    assert (found.again_flops, found.flops["matmul"]) == (2 * 32 * 64 * 64, 7 * 2 * 32 * 64 * 64), (
        "the last is not needed again"
    )


def test_what_is_made_again_takes_the_cards_kernels(write: Write) -> None:
    text = """from torch.utils.checkpoint import checkpoint
model = nn.Sequential(nn.Linear(64, 64), nn.RMSNorm(64), nn.Linear(64, 64)).cuda().bfloat16()
def step():
    x = torch.ones(32, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    loss = checkpoint(model, x, use_reentrant=False).sum()
    {}
"""
    found = [counted(write(text.format(line))) for line in ("loss.backward()", "torch.autograd.grad(loss, x)")]
    assert [each.again_flops for each in found] == 2 * [2 * 32 * 64 * 64]


def test_a_card_may_be_a_number(write: Write) -> None:
    text = LINEAR.replace(".cuda()", ".to(1)").replace('device="cuda"', "device=1")
    assert counted(write(text)).peak_bytes == counted(write(LINEAR)).peak_bytes


@pytest.mark.parametrize(("how", "copies"), [("", 1), ("fused=True", 0)])
def test_an_optimizer_works_as_on_a_card(write: Write, how: str, copies: int) -> None:
    text = LINEAR.replace("SGD(model.parameters(), lr=1.0, momentum=0.9)", f"AdamW(model.parameters(), {how})")
    found, weights = counted(write(text)), 4 * 1000 * 1000
    assert found.moments["update"] // 10**6 == (4 + copies) * weights // 10**6


def test_words_are_counted_over_micro_batches(write: Write) -> None:
    text = """model = nn.Sequential(nn.Embedding(100, 8), nn.Linear(8, 8)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
def step():
    for _ in range(3):
        model(torch.randint(100, (4, 16), device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    assert counted(write(text)).tokens == 3 * 4 * 16


def test_compile_is_left_out_and_said(write: Write) -> None:
    (note,) = counted(
        write("model_of = torch.compile\n" + LINEAR.replace(".cuda()", "; model = model_of(model)"))
    ).notes
    assert "torch.compile was left out" in note


REFUSED = {
    "x.sum().item() / 2 > 1": "train.py:5: a number that nobody has computed decides what runs; give --item",
    "range(x.sum().long().item())": "train.py:5: the number in a tensor is asked for",
    "print('yes' if x.sum() > 0 else 'no')": "train.py:5: a number that nobody has computed decides what runs",
    "x[x > 0]": "train.py:5: aten.nonzero makes a tensor whose size depends on numbers",
    "x.numpy().tolist()": "train.py:5: the numbers in a tensor are asked for",
    "import no_such_module": "train.py:5: the module no_such_module is not installed",
    "torch.cuda.CUDAGraph()": "train.py:5: what a CUDA graph runs again is run by no Python",
    "torch.cuda.graph_pool_handle()": "train.py:5: what a CUDA graph runs again is run by no Python",
    "torch.cuda.nccl.all_reduce([x])": "train.py:5: torch.cuda.nccl sends without a process group",
    "import deepspeed; deepspeed.initialize(model=None)": "train.py:5: DeepSpeed's engine",
    "torch.cuda.initial_seed()": "train.py:5: CUDA itself is asked for",
    "torch.allclose(x, x)": "train.py:5: a number that nobody has computed decides what runs",
    "torch.nested.nested_tensor([x])": "train.py:5: a kernel needs data or has no rule",
    "open('no.txt')": "train.py:5: [Errno 2] No such file or directory: 'no.txt'; put it there",
    "nn.parallel.DistributedDataParallel(nn.Linear(2, 2))": "train.py:5: one rank of several is asked for",
    "from torch import no_such_name": "train.py:5: cannot import name 'no_such_name'",
    "list(range(x.sum().long()))": "train.py:5: the number in a tensor is asked for",
    "x.sum().long().item()": "train.py:5: the number in a tensor is asked for, a whole one",
    "raise ValueError('mine')": "train.py:5: ValueError: mine",
    "F.embedding(torch.tensor([1]), x.requires_grad_(), sparse=True).sum().backward()": "train.py:5: a sparse tensor",
    "F.ctc_loss(x[:, None], torch.tensor([1]), torch.tensor([4]), x[0, :1].long())": "train.py:5: the lengths of ctc",
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_refusal_names_the_line(write: Write, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    text = f"def step(x=None):\n    x = torch.ones(4, 4, device='cuda'); {line}\n    torch.mm(x, x)\n"
    path = write(text)
    path.with_name("deepspeed.py").write_text("def initialize(model): pass\n")
    monkeypatch.syspath_prepend(path.parent)
    with patch.dict(sys.modules), pytest.raises(Uncountable) as refusal:
        counted(path)
    assert str(refusal.value).startswith(REFUSED[line])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("torch.ones(2).cuda().nonzero()", "aten.nonzero makes a tensor"),
        ("torch.cuda.CUDAGraph()", "what a CUDA graph"),
    ],
)
def test_a_refusal_is_of_the_first_error(write: Write, line: str, said: str) -> None:
    text = f"""def step():
    try:
        {line}
    except Exception as error:
        raise RuntimeError("in a stage") from error
"""
    with pytest.raises(Uncountable) as refusal:
        counted(write(text))
    assert str(refusal.value).startswith(f"train.py:6: {said}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def step(:\n", "train.py:4: invalid syntax"),
        ("def step(batch):\n    pass\n", "the function cannot be called so (step() missing 1 required"),
        ("raise SystemExit('no data')\n", "the script ended itself at train.py:4"),
        (
            "def from_pretrained():\n    raise OSError('no weights')\nfrom_pretrained()\n",
            "train.py:5: from_pretrained() fails (no weights); build the model of its configuration, as from_config()",
        ),
    ],
)
def test_a_script_that_cannot_take_a_step_is_refused(write: Write, text: str, said: str) -> None:
    with pytest.raises(Uncountable) as refusal:
        counted(write(text))
    assert str(refusal.value).startswith(said)


@pytest.mark.parametrize("line", ["x[x > 3]", "x.unique()", "x.nonzero()"])
def test_a_size_that_follows_numbers_made_here_is_said(write: Write, line: str) -> None:
    text = """z = torch.ones(4, 4, device='cuda')
def step():
    x = torch.randint(9, (64,), device='cuda')
    y = {}
    torch.ones(y.numel(), 4).cuda() @ z
"""
    (note,) = counted(write(text.format(line))).notes
    assert note == "train.py:7: this size follows from numbers that were made here, at random perhaps"
    assert not counted(write(text.format("x * 2"))).notes


def test_streams_events_and_files_are_nothing_here(write: Write) -> None:
    more = """    with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.device(0):
        event = torch.cuda.Event(enable_timing=True)
        event.record(); event.synchronize()
    torch.cuda.nvtx.range_push("step")
    assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == torch.cuda.max_memory_allocated() > 0
    torch.save(model.state_dict(), "never.pt")
"""
    found, path = counted(write(LINEAR + more)), Path("never.pt")
    assert found.peak_bytes == counted(write(LINEAR)).peak_bytes
    assert found.notes == ["train.py:17: torch.save was left out"] and not path.exists()


def test_it_is_told_as_json(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("print('mine')\n" + LINEAR)
    assert main([f"{path}:step", "--gpu", "H100 SXM", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = counted(path)
    assert told["peak_bytes"] == found.peak_bytes and told["lines"] == found.lines
    assert told["fit"]["fits"] and told["fit"]["step_seconds"]["0.4"] == fit(found, "H100 SXM").step_seconds[0.4]


def test_a_kernel_without_a_rule_for_shapes_is_refused(write: Write) -> None:
    text = """@torch.library.custom_op("test_count::own", mutates_args=())
def own(x: torch.Tensor) -> torch.Tensor:
    return x.clone()
def step():
    own(torch.ones(2, 2, device="cuda"))
"""
    with pytest.raises(Uncountable, match=r"^train\.py:8: a kernel .*register_fake"):
        counted(write(text))


def test_numbers_can_be_answered(write: Write) -> None:
    text = LINEAR + "    assert loss.item() == 2.5 and not loss > 1 and f'{loss:.1f}' == '2.5'\n"
    found = counted(write(text), item=2.5)
    assert [note.partition(" and ")[0] for note in found.notes] == [
        "train.py:12: a number of a tensor was answered by 2.5,",
        "train.py:12: a question about numbers was answered by no, so that what a yes would run is not counted",
    ]


CHECKS = """    nn.init.trunc_normal_(model.weight, std=0.02)
    torch.distributions.Normal(loss, 1.0)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
    assert torch.isfinite(loss) and not (torch.isnan(x).any() | ~torch.isfinite(x).all())
"""


def test_numbers_are_in_order_where_that_is_asked(write: Write) -> None:
    """PyTorch draws again until none is out of bounds: with another answer the count would have no end."""
    found = counted(write(LINEAR + CHECKS))
    assert found.flops == counted(write(LINEAR)).flops and not found.notes
    (note,) = counted(write(LINEAR + "    assert (loss > 0).all()\n"), item=1).notes
    assert "answered by yes, so that what a no would run" in note


def test_what_an_optimizer_calls_is_no_update(write: Write) -> None:
    text = """model = nn.Sequential(nn.Embedding(100, 64), nn.Linear(64, 64)).cuda()
optimizer = torch.optim.{}(model.parameters())
def forward():
    optimizer.zero_grad()
    loss = model(torch.randint(100, (4, 16), device="cuda")).sum()
    loss.backward()
    return loss
def step():
    optimizer.step(forward)
"""
    found = counted(write(text.format("AdamW")))
    assert found.tokens == 4 * 16 and not found.notes
    assert any("a number of a tensor was answered" in note for note in counted(write(text.format("LBFGS"))).notes)


def test_a_few_numbers_that_were_drawn_are_known_and_said(write: Write) -> None:
    more = """    where = int(torch.empty(1).uniform_(0, 3).item())
    x[[1, 2, 3][where]]
"""
    found = counted(write(LINEAR + more))
    assert found.flops == counted(write(LINEAR)).flops
    assert found.notes == [
        "train.py:12: this follows from numbers that were drawn at random here, and is counted as they came out"
    ]


def test_a_view_of_indices_is_no_storage(write: Write) -> None:
    text = LINEAR.replace(
        "loss.backward()", "assert type(torch.arange(2**20 + 1)) is not torch.Tensor; loss.backward()"
    )
    text = text.replace("loss.backward()", "rows = torch.arange(5000); {}; loss.backward()")
    same = counted(write(text.format("many = rows"))).moments["backward"]
    many = "many = rows[:, None].expand(-1, 1000)"
    assert counted(write(text.format(many))).moments["backward"] == same
    assert counted(write(text.format(f"{many}; del rows"))).moments["backward"] == same


def test_ctc_loss_keeps_a_number_for_each_frame_and_place(write: Write) -> None:
    text = """model = nn.Linear(8, 10).cuda()
def step():
    frames = model(torch.ones(50, 4, 8, device="cuda")).log_softmax(-1)
    loss = F.ctc_loss(frames, torch.ones(4, 300, dtype=torch.int64, device="cuda"), {})
    kept.append(loss)
    kept.pop().backward()
kept = []
"""
    asked = "[50] * 4, [20, 9, 9, 9]", "torch.tensor([50] * 4), torch.tensor([20, 9, 9, 9])"
    padded = "torch.tensor([50] * 4), frames[0, :, 0].long()"
    lists, known, padded = (counted(write(text.format(each))).moments["forward"] for each in (*asked, padded))
    assert lists == pytest.approx(known, abs=100)
    assert padded - known == pytest.approx(4 * 4 * 50 * 2 * (300 - 20), abs=100)


PRODUCTS = {
    "x @ w": 2 * 32 * 64,
    "w @ w": 2 * 64,
    "nn.LSTM(64, 16)(x[None])[0]": 2 * 32 * 4 * 16 * (64 + 16),
    "torch._grouped_mm(x.bfloat16(), x.view(2, 64, 16).bfloat16(), offs=torch.tensor([8, 32]).int())": 2 * 32 * 64 * 16,
}


@pytest.mark.parametrize("product", PRODUCTS)
def test_each_product_has_its_flops(write: Write, product: str) -> None:
    text = f"def step():\n    x, w = torch.ones(32, 64, device='cuda'), torch.ones(64, device='cuda'); {product}\n"
    assert counted(write(text)).flops == {"matmul": PRODUCTS[product]}


def test_a_product_without_a_formula_is_said(write: Write) -> None:
    text = """@torch.library.custom_op("test_count::product", mutates_args=())
def product(x: torch.Tensor) -> torch.Tensor:
    return x.clone()
product.register_fake(torch.empty_like)
"""
    more = "    product(x); torch.linalg.inv(model.weight)\n"
    assert [note.partition(" has no formula")[0] for note in counted(write(text + LINEAR + more)).notes] == [
        "train.py:16: test_count.product",
        "train.py:16: aten.linalg_inv_ex",
    ]


@pytest.mark.parametrize("loss", ["mse_loss", "smooth_l1_loss", "binary_cross_entropy"])
def test_a_loss_lies_in_the_storage_of_what_it_sums(write: Write, loss: str) -> None:
    x = torch.rand(10, 10)
    assert getattr(F, loss)(x, x).untyped_storage().nbytes() == x.nbytes, "as PyTorch has it with data"
    text = f"""model = nn.Linear(8, 1000).cuda()
def step():
    y = model(torch.ones(500, 8, device="cuda")).sigmoid()
    loss = F.{loss}(y, y.detach())
    {{}}
    loss.backward()
"""
    once, twice = (counted(write(text.format(more))).moments["backward"] for more in ("pass", "other = loss.view(1)"))
    without = counted(write(text.replace(f"F.{loss}(y, y.detach())", "(y * y.detach()).sum()").format("pass")))
    assert once == twice >= without.moments["backward"] + 4 * 500 * 1000 - 8


def test_constants_are_known_until_they_are_written_to(write: Write) -> None:
    text = """rates = [rate.item() for rate in torch.linspace(0, 0.5, 3)]
both = [each.tolist() for each in (2 * torch.arange(4.0)).split(2)]
assert rates == [0, 0.25, 0.5] and both == [[0, 2], [4, 6]] and torch.tensor((0.5, 1))[1].item() == 1
written = torch.linspace(0, 1, 2).mul_(torch.rand(2000)[:2])
def step():
    print(written[0].item() in rates)
"""
    with pytest.raises(Uncountable, match=r"^train\.py:9: a number that nobody has computed decides"):
        counted(write(text))


@pytest.mark.parametrize("x", ["torch.tensor(0)", "torch.tensor(0.5)", "torch.ones(2, 3)"])
def test_a_tensor_can_be_copied_deeply(write: Write, x: str) -> None:
    more = f"    import copy; x = {x}; y, z = copy.deepcopy([x, x]); assert y is z is not x and y.shape == x.shape\n"
    assert counted(write(LINEAR + more)).flops == counted(write(LINEAR)).flops


def test_pytorchs_own_questions_are_answered(write: Write) -> None:
    text = LINEAR.replace(
        "    optimizer.step()\n", "    scaler.unscale_(optimizer)\n    scaler.step(optimizer)\n    scaler.update()\n"
    )
    text = text.replace("loss.backward()", "scaler.scale(loss).backward()")
    found = counted(write('scaler = torch.amp.GradScaler("cuda")\n' + text))
    assert found.updates and not found.notes and found.kinds["optimizer state"] == 4 * 1000 * 1000


def test_a_triton_kernel_writes_into_what_it_is_given(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(LINEAR + "    import triton.runtime.jit as jit; jit.JITFunction().run(x)\n")
    folder = path.parent / "triton" / "runtime"
    folder.mkdir(parents=True)
    (folder / "jit.py").write_text(
        "class JITFunction:\n    __name__ = 'add'\n    def run(self, x): raise OSError('no card')\n"
    )
    monkeypatch.syspath_prepend(path.parent)
    with patch.dict(sys.modules):
        found = counted(path)
    assert found.notes == ["train.py:12: the Triton kernel add was left out, and its FLOPs with it"]


@pytest.mark.parametrize(
    ("width", "kernels", "kept"), [(64, "EFFICIENT_ATTENTION", 4), (64, "CUDNN_ATTENTION", 4), (65, "", None)]
)
def test_values_may_be_narrower_than_keys(write: Write, width: int, kernels: str, kept: int | None) -> None:
    """The kernels that can keep a row's sum in float32; where none can, scores are kept."""
    inside = f"with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.{kernels}): " if kernels else ""
    text = f"""import torch.nn.attention
q = torch.randn(2, 8, 1024, 128, dtype=torch.bfloat16, device="cuda").requires_grad_()
v = torch.randn(2, 8, 1024, {width}, dtype=torch.bfloat16, device="cuda").requires_grad_()
def step():
    {inside}out = F.scaled_dot_product_attention(q, q, v)
    out.sum().backward()
    q.grad = v.grad = None
"""
    rows, found = 2 * 8 * 1024, counted(write(text)).moments["forward"]
    least = rows * 2 * (128 + 2 * width)
    assert (found - least < 2 * rows * 4) == bool(kept)


def test_experts_that_are_routed_to_are_multiplied_by(write: Write) -> None:
    text = """w = nn.Parameter(torch.randn(4, 32, 64, dtype=torch.bfloat16, device="cuda"))
def step():
    x = torch.randn(100, 32, dtype=torch.bfloat16, device="cuda")
    chosen = torch.randn(100, 4, device="cuda").topk(2).indices.flatten()
    counts = torch.histc(chosen, bins=4, min=0, max=4)
    padded = torch.cat([x[chosen.argsort() // 2], x.new_zeros(56, 32)])
    torch._grouped_mm(padded, w, offs=counts.cumsum(0, dtype=torch.int32)).square().sum().backward()
    w.grad = None
"""
    found = counted(write(text))
    assert found.flops == {"matmul": 2 * 2 * 200 * 32 * 64}, "rows of zeros lie in no group"


def test_flex_attention_counts_as_flash_attention(write: Write) -> None:
    flash = ATTENTION.format(options="")
    flex = flash.replace("F.scaled_dot_product_attention(q, q, q, is_causal=True)", "flex_attention(q, q, q)")
    found = counted(write("from torch.nn.attention.flex_attention import flex_attention\n" + flex))
    assert found.flops == counted(write(flash)).flops
    assert found.notes == ["flex_attention was counted as flash attention without a mask"]


def test_a_list_of_tensors_becomes_one(write: Write) -> None:
    made = "torch.tensor([each / 2 for each in loss.expand(3)])"
    more = f"    made = {made}\n    assert made.shape == (3,) and made.is_floating_point()\n"
    assert counted(write(LINEAR + more)).flops == counted(write(LINEAR)).flops


def test_whole_numbers_are_computed(write: Write) -> None:
    text = LINEAR.replace(
        "def step():", "def step():\n    for i in torch.randperm(4): assert [1, 2, 3, 4][i] == int(i) + 1\n    del i"
    )
    assert counted(write(text)).peak_bytes == counted(write(LINEAR)).peak_bytes


@pytest.mark.parametrize("rows", [2**8, 2**16])
def test_a_square_of_known_rows_is_computed_if_it_is_small(write: Write, rows: int) -> None:
    text = LINEAR + f"    rows = torch.arange({rows}); assert rows.numel() == int((rows[:, None] == rows).sum())\n"
    if rows == 2**8:
        assert counted(write(text)).updates
    else:
        with pytest.raises(Uncountable, match=r"train\.py:12: the number in a tensor is asked for"):
            counted(write(text))


def test_a_model_that_was_made_before_is_refused() -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters())

    def step() -> None:
        model(torch.ones(2, 4)).sum().backward()

    with pytest.raises(Uncountable, match=r"test_count\.py:\d+: a weight .* build the model in the function"):
        count(step)
    with pytest.raises(Uncountable, match=r"test_count\.py:\d+: the optimizer's weights .* build the model in"):
        count(lambda: optimizer.step())


def test_a_model_that_is_built_without_memory_has_its_weights_once_it_is_on_the_card(write: Write) -> None:
    there = "model = nn.Linear(1000, 1000, bias=False).cuda()"
    by_meta = "with torch.device('meta'):\n    model = nn.Linear(1000, 1000, bias=False)\nmodel.to_empty(device='cuda')"
    assert there in LINEAR
    by_meta = LINEAR.replace(there, by_meta)
    assert counted(write(by_meta)).kinds == counted(write(LINEAR)).kinds


def test_numbers_that_were_made_before_are_said_to_be_left_out() -> None:
    x = torch.ones(2, 4)

    def make() -> Callable[[], None]:
        model = torch.nn.Linear(4, 4)
        return lambda: model(x).sum().backward()

    notes = count(make).notes
    assert len(notes) == 1 and "made before the count, whose bytes are left out" in notes[0]


def test_weights_and_gradients_are_known_without_an_optimizer() -> None:
    def make() -> Callable[[], None]:
        model = torch.nn.Linear(1000, 1000, bias=False)
        return lambda: model(torch.ones(100, 1000)).sum().backward()

    found = count(make)
    assert found.weights == {"all": 1000 * 1000, "trained": 1000 * 1000}
    assert found.kinds["weights"] == found.kinds["gradients"] == 4 * 1000 * 1000
    assert "update" not in str(found)


def test_all_is_as_before_afterwards(write: Write) -> None:
    before = torch.cuda.is_available, torch.compile, torch.nn.functional.dropout, torch.nn.Module._apply
    with pytest.raises(Uncountable):
        counted(write("def step():\n    1 / 0\n"))
    assert before == (torch.cuda.is_available, torch.compile, torch.nn.functional.dropout, torch.nn.Module._apply)


class Tracker(MemTracker):
    """PyTorch's, without what it notes of modules: that refuses a second step."""

    def _pre_fw_hook(self, *_: Any) -> None:
        pass

    _post_fw_hook = _pre_bw_hook = _post_bw_hook = _pre_fw_hook  # type: ignore[assignment]


def test_the_peak_is_that_of_pytorchs_own_tracker(write: Write) -> None:
    text = """d = 256
class Block(nn.TransformerEncoderLayer):
    pass
model = nn.Sequential(nn.Embedding(1000, d), *[Block(d, 4, 4 * d, batch_first=True) for _ in range(3)],
    nn.Linear(d, 1000)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
def step():
    words = torch.randint(1000, (4, 128), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = F.cross_entropy(model(words).flatten(0, 1), words.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    tracker = Tracker()
    found = counted(write(text), place=lambda _: tracker)
    tracked = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    assert found.peak_bytes == pytest.approx(tracked, rel=0.01)
    assert found.lines and all(line.startswith("train.py:") for line in found.lines)


def test_a_step_on_a_card(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(LINEAR)
    assert main([f"{path}:step", "--gpu", "H100 SXM"]) == 0
    assert "fits, 78.43 GiB left" in (told := capsys.readouterr().out)
    assert "train.py:7" in told
    assert main([f"{path}:step", "--gpu-memory", "9MB", "--gpu-peak", "1T"]) == 3
    told = capsys.readouterr().out
    assert "9MB card" in told and "does not fit" in told and "at an MFU of 40%" in told
    assert main([f"{path}:step", "--gpu", "H101"]) == 2 and "--gpu-memory and --gpu-peak" in capsys.readouterr().err
    large = write(LINEAR.replace("1000", "60000"))
    assert main([f"{large}:step", "--gpu", "T4"]) == 3
    assert "does not fit" in capsys.readouterr().out


def test_days_are_of_the_tokens_that_a_step_has(write: Write) -> None:
    text = """model = nn.Sequential(nn.Embedding(100, 1000), nn.Linear(1000, 1000, bias=False)).cuda()
def step():
    with torch.autocast("cuda", torch.bfloat16):
        model(torch.zeros(1, 100, dtype=torch.int64, device="cuda")).sum().backward()
"""
    found = counted(write(text))
    days = fit(found, "H100 SXM", "1T").days[0.4]
    assert days == pytest.approx(1e12 / 100 * (6 * 100 * 1000 * 1000) / (0.4 * 989.4e12) / 86400, rel=1e-3)


def test_a_card_shows_what_is_reserved_and_what_is_outside(write: Write) -> None:
    found = counted(write(LINEAR))
    assert found.reserved_bytes and found.reserved_bytes[0] >= found.peak_bytes
    told = fit(found, "RTX 4090")
    assert told.smi_bytes == tuple(size + told.outside_bytes for size in found.reserved_bytes) and not told.tight
    cut_up = fit(found._replace(reserved_bytes=(0, told.card_bytes)), "RTX 4090")
    assert cut_up.fits and cut_up.tight
    of_rank = fit(found._replace(reserved_bytes=None), "RTX 4090")
    assert of_rank.smi_bytes is None and of_rank.beside_bytes > of_rank.outside_bytes


@pytest.mark.parametrize(
    ("asked", "said"),
    [("none.py", "there is no such file"), ("train.py:walk", "has no function walk; it has step"), ("train.py", "no")],
)
def test_a_mistake_is_told(write: Write, capsys: pytest.CaptureFixture[str], asked: str, said: str) -> None:
    folder = write("def step():\n    pass\n").parent
    assert main([str(folder / asked)]) == 2
    assert said in capsys.readouterr().err
