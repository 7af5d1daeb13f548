# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""What people train with instead of plain AdamW: its state, its traffic, its FLOPs."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor

from flops_bytes.lessons.models import build
from flops_bytes.lessons.trace import Trace, Traffic, count_flops, tensors_in
from flops_bytes.memory.optimizers import (
    TORCHAO,
    adafactor_state_bytes,
    eight_bit_state_bytes,
    low_bit_state_bytes,
    muon_flops,
    muon_state_bytes,
    newton_schulz_flops,
)
from flops_bytes.model.flops import forward_flops
from flops_bytes.model.shapes import GPT2_SMALL, LLAMA_3_8B, Decoder, gpt2, parameters

MODELS = {"gpt2": GPT2_SMALL, "llama": LLAMA_3_8B}


def split(model: torch.nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """The matrices of the layers, for Muon, and all else, for AdamW: embeddings, head, norms, biases."""
    blocks: torch.nn.Module = model.get_submodule("blocks")
    matrices: list[Tensor] = [w for w in blocks.parameters() if w.dim() == 2]
    taken = set(map(id, matrices))
    return matrices, [w for w in model.parameters() if id(w) not in taken]


def muon_and_adamw(model: torch.nn.Module) -> list[torch.optim.Optimizer]:
    matrices, others = split(model)
    return [torch.optim.Muon(matrices), torch.optim.AdamW(others, foreach=True)]


def give_gradients(model: torch.nn.Module) -> torch.nn.Module:
    for w in model.parameters():
        w.grad = torch.randn_like(w)
    return model


def kept_bytes(optimizers: Iterable[torch.optim.Optimizer]) -> int:
    """Bytes of state after a step, without counters of steps."""
    kept = tensors_in([list(each.state.values()) for each in optimizers])
    return sum(tensor.nbytes for tensor in kept if tensor.dim())


def count_muon(shape: Decoder) -> tuple[int, int]:
    """FLOPs of an update's matmuls, and bytes of state, of a model on meta."""
    optimizers = muon_and_adamw(give_gradients(build(shape)))
    return count_flops(lambda: [each.step() for each in optimizers]), kept_bytes(optimizers)


for name, shape in MODELS.items():
    few = replace(shape, layers=2)  # all layers are alike
    flops, held = count_muon(few)
    print(f"two layers of {name}: {flops:,} FLOPs, {held:,} B of state")
    assert flops == muon_flops(few) and held == muon_state_bytes(few, sum(parameters(few).values()))


torch.manual_seed(0)  # Adafactor looks at its numbers, so this model has some
little = replace(gpt2(d_model=128, layers=1, heads=2), vocab=500)


def shapes_of(shape: Decoder) -> list[tuple[int, ...]]:
    return [tuple(w.shape) for w in build(shape).parameters()]


def with_numbers() -> torch.nn.Module:
    return give_gradients(build(little, device="cpu"))


adafactor = torch.optim.Adafactor(with_numbers().parameters())
adafactor.step()
adafactor_held_bytes, adafactor_flops = kept_bytes([adafactor]), count_flops(adafactor.step)
little_shapes = shapes_of(little)


def outer_product_flops(shapes: Iterable[tuple[int, ...]]) -> int:
    """Of each matrix, its means of rows times those of columns: m × 1 by 1 × n."""
    return sum(2 * math.prod(sizes) for sizes in shapes if len(sizes) == 2)


print(f"{adafactor_held_bytes:,} bytes, {adafactor_flops:,} FLOPs for {sum(parameters(little).values()):,} parameters")
assert adafactor_held_bytes == adafactor_state_bytes(little_shapes)
assert adafactor_flops == outer_product_flops(little_shapes)


def state_bytes(shape: Decoder) -> dict[str, int]:
    sizes = shapes_of(shape)
    total = sum(map(math.prod, sizes))
    return {
        "adamw": 8 * total,
        "bf16_moments": 4 * total,
        "adamw_bf16": 4 * total,
        "eight_bit": eight_bit_state_bytes(map(math.prod, sizes)),
        "four_bit": low_bit_state_bytes(map(math.prod, sizes), *TORCHAO["adamw-4bit"], width=4),
        "adafactor": adafactor_state_bytes(sizes),
        "muon": muon_state_bytes(shape, total),
    }


held_bytes = {name: state_bytes(shape) for name, shape in MODELS.items()}
update_flops = {name: muon_flops(shape) for name, shape in MODELS.items()}


def moved_each(make: Callable[[torch.nn.Module], list[torch.optim.Optimizer]]) -> float:
    """Bytes that one step after the first moves, per parameter of GPT-2's matrices in small."""
    model = with_numbers()
    optimizers = make(model)
    for optimizer in optimizers:
        optimizer.step()
    with Traffic() as traffic:
        for optimizer in optimizers:
            optimizer.step()
    updated: list[torch.Tensor] = [w for each in optimizers for group in each.param_groups for w in group["params"]]
    return traffic.moved_bytes / sum(weight.numel() for weight in updated)


moved = {
    "adamw": moved_each(lambda model: [torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)]),
    "adamw_bf16": moved_each(lambda model: [torch.optim.AdamW(model.bfloat16().parameters(), lr=0.1, fused=True)]),
    "adafactor": moved_each(lambda model: [torch.optim.Adafactor(model.parameters(), lr=0.1)]),
    "muon": moved_each(lambda model: [torch.optim.Muon(split(model)[0], lr=0.1)]),
}
# by hand, their kernels run on GPUs: weight and gradient in, weight out, both moments in and out
MOMENTS = {"bf16_moments": 2 * 2, "eight_bit": 2 * (1 + 4 / 256), "four_bit": 2 * (1 / 2 + 4 / 128)}  # bytes of both
for name, size in MOMENTS.items():
    moved[name] = 3 * 4 + 2 * size
for name, each in moved.items():
    print(f"{name:12}{each:8.2f} bytes read and written a parameter")


LLAMA_2_7B = 6_738_415_616  # parameters, in bf16
READ = {"adamw": 51.6, "bitsandbytes": 39.3, "eight_bit": 39.1, "four_bit": 33.2}  # torchao's peaks of a finetuning
spared_bytes = {  # by each instead of AdamW in bf16, whose moments are 4 bytes a parameter
    name: (MOMENTS["bf16_moments"] - MOMENTS["four_bit" if name == "four_bit" else "eight_bit"]) * LLAMA_2_7B
    for name in ("bitsandbytes", "eight_bit", "four_bit")
}
read_spared_bytes = {name: (READ["adamw"] - READ[name]) * 2**30 for name in spared_bytes}
spared_ratio = {name: round(size / read_spared_bytes[name], 3) for name, size in spared_bytes.items()}
for name, size in spared_bytes.items():
    print(
        f"{name:13}{size / 2**30:6.2f} GiB less, {read_spared_bytes[name] / 2**30:.1f} read: {spared_ratio[name]:.3f}"
    )


# --8<-- [start:one_matrix]
m, n = 4_096, 14_336  # an MLP matrix of Llama 3 8B
matrix = torch.zeros(n, m, device="meta", requires_grad=True)
matrix.grad = torch.zeros_like(matrix)
muon = torch.optim.Muon([matrix])
muon.step()  # makes the momentum
counted_flops = count_flops(muon.step)
by_hand_flops = 5 * (4 * m**2 * n + 2 * m**3)
print(f"{counted_flops:,} FLOPs counted, {by_hand_flops:,} by hand")
# --8<-- [end:one_matrix]
with Trace() as trace:
    muon.step()
temporary_bytes = trace.peak_bytes
counted_to_hand_ratio = counted_flops / by_hand_flops
assert by_hand_flops == newton_schulz_flops(n, m)
print(f"{temporary_bytes:,} bytes on top meanwhile")


SMALL_SHARE = 0.01
BATCHES = {"8k": 2**13, "64k": 2**16, "512k": 2**19, "4M": 2**22}  # tokens


def token_flops(shape: Decoder, seq_len: int) -> float:
    """Of forward and backward pass, three times the forward pass's."""
    return 3 * sum(forward_flops(shape, seq_len).values()) / seq_len


training_flops = {"gpt2": token_flops(GPT2_SMALL, 1_024), "llama": token_flops(LLAMA_3_8B, 8_192)}
muon_share = {
    name: {batch: update_flops[name] / (tokens * training_flops[name]) for batch, tokens in BATCHES.items()}
    for name in MODELS
}
one_percent_tokens = {name: update_flops[name] / (SMALL_SHARE * training_flops[name]) for name in MODELS}
for name in MODELS:
    shares = ", ".join(f"{batch}: {share:.2%}" for batch, share in muon_share[name].items())
    print(f"{name:6}{shares}; 1 % at {one_percent_tokens[name]:,.0f} tokens")


# --8<-- [start:exercise_6]
SIDE = 4_096
square_flops = 5 * 6 * SIDE**3 // SIDE**2  # per parameter
square_tokens = square_flops / (0.01 * 6)  # at which these are 1 % of 6 FLOPs a token
print(f"{square_flops:,} FLOPs a parameter; 1 % at {square_tokens:,.0f} tokens")
# --8<-- [end:exercise_6]
assert square_flops == newton_schulz_flops(SIDE, SIDE) // SIDE**2
