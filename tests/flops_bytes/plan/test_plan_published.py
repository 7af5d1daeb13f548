"""Terms that published readings showed to be missing: each is counted on a step of PyTorch's, and none is tuned."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from flops_bytes.counting.check.count import count
from flops_bytes.lessons.models import LLAMA_3_8B, build, loss
from flops_bytes.lessons.ranks import join, leave
from flops_bytes.lessons.trace import Trace
from flops_bytes.plan import plan_exactly as plan
from flops_bytes.plan.options import named_shape, read_options

LLAMA = "layers=2 d_model=512 heads=8 kv_heads=2 head_dim=64 d_ff=1536"
SMALL = f"{LLAMA} vocab=1000"


def planned(**asked: Any) -> dict[str, Any]:
    return plan(**({"shape": SMALL, "gpu": "H100 SXM", "context": 64, "allowance": "1B"} | asked))


def lines(**asked: Any) -> dict[str, int]:
    found: dict[str, int] = planned(**asked)["memory_bytes"]
    return found


def counted(**asked: Any) -> int:
    options = read_options({"shape": SMALL, "gpu": "H100 SXM", "context": 64} | asked)
    return count(options, named_shape(options)).peak_bytes


@pytest.mark.parametrize("recipe", ["fp32", "bf16", "bf16-master"])
@pytest.mark.parametrize("lora", [None, 64])
def test_foreach_adamw_holds_a_temporary_as_large_as_what_is_trained(recipe: str, lora: int | None) -> None:
    asked: dict[str, Any] = {"recipe": recipe, "update": "foreach", "lora": lora, "checkpointing": "full"}
    assert lines(**asked)["total"] - 1 == pytest.approx(counted(**asked), rel=0.01)


def test_the_temporary_is_what_torchs_own_foreach_makes() -> None:
    with torch.device("meta"):
        model = build(named_shape(read_options({"shape": SMALL, "gpu": "H100 SXM"})), dtype=torch.bfloat16)
    weights = list(model.parameters())
    optimizer = torch.optim.AdamW(weights, foreach=True)
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    trace = Trace()
    with trace:
        optimizer.step()
    found = planned(recipe="bf16", update="foreach")
    assert found["peaks_at"] == "update"
    assert trace.peak_bytes == pytest.approx(found["memory_bytes"]["temporaries"], rel=0.01)


def test_of_a_share_the_temporary_is_a_share() -> None:
    """Llama 3 8B on one GPU and on two: rows of fms-acceleration, where five times the weights are the whole peak."""
    asked: dict[str, Any] = {"model": "llama-3-8b", "recipe": "bf16", "checkpointing": "full", "context": 128}
    asked |= {"update": "foreach", "loss": "fused"}
    ways: tuple[dict[str, Any], ...] = ({}, {"gpus": 2, "zero": 3})
    one, two = (plan(gpu="H200 SXM", **asked, **way)["memory_bytes"]["temporaries"] for way in ways)
    parameters = sum(each.numel() for each in build(LLAMA_3_8B).parameters())
    assert (one, two) == (2 * parameters, parameters)


WORDS = f"{LLAMA} vocab=150000"


@pytest.mark.parametrize("recipe", ["fp32", "bf16", "autocast"])
@pytest.mark.parametrize("loss", ["float32-held", "shifted", "as-logits"])
@pytest.mark.parametrize("more", [{}, {"lora": 8}, {"layers": "composed"}], ids=str)
def test_a_loss_holds_what_transformers_of_its_time_held(recipe: str, loss: str, more: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"shape": WORDS, "recipe": recipe, "loss": loss, "checkpointing": "full", "context": 768}
    asked |= {"micro_batch": 4} | more
    assert lines(**asked)["total"] - 1 == pytest.approx(counted(**asked), rel=0.01)


def test_a_logit_has_so_many_bytes_where_a_step_peaks() -> None:
    """Of two sequences; each one's last has no next word, and losses that shift leave it out."""
    found = {
        loss: planned(shape=WORDS, recipe="bf16", loss=loss, lora=8, checkpointing="full", context=2048, micro_batch=2)
        for loss in ("plain", "logits-held", "float32-held", "shifted", "as-logits")
    }
    logits = {loss: told["memory_bytes"]["logits"] for loss, told in found.items()}
    whole, judged = 150_000 * 2 * 2048, 150_000 * 2 * 2047
    expected = {
        "plain": 12 * whole,
        "logits-held": 14 * whole,
        "float32-held": 4 * whole + 12 * judged,
        "shifted": 14 * judged,
        "as-logits": 6 * judged,
    }
    assert logits == pytest.approx(expected, rel=0.001)  # a gradient that stands among zeros is as large as all logits
    alone = planned(shape=WORDS, recipe="bf16", loss="shifted", lora=8, checkpointing="full", context=4096)
    assert alone["memory_bytes"]["logits"] == pytest.approx(
        12 * 150_000 * 4095, rel=0.001
    )  # of one sequence nothing is copied
    assert found["shifted"]["peaks_at"] == "forward" and found["float32-held"]["peaks_at"] == "loss"


def test_autocast_makes_the_loss_of_16_bits_after_the_log_probabilities() -> None:
    """10 bytes a logit, as PyTorch's allocator counts with autocast's code for CUDA: 2, and twice 4 of nll_loss."""
    asked: dict[str, Any] = {"shape": WORDS, "checkpointing": "full", "context": 2048, "recipe": "autocast"}
    plain, narrow = (planned(**asked, loss=loss)["memory_bytes"]["logits"] for loss in ("plain", "as-logits"))
    assert (plain, narrow) == (12 * 150_000 * 2048, 10 * 150_000 * 2047)


def kept_bytes(model: nn.Module, tokens: Tensor) -> int:
    """What autograd keeps of a forward pass; no weight's size has the number of tokens as a factor."""
    kept: dict[int, int] = {}
    held: list[Tensor] = []  # so that no address is used twice

    def keep(tensor: Tensor) -> Tensor:
        held.append(tensor)
        if tensor.numel() % tokens.numel() == 0 and tensor.is_floating_point():
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        loss(model, tokens, tokens)
    return sum(kept.values())


def test_sharded_weights_that_are_cast_leave_the_residual_path_in_16_bits() -> None:
    """PyTorch's fully_shard with a policy of bfloat16 keeps as much as a model in bfloat16, less than autocast does."""
    shape = named_shape(read_options({"shape": SMALL, "gpu": "H100 SXM"}))
    tokens = torch.zeros(1, 37, dtype=torch.int64)

    def made() -> nn.Module:
        model: nn.Module = build(shape, device="cpu")
        for weight in model.parameters():
            nn.init.zeros_(weight)
        return model

    in_16_bits = kept_bytes(made().to(torch.bfloat16), tokens)
    with torch.autocast("cpu", torch.bfloat16):
        cast = kept_bytes(made(), tokens)
    join("gloo")
    try:
        sharded, mesh = made(), init_device_mesh("cpu", (1,))
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        for module in (*sharded.blocks, sharded):  # type: ignore[misc]
            fully_shard(module, mesh=mesh, mp_policy=policy)
        found = kept_bytes(sharded, tokens)
    finally:
        leave()
    assert found == in_16_bits < cast
    asked: dict[str, Any] = {"shape": WORDS, "checkpointing": "full", "context": 4096, "gpus": 2}
    whole, shared = (planned(recipe="autocast", **asked, zero=zero)["memory_bytes"] for zero in (0, 3))
    assert planned(recipe="bf16", **asked)["memory_bytes"]["activations"] == shared["activations"]
    assert whole["activations"] - shared["activations"] >= 2 * 2 * 4096 * 512  # two layers' inputs
    assert shared["weights"] == -(-whole["weights"] // 2)
