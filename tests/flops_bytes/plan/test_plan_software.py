"""What the named libraries hold beside the formulas: FSDP 1 itself on ranks that are not there, other lines on meta."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.checkpoint import checkpoint

from flops_bytes.lessons.models import LlamaBlock, build, flash, loss, rotary
from flops_bytes.lessons.trace import Trace
from flops_bytes.plan import plan_exactly as plan
from flops_bytes.plan.options import named_shape

RANKS, RANK = 4, 4
SMALL = "layers=8 d_model=64 heads=4 kv_heads=4 head_dim=16 d_ff=128 vocab=50"
ASKED: dict[str, Any] = {"shape": SMALL, "gpu": "H100 SXM", "recipe": "fp32", "lora": RANK, "lora_on": "query-value"}
ASKED |= {"context": 512, "micro_batch": 2, "allowance": "1B"}
SHARDED = ASKED | {"gpus": RANKS, "zero": 3, "checkpointing": "full"}


def lines(**asked: Any) -> dict[str, int]:
    found: dict[str, int] = plan(**asked)["memory_bytes"]
    return found


class Adapter(nn.Module):
    def __init__(self, inputs: int, outputs: int, rank: int = RANK) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.up(self.down(x))
        return made


class Adapted(nn.Module):
    """A matrix that is frozen, and an adapter beside it."""

    def __init__(self, frozen: nn.Linear) -> None:
        super().__init__()
        self.frozen, self.adapter = frozen, Adapter(frozen.in_features, frozen.out_features)

    def forward(self, x: Tensor) -> Tensor:
        both: Tensor = self.frozen(x) + self.adapter(x)
        return both


@pytest.fixture
def group() -> Iterator[None]:
    """A group of which this process is the first rank, and the others are not there."""
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield
    dist.destroy_process_group()


class Counted(NamedTuple):
    before_bytes: int  # of a step: weights and tokens
    peak_bytes: int
    end_bytes: int  # when the gradient of the embedding's result is there
    left_bytes: list[int]  # after each micro-batch, beyond what was there before


def fsdp1(flat: bool, reentrant: bool, micro_batches: int = 1) -> Counted:
    """A step of one rank with PyTorch's own FSDP 1, frozen and trained weights in one unit (`flat`) or in several."""
    shape = named_shape({"model": None, "config": None} | ASKED)
    model = build(shape, device="cpu").requires_grad_(False)
    for block in model.blocks:
        for name in ("q", "v"):
            setattr(block, name, Adapted(getattr(block, name)))
    units = (LlamaBlock,) if flat else (LlamaBlock, Adapter)
    policy = partial(lambda_auto_wrap_policy, lambda_fn=lambda module: isinstance(module, units))
    device = torch.device("cpu")
    whole = FullyShardedDataParallel(model, auto_wrap_policy=policy, use_orig_params=flat, device_id=device)
    ends: list[int] = []
    left = []

    def hidden(tokens: Tensor) -> Tensor:
        x = model.embedding(tokens).requires_grad_()
        x.register_hook(lambda gradient: ends.append(trace.live_bytes))
        cos, sin = rotary(tokens.shape[1], shape.head_dim, x)
        for block in model.blocks:
            x = checkpoint(block.__call__, x, cos, sin, use_reentrant=reentrant)
        normed: Tensor = model.norm(x)
        return normed

    model.hidden = hidden  # type: ignore[method-assign]
    tokens = torch.zeros(ASKED["micro_batch"], ASKED["context"], dtype=torch.int64)
    with Trace() as trace:
        for weight in (*whole.parameters(), tokens):
            trace.hold(weight.untyped_storage())
        before = trace.live_bytes
        for number in range(micro_batches):
            with whole.no_sync() if number < micro_batches - 1 else nullcontext():
                loss(whole, tokens, tokens).backward()
            left.append(trace.live_bytes - before)
    return Counted(before, trace.peak_bytes, ends[-1], left)


ROW = 4 * 2 * 512 * 64


def test_hooks_of_frozen_units_hold_checkpoints_and_their_gradients_to_the_end(group: None) -> None:
    """Reentrant alone: with the other kind FSDP 1 holds what fully_shard does."""
    hooked, other = fsdp1(flat=False, reentrant=True), fsdp1(flat=False, reentrant=False)
    assert hooked.end_bytes - other.end_bytes == pytest.approx((2 * 8 - 2.5) * ROW, abs=0.5 * ROW)
    assert hooked.peak_bytes - other.peak_bytes > 6 * ROW
    planned, by_fsdp2 = lines(**SHARDED, sharding_by="fsdp1", reentrant="yes"), lines(**SHARDED)
    moments = planned["optimizer"]  # which this step has none of
    assert planned["total"] - moments == pytest.approx(hooked.peak_bytes, rel=0.02)
    assert by_fsdp2["total"] - moments == pytest.approx(other.peak_bytes, rel=0.03)


@pytest.mark.parametrize("change", [{"lora": None, "lora_on": None}, {"reentrant": None}, {"sharding_by": "fsdp2"}])
def test_fsdp1_has_nothing_more_where_no_hook_holds_a_leaf(change: dict[str, Any]) -> None:
    asked = SHARDED | {"sharding_by": "fsdp1", "reentrant": "yes"} | change
    assert lines(**asked) == lines(**SHARDED | {"reentrant": "yes"} | change)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("micro_batches", [1, 3])
def test_one_parameter_a_layer_has_the_gradients_of_frozen_weights(group: None, micro_batches: int) -> None:
    counted = fsdp1(flat=True, reentrant=False, micro_batches=micro_batches)
    planned = lines(**SHARDED, accumulation=micro_batches, sharding_by="fsdp1-flat")
    assert planned["total"] - planned["optimizer"] == pytest.approx(counted.peak_bytes, rel=0.04)
    layers = 4 * 8 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64 + RANK * 4 * 64)
    whole = [layers] * (micro_batches - 1)  # until the last, in which they are reduced
    assert counted.left_bytes == [*whole, layers // RANKS]
    without = lines(**SHARDED, accumulation=micro_batches)
    if micro_batches > 1:
        assert planned["gradients"] - without["gradients"] == layers


class Matmul4Bit(torch.autograd.Function):
    """As bitsandbytes' had it, and as it has it: with its input, and without."""

    keeps = True

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.tensors = (x if Matmul4Bit.keeps else None, weight)
        return x @ weight.T

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] @ ctx.tensors[1], None


class Frozen(nn.Module):
    def __init__(self, frozen: nn.Linear) -> None:
        super().__init__()
        self.weight, self.in_features, self.out_features = frozen.weight, frozen.in_features, frozen.out_features

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = Matmul4Bit.apply(x, self.weight)  # type: ignore[no-untyped-call]
        return made


WAYS = {"none": {}, "full": {"checkpointing": "full"}, "reentrant": {"checkpointing": "full", "reentrant": "yes"}}
MATRICES = {"query-value": ("q", "v"), "attention": ("q", "k", "v", "out")}
MATRICES["all"] = (*MATRICES["attention"], "gate", "up", "down")


@pytest.mark.drawn(2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lora_on", MATRICES)
def test_bitsandbytes_kept_the_inputs_of_its_matmuls(monkeypatch: pytest.MonkeyPatch, way: str, lora_on: str) -> None:
    def step(keeps: bool) -> int:
        monkeypatch.setattr(Matmul4Bit, "keeps", keeps)
        model = build(named_shape({"model": None, "config": None} | ASKED), flash).requires_grad_(False)
        for block in model.blocks:
            for name in MATRICES["all"]:
                frozen: Any = Frozen(getattr(block, name))
                setattr(block, name, Adapted(frozen).to("meta") if name in MATRICES[lora_on] else frozen)
            if way != "none":
                block.forward = partial(checkpoint, block.forward, use_reentrant=way == "reentrant")
        model.embedding.register_forward_hook(lambda module, inputs, output: output.requires_grad_())
        tokens = torch.zeros(2, 512, dtype=torch.int64, device="meta")
        with Trace() as trace:
            loss(model, tokens, tokens).backward()
        return trace.peak_bytes

    asked: dict[str, Any] = ASKED | {"base": "4bit", "lora_on": lora_on} | WAYS[way]
    old, new = (lines(**asked, quantized_by=by)["total"] for by in ("bitsandbytes-0.43.1", "bitsandbytes"))
    more = step(keeps=True) - step(keeps=False)
    assert old - new == pytest.approx(more, rel=0.05, abs=1.01 * ROW) and (more > 0) == (old > new)


def test_torchao_shards_the_constants_that_bitsandbytes_keeps_whole() -> None:
    """Llama 3.1 405B on eight cards, as torchtune's table has it."""
    asked: dict[str, Any] = {"model": "llama-3.1-405b", "gpu": "A100 80GB SXM", "gpus": 8, "zero": 3, "lora": 16}
    asked |= {"recipe": "bf16", "context": 512, "base": "4bit-double", "checkpointing": "full"}
    whole, cut = lines(**asked), lines(**asked, quantized_by="torchao")
    matrices = sum(plan(**asked)["parameters"][part] for part in ("attention", "mlp"))
    constants = matrices / 64 * (1 + 4 / 256)
    assert whole["weights"] - cut["weights"] == pytest.approx(constants * 7 / 8, rel=1e-6)
    assert cut["gathered"] - whole["gathered"] == pytest.approx(2 * constants / 126, rel=1e-6)
    alone = asked | {"gpus": 1, "zero": 0}
    assert lines(**alone, quantized_by="torchao") == lines(**alone)


FULL: dict[str, Any] = {"shape": SMALL, "gpu": "H100 SXM", "recipe": "bf16-master", "context": 64, "allowance": "1B"}


@pytest.mark.parametrize("gpus", [1, 4])
@pytest.mark.parametrize("lora", [None, 8])
def test_deepspeed_holds_its_buckets_whatever_is_trained(gpus: int, lora: int | None) -> None:
    asked = FULL | {"gpus": gpus, "lora": lora, "zero": 2}
    for by, buckets in (("deepspeed", 1), ("deepspeed-overlap", 2)):
        assert lines(**asked, sharding_by=by)["reduced"] == buckets * 500_000_000 * 2
        assert lines(**asked, sharding_by=by, reduce_bucket="200M")["reduced"] == buckets * 200_000_000 * 2
    assert lines(**asked | {"zero": 3}, sharding_by="deepspeed-overlap")["reduced"] == 500_000_000 * 2


def unbucketed(**asked: Any) -> dict[str, Any]:
    return plan(**FULL | asked, sharding_by="deepspeed", reduce_bucket=1)


def step_bytes(share: list[Tensor]) -> int:
    """At the peak of what DeepSpeed's step does with gradients: it copies them flat and casts the copy."""
    with Trace() as trace:
        for gradient in share:
            trace.hold(gradient.untyped_storage())
        torch.cat(share).to(torch.float32)
    return trace.peak_bytes


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_deepspeeds_step_holds_gradients_copied_and_cast(zero: int) -> None:
    """With its own operations: flatten(averaged_gradients).to(float32); in stage 3 they are views of a buffer."""
    asked = {"zero": zero, "gpus": 4, "context": 1}
    found = unbucketed(**asked)
    trained = found["parameters"]["trained"]
    half = trained // 4 // 2
    share = [torch.empty(half, dtype=torch.bfloat16, device="meta") for _ in range(2)]
    gradients = 8 * -(-trained // 4)
    assert step_bytes(share) == pytest.approx(gradients, rel=1e-3)
    assert found["peaks_at"] == "update" or zero == 1  # where it has all gradients in the end of the backward pass
    assert found["memory_bytes"]["gradients"] == gradients


def test_deepspeeds_third_stage_steps_a_group_of_parameters_at_a_time() -> None:
    """Of 1.8 billion on one card a billion, beside all gradients in 16 bits."""
    shape = "layers=24 d_model=2048 heads=16 kv_heads=16 head_dim=128 d_ff=5504 vocab=151936 qkv_biases=yes"
    found = unbucketed(shape=shape, zero=3)
    trained = found["parameters"]["trained"]
    assert trained > 1.8e9 and found["peaks_at"] == "update"
    assert found["memory_bytes"]["gradients"] == 2 * trained + 6 * 10**9


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "nothing sharded": ({"sharding_by": "deepspeed"}, "--sharding-by: nothing is sharded by deepspeed; give --zero"),
    "alone": ({"sharding_by": "fsdp1", "zero": 3}, "--sharding-by: fsdp1 has no other GPU to share with; give"),
    "flat 4 bits": (
        {"sharding_by": "fsdp1-flat", "zero": 3, "gpus": 2, "lora": 8, "base": "4bit"},
        "--sharding-by: fsdp1-flat has no weights in 4 bits; choose fsdp1",
    ),
    "nothing quantized": ({"quantized_by": "torchao"}, "--quantized-by: torchao has nothing in 4 bits; give --base"),
    "no adapters to cast for": ({"lora_inputs": "float32"}, "--lora-inputs: only adapters beside weights of 16 bits"),
    "nothing to drop": ({"lora_dropout": "yes"}, "--lora-dropout: nothing has an adapter; give --lora a rank"),
    "another's bucket": (
        {"reduce_bucket": "200M", "gpus": 2, "zero": 2},
        "--reduce-bucket: it is DeepSpeed's; give --sharding-by deepspeed",
    ),
}


@pytest.mark.parametrize(("asked", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_contradicts_itself_is_refused_with_the_mend(asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        plan(**FULL | asked)
    assert str(caught.value).startswith(sentence)


def test_adapters_are_sharded_with_the_weights_beside_them(group: None) -> None:
    """What a rank holds of all parameters under PyTorch's own FSDP 1 is what the plan says, to padding."""
    assert lines(**SHARDED)["adapters"] == lines(**ASKED)["adapters"] // RANKS
    assert lines(**SHARDED | {"zero": 2})["adapters"] == lines(**ASKED)["adapters"]
    before = fsdp1(flat=False, reentrant=False).before_bytes
    planned = lines(**SHARDED)
    assert planned["weights"] + planned["adapters"] + planned["batch"] // 2 == pytest.approx(before, rel=0.01)


class Inputs(nn.Module):
    """A frozen matrix and peft's adapter: in float32, as its input is cast then, with a dropout of its own."""

    drops = casts = False

    def __init__(self, frozen: nn.Linear, rank: int = RANK) -> None:
        super().__init__()
        self.frozen, self.adapter = frozen, Adapter(frozen.in_features, frozen.out_features, rank)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.frozen(x)
        x = x.float() if self.casts else x
        x = torch.native_dropout(x, 0.05, True)[0] if self.drops else x
        adapter = self.adapter if self.casts else self.adapter.to(x.dtype)
        both: Tensor = (result + adapter(x)).to(result.dtype)
        return both


class Joined(nn.Module):
    """Queries, keys and values of one matmul, which the first to be asked makes; each of the three is a part of it."""

    def __init__(self, block: LlamaBlock) -> None:
        super().__init__()
        parts = (block.q, block.k, block.v)
        self.sizes = [part.out_features for part in parts]
        self.whole = nn.Linear(block.q.in_features, sum(self.sizes), bias=False, device="meta", dtype=torch.bfloat16)
        self.whole.requires_grad_(False)
        self.matrix: nn.Module = self.whole

    def part(self, which: int) -> Callable[[Tensor], Tensor]:
        def of(x: Tensor) -> Tensor:
            if which == 0:
                self.made = self.matrix(x).split(self.sizes, -1)
            part: Tensor = self.made[which]
            return part

        return of


HALF = ASKED | {"recipe": "bf16", "shape": SMALL.replace("vocab=50", "vocab=5000")}  # which peaks at its loss


def half(lora_on: str, drops: bool, casts: bool, joined: bool) -> int:
    """The most that a step of bfloat16 holds, but for the optimizer."""
    model = build(named_shape({"model": None, "config": None} | HALF), flash).to(torch.bfloat16).requires_grad_(False)
    for block in model.blocks:
        if joined:
            one = Joined(block)  # type: ignore[arg-type]
            one.matrix = adapted(one.whole, drops, casts)
            for which, name in enumerate(("q", "k", "v")):
                getattr(block, name).forward = one.part(which)
        for name in () if joined else MATRICES[lora_on]:
            setattr(block, name, adapted(getattr(block, name), drops, casts))
    tokens = torch.zeros(2, 512, dtype=torch.int64, device="meta")
    with Trace() as trace:
        loss(model, tokens, tokens).backward()
    return trace.peak_bytes


def adapted(frozen: nn.Linear, drops: bool, casts: bool, rank: int = RANK) -> Inputs:
    made = Inputs(frozen, rank).to("meta")
    made.drops, made.casts = drops, casts
    return made


PEFT = {
    "float32": {"lora_inputs": "float32"},
    "dropout": {"lora_dropout": "yes"},
    "both": {"lora_inputs": "float32", "lora_dropout": "yes"},
}


@pytest.mark.drawn(3)
@pytest.mark.parametrize("lora_on", MATRICES)
@pytest.mark.parametrize("named", PEFT)
def test_an_adapter_of_peft_keeps_an_input_of_its_own(named: str, lora_on: str) -> None:
    asked: dict[str, Any] = HALF | {"lora_on": lora_on}
    planned = lines(**asked, **PEFT[named])["total"] - lines(**asked)["total"]
    counted = half(lora_on, "lora_dropout" in PEFT[named], "lora_inputs" in PEFT[named], False)
    more = counted - half(lora_on, False, False, False)
    assert 0 < planned == pytest.approx(more, rel=0.006)


@pytest.mark.parametrize("drops", [False, True])
def test_values_of_one_matmul_keep_queries_and_keys_too(drops: bool) -> None:
    """And its adapter's dropout is one."""
    asked = HALF | {"lora_dropout": "yes" if drops else "no"}
    planned = lines(**asked, qkv_made="one")["total"] - lines(**HALF)["total"]
    more = half("query-value", drops, False, True) - half("query-value", False, False, False)
    assert 0 < planned == pytest.approx(more, rel=0.01)
