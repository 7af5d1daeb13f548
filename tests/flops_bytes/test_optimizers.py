"""What the formulas say that optimizers beyond AdamW hold and compute is what the optimizers themselves do."""

import math
import tomllib
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from flops_bytes.counting.check.count import norm_in_one
from flops_bytes.lessons.models import RMSNorm, build, eager, loss
from flops_bytes.lessons.trace import Trace, Traffic, count_flops, meta, tensors_in
from flops_bytes.memory.optimizers import (
    TORCHAO,
    adafactor_state_bytes,
    adafactor_temporary_bytes,
    eight_bit_state_bytes,
    low_bit_state_bytes,
    muon_flops,
    muon_state_bytes,
    muon_temporary_bytes,
    newton_schulz_flops,
)
from flops_bytes.memory.step import decoder_moments
from flops_bytes.model.shapes import GPT2_SMALL, Decoder, gpt2, llama, parameters, tensors
from flops_bytes.plan import plan_exactly as plan
from flops_bytes.plan.model import read_shape
from flops_bytes.plan.options import read_options
from flops_bytes.plan.stacks import read_model
from flops_bytes.plan.training import bytes_by_moment
from tests.conftest import ROOT

READINGS = ROOT / "measurements" / "published" / "torchao.toml"
SHAPES = {
    "gpt2": gpt2(192, 2, 3),
    "llama": replace(llama(320, 3, 8, 200, head_dim=40), vocab=1_000, kv_heads=2),
    "tied": replace(llama(256, 1, 2, 1_024, tied=True), vocab=300, kv_heads=1),
    "words": replace(llama(256, 1, 2, 64, tied=True), vocab=3_000, kv_heads=1),
}


def weights(shape: Decoder, dtype: torch.dtype) -> tuple[list[Tensor], list[Tensor]]:
    """Of a model on meta with gradients, the matrices of its layers, and all else."""
    model = build(shape).to(dtype)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    named = [(name.startswith("blocks.") and each.dim() == 2, each) for name, each in model.named_parameters()]
    return [each for matrix, each in named if matrix], [each for matrix, each in named if not matrix]


def held(optimizer: torch.optim.Optimizer) -> int:
    return sum(each.nbytes for each in tensors_in(list(optimizer.state.values())) if each.dim())


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_muon(name: str, dtype: torch.dtype) -> None:
    shape = SHAPES[name]
    matrices, others = weights(shape, dtype)
    muon, adamw = torch.optim.Muon(matrices), torch.optim.AdamW(others, foreach=True)
    adamw.step()
    assert count_flops(muon.step) == muon_flops(shape)
    total = sum(parameters(shape).values())
    assert held(muon) + held(adamw) == muon_state_bytes(shape, total, dtype.itemsize)
    with Trace() as trace:
        muon.step()
    scalars = 8  # norms, a few bytes
    assert 0 <= trace.peak_bytes - muon_temporary_bytes(shape, dtype.itemsize) <= scalars


@pytest.mark.parametrize(("rows", "columns"), [(7, 7), (5, 90), (90, 5)])
def test_newton_schulz(rows: int, columns: int) -> None:
    matrix = torch.nn.Parameter(meta(rows, columns))
    matrix.grad = meta(rows, columns)
    for steps in (1, 5):
        muon = torch.optim.Muon([matrix], ns_steps=steps)
        assert count_flops(muon.step) == newton_schulz_flops(rows, columns, steps)


def test_adafactor() -> None:
    sizes = [(30, 7), (12,), (1, 9)]
    made = [torch.nn.Parameter(torch.randn(size)) for size in sizes]
    for each in made:
        each.grad = torch.randn_like(each)
    adafactor = torch.optim.Adafactor(made)
    adafactor.step()
    assert held(adafactor) == adafactor_state_bytes(sizes)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_update_of_adafactor(name: str, dtype: torch.dtype) -> None:
    shape = SHAPES[name]
    model = build(shape, dtype=dtype, device="cpu")  # it looks at its numbers
    sizes = [tuple(weight.shape) for weight in model.parameters()]
    assert sizes == tensors(shape)
    for foreach in (False, True):
        for weight in model.parameters():
            weight.grad = torch.full_like(weight, 0.5)
        adafactor = torch.optim.Adafactor(model.parameters(), foreach=foreach)
        adafactor.step()
        assert held(adafactor) == adafactor_state_bytes(tensors(shape), dtype.itemsize)
        with Trace() as trace:
            adafactor.step()
        total = sum(parameters(shape).values())
        planned = dtype.itemsize * total if foreach else adafactor_temporary_bytes(tensors(shape), dtype.itemsize)
        scalars = 16 * len(sizes) if foreach else 64
        assert 0 <= trace.peak_bytes - planned <= scalars


def test_eight_bits() -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes", reason="8-bit state is bitsandbytes' own, which is not here")
    sizes = [(1_024, 512), (300, 17), (512,), (4_095,), (4_096,), (4_097,)]
    made = [torch.nn.Parameter(torch.zeros(size)) for size in sizes]
    adamw = bitsandbytes.optim.AdamW8bit(made)
    for number, each in enumerate(made):
        each.grad = torch.zeros_like(each)
        adamw.init_state(adamw.param_groups[0], each, 0, number)
    tables = {"qmap1", "qmap2"}  # once for all tensors
    state = [value for each in adamw.state.values() for name, value in each.items() if name not in tables]
    assert sum(each.nbytes for each in state if torch.is_tensor(each)) == eight_bit_state_bytes(
        each.numel() for each in made
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_torchao(dtype: torch.dtype) -> None:
    optim = pytest.importorskip("torchao.optim", reason="state in few bits is torchao's own, which is not here")
    classes = {"adamw-8bit": optim.AdamW8bit, "adamw-4bit": optim.AdamW4bit, "adamw-fp8": optim.AdamWFp8}
    sizes = [(1_024, 512), (300, 17), (512,), (4_095,), (4_096,), (4_097,), (64, 128), (32, 132)]
    made = [torch.nn.Parameter(torch.zeros(size, dtype=dtype)) for size in sizes]
    for name, (bits, block) in TORCHAO.items():
        adamw, found = classes[name](made), 0
        for each in made:
            for signed in (True, False):
                buffer = adamw._new_buffer(each, signed)
                packed = isinstance(buffer, Tensor) and type(buffer) is not Tensor
                found += sum(part.nbytes for part in (buffer.codes, buffer.scale)) if packed else buffer.nbytes
        assert found == low_bit_state_bytes([each.numel() for each in made], bits, block, dtype.itemsize)


def test_state_in_few_bits_by_hand() -> None:
    """As test_torchao counts, where torchao is: a number's bits and a float32 for each block, or the weights' width."""
    for name in ("adamw-8bit", "adamw-fp8"):
        assert low_bit_state_bytes([2**20], *TORCHAO[name], width=2) == 2 * (2**20 + 4 * 2**12)
    assert low_bit_state_bytes([2**20], *TORCHAO["adamw-4bit"], width=2) == 2 * (2**19 + 4 * 2**13)
    for size in (4_095, 4_097):  # too few, and an incomplete block
        assert low_bit_state_bytes([size], 8, 256, 2) == 4 * size and low_bit_state_bytes([size], 4, 128, 4) == 8 * size


@pytest.mark.parametrize("model", ["gpt2", "llama-3.2-1b", "qwen3-0.6b", "llama-3-8b"])
def test_the_planners_state_is_that_of_the_libraries(model: str) -> None:
    """To the byte; of bitsandbytes' it takes small tensors, which stay in float32, for large ones."""
    asked: dict[str, Any] = {"model": model, "gpu": "H100 SXM", "context": 512, "recipe": "bf16", "layers": "fused"}

    def state(optimizer: str, **more: Any) -> int:
        return int(plan(**asked | more, optimizer=optimizer)["memory_bytes"]["optimizer"])

    shape = read_model(asked, read_options(asked)).decoder
    assert shape is not None
    sizes = [math.prod(each) for each in tensors(shape)]
    for optimizer, (bits, block) in TORCHAO.items():
        if optimizer != "adamw-8bit":  # which is bitsandbytes' here
            assert state(optimizer) == low_bit_state_bytes(sizes, bits, block, 2)
            assert state(optimizer, recipe="bf16-master") == low_bit_state_bytes(sizes, bits, block, 4)
    assert state("adamw-bf16", recipe="bf16-master") == state("adamw") == 4 * sum(sizes)
    assert state("adamw-8bit") == pytest.approx(eight_bit_state_bytes(sizes), rel=0.006)
    assert state("muon") == muon_state_bytes(shape, sum(sizes), 2)
    assert state("adafactor") == adafactor_state_bytes(tensors(shape), 2)


def test_traffic_counts_no_views() -> None:
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    with Traffic() as traffic:
        x.T.add_(y.T)
    assert (traffic.num_operations, traffic.moved_bytes) == (1, 3 * 4 * 32)


@pytest.mark.parametrize(
    "asked",
    [
        {"model": "gpt2", "context": 64, "lora": 8},
        {"model": "gpt2", "context": 64, "gpus": 2, "zero": 3, "offload": "all"},
        {"model": "gpt2", "context": 64, "offload": "yes"},
        {"model": "mixtral-8x7b", "context": 64},
    ],
)
@pytest.mark.parametrize("optimizer", ["muon", "adafactor"])
def test_what_is_not_counted_with_whole_matrices_is_refused(optimizer: str, asked: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"--optimizer: {optimizer}"):
        plan(gpu="H100 SXM", optimizer=optimizer, **asked)


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_gpus_that_share_state_share_muons_matrices(zero: int) -> None:
    """As nanochat's and torchtitan's: a matrix is whole on the GPU that updates it, and the state is cut."""
    asked: dict[str, Any] = {"model": "gpt2", "gpu": "H100 SXM", "context": 64, "gpus": 8, "recipe": "fp32"}
    alone, shared = (plan(optimizer="muon", **asked | {"zero": stage}) for stage in (0, zero))
    assert shared["memory_bytes"]["optimizer"] == -(-alone["memory_bytes"]["optimizer"] // 8)
    adamw = plan(optimizer="adamw", **asked | {"zero": zero})
    updating = muon_flops(GPT2_SMALL) / 67e12 / 0.4 / 8
    assert shared["step_seconds"] - adamw["step_seconds"] == pytest.approx(updating, rel=0.01)
    at = moments_of(asked | {"zero": zero, "optimizer": "muon"})
    assert at["update"]["temporaries"] == muon_temporary_bytes(GPT2_SMALL, 4)


def moments_of(asked: dict[str, Any]) -> dict[str, dict[str, int]]:
    a = read_options(asked)
    return bytes_by_moment(a, read_shape(asked, a))


def test_what_lies_on_the_host_is_not_on_the_card() -> None:
    asked: dict[str, Any] = {"model": "gpt2", "gpu": "H100 SXM", "context": 64, "gpus": 8, "zero": 3}
    total = sum(parameters(GPT2_SMALL).values())
    for recipe, width in (("bf16-master", 2), ("bf16", 2), ("fp32", 4)):
        none, half, whole = (
            moments_of(asked | {"recipe": recipe, "offload": offload}) for offload in ("no", "yes", "all")
        )
        assert all(lines["master"] == lines["optimizer"] == 0 for lines in half.values())
        assert half["update"]["gradients"] == -(-width * total // 8) and half["update"]["temporaries"] == 0
        kept = ("weights", "gradients", "master", "optimizer")
        assert all(lines[line] == 0 for lines in whole.values() for line in kept)
        for moment in (
            "forward",
            "loss",
            "last_layer",
            "embedding",
        ):  # what is gathered and reduced is there all the same
            assert all(whole[moment][line] == none[moment][line] for line in none[moment] if line not in kept)
    deepspeed = moments_of(asked | {"offload": "yes", "sharding_by": "deepspeed", "recipe": "bf16-master"})
    assert all(lines["gradients"] == 0 and lines["weights"] > 0 for lines in deepspeed.values())
    with pytest.raises(ValueError, match="--offload: all is of weights that are gathered"):
        plan(**asked | {"offload": "all", "zero": 2})


def test_muon_takes_time_of_its_own() -> None:
    asked = {"model": "gpt2", "gpu": "H100 SXM", "context": 1_024}
    muon, adamw = (plan(optimizer=name, **asked) for name in ("muon", "adamw"))
    assert muon["step_seconds"] - adamw["step_seconds"] == pytest.approx(
        muon_flops(GPT2_SMALL) / 989.4e12 / 0.4, rel=1e-3
    )


@pytest.mark.parametrize("name", ["llama", "words"])
def test_an_update_in_backward_on_a_whole_step(name: str) -> None:
    """As torchtune's optimizer_in_bwd: an AdamW of each parameter's own, which its gradient's hook calls."""
    shape, seq_len = SHAPES[name], 40
    model = build(shape, eager, dtype=torch.float32, device="cpu")
    for norm in (each for each in model.modules() if isinstance(each, RMSNorm)):
        norm.forward = norm_in_one.__get__(norm)  # type: ignore[method-assign]
    tokens = torch.zeros(1, seq_len, dtype=torch.int64)
    own = {weight: torch.optim.AdamW([weight], fused=True) for weight in model.parameters()}

    def update(weight: Tensor) -> None:
        own[weight].step()  # type: ignore[index]
        own[weight].zero_grad()  # type: ignore[index]

    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(update)
    loss(model, tokens, tokens).backward()
    with Trace() as trace:
        for each in (*model.parameters(), *tensors_in([each.state for each in own.values()]), tokens, tokens.clone()):
            trace.hold(each.untyped_storage())
        loss(model, tokens, tokens).backward()
    assert all(weight.grad is None for weight in model.parameters())
    at = decoder_moments(shape, seq_len, recipe="fp32", fused=False, update="in-backward")
    planned = max(sum(lines.values()) for lines in at.values())
    assert planned == pytest.approx(trace.peak_bytes, rel=0.01)


@pytest.mark.parametrize(
    ("asked", "mend"),
    [
        ({"accumulation": 2}, "leave --accumulation out"),
        ({"chunks": 4}, "leave --chunks out"),
        ({"loss": "chunked"}, "leave --chunks out"),
        ({"recipe": "bf16-master"}, "counted for one GPU"),
        ({"gpus": 2, "zero": 3}, "counted for one GPU"),
        ({"lora": 8}, "counted for one GPU"),
        ({"offload": "yes"}, "counted for one GPU"),
        ({"optimizer": "muon"}, "counted for one GPU"),
        ({"optimizer": "adafactor"}, "counted for one GPU"),
        ({"model": "mixtral-8x7b"}, "counted for one GPU"),
    ],
)
def test_what_no_update_in_backward_can_do_is_refused(asked: dict[str, Any], mend: str) -> None:
    with pytest.raises(ValueError, match=f"--update: in-backward .*{mend}"):
        plan(**{"model": "gpt2", "gpu": "H100 SXM", "update": "in-backward", "recipe": "bf16"} | asked)


def test_what_torchao_read_is_what_the_formulas_spare() -> None:
    """Of a finetuning of Llama 2 7B in bf16; between two rows nothing differs but the optimizer's state."""
    shape, published = replace(llama(4_096, 32, 32, 11_008), vocab=32_000, kv_heads=32), READINGS.read_text("utf-8")
    allocated = [each for each in tomllib.loads(published)["extracted"]["readings"] if each["what"] == "allocated_gb"]
    read = [float(each["literal"]) for each in allocated]
    sizes = [math.prod(each) for each in tensors(shape)]
    held = [4 * sum(sizes), eight_bit_state_bytes(sizes)]
    held += [low_bit_state_bytes(sizes, *TORCHAO[name], width=2) for name in ("adamw-8bit", "adamw-4bit")]
    spared = [(held[0] - each) / 2**30 for each in held[1:]]  # torchtune's meter divides by as much
    assert spared == pytest.approx([read[0] - each for each in read[1:]], rel=0.015)
