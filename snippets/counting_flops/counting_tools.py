# /// script
# requires-python = ">=3.11"
# dependencies = ["calflops", "thop", "torch>=2.11", "torchinfo", "transformers"]
# ///
"""What four tools say of one GPT-2, against the truth. A configuration is enough: nothing is downloaded."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import FlopCounterMode

with warnings.catch_warnings():  # thop imports distutils, which Python has retired
    warnings.filterwarnings("ignore", ".*distutils", DeprecationWarning)
    import thop
import torchinfo
from calflops import calculate_flops
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, GPT2Config
from transformers.pytorch_utils import Conv1D

# --8<-- [start:truth]
VOCABULARY, WIDTH, LAYERS = 50_257, 768, 12  # V, d, L of GPT-2 small
CONTEXTS = (256, 1024)  # T, tokens in one sequence


def matmul_flops(seq_len: int) -> dict[str, int]:
    """FLOPs of the matmuls of one forward pass: 2T(12Ld² + Vd) + 4T²dL."""
    return {
        "layers": 2 * seq_len * 12 * LAYERS * WIDTH**2,
        "head": 2 * seq_len * VOCABULARY * WIDTH,
        "attention": 4 * seq_len**2 * WIDTH * LAYERS,
    }


def forward_flops(seq_len: int) -> int:
    return sum(matmul_flops(seq_len).values())


for T in CONTEXTS:
    print(f"T = {T}: {forward_flops(T):,} FLOPs")
# --8<-- [end:truth]


def shares(seq_len: int) -> dict[str, float]:
    """Of the FLOPs of a forward pass."""
    total = forward_flops(seq_len)
    return {part: flops / total for part, flops in matmul_flops(seq_len).items()}


true_flops = {T: forward_flops(T) for T in CONTEXTS}
parts_flops = {T: matmul_flops(T) for T in CONTEXTS}
LONG = 4096  # by the formula alone: GPT-2 reads 1,024 tokens at most
parts_share = {T: shares(T) for T in (*CONTEXTS, LONG)}

POSITIONS = 1024  # the most tokens it can read
block_parameters = 12 * WIDTH**2 + 13 * WIDTH  # weights; biases and two norms
embedding_parameters = (VOCABULARY + POSITIONS) * WIDTH  # the head shares these
true_parameters = embedding_parameters + LAYERS * block_parameters + 2 * WIDTH

by_head_flops = 2 * true_parameters * CONTEXTS[0]
by_head_ratio = (by_head_flops + parts_flops[256]["attention"]) / true_flops[256]
print(f"{true_parameters:,} parameters, {by_head_ratio:.4f} of the truth by head")


# --8<-- [start:gpt2]
with torch.device("meta"):  # shapes without data
    model = AutoModelForCausalLM.from_config(
        GPT2Config(),
        attn_implementation="eager",
    )
    tokens = torch.zeros(1, 256, dtype=torch.long)

with FlopCounterMode(display=False) as counter:
    model(tokens)
gpt2_flops = counter.get_total_flops()
print(f"{gpt2_flops:,}")
# --8<-- [end:gpt2]


# --8<-- [start:two_lengths]
for T in (256, 1024):
    tokens = torch.zeros(1, T, dtype=torch.long, device="meta")
    said = torchinfo.summary(model, input_data=tokens, device="meta", verbose=0)
    print(f"T = {T}: torchinfo {2 * said.total_mult_adds:,}, by hand {forward_flops(T):,}")
# --8<-- [end:two_lengths]


# --8<-- [start:exercise_3]
constant_flops = 2 * said.total_mult_adds  # whatever T is
accident = next(T for T in range(1, 4096) if forward_flops(T) >= constant_flops)
accident_ratio = forward_flops(accident) / constant_flops
print(f"T = {accident}: the truth is {accident_ratio:.4f} of what torchinfo says")
# --8<-- [end:exercise_3]
assert forward_flops(accident - 1) < constant_flops


class Answer(NamedTuple):
    """What a tool says."""

    flops: int
    parameters: int


def ask_counter(model: torch.nn.Module, tokens: torch.Tensor) -> Answer:
    """PyTorch's own counter; parameters as PyTorch lists them, shared ones once."""
    with FlopCounterMode(display=False) as counter:
        model(tokens)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Answer(counter.get_total_flops(), parameters)


def ask_calflops(model: torch.nn.Module, tokens: torch.Tensor) -> Answer:
    flops, _, parameters = calculate_flops(
        model,
        kwargs={"input_ids": tokens},
        print_results=False,
        output_as_string=False,
    )
    return Answer(int(flops), int(parameters))


def ask_torchinfo(model: torch.nn.Module, tokens: torch.Tensor) -> Answer:
    """It counts multiply-adds: two FLOPs each."""
    said = torchinfo.summary(model, input_data=tokens, device="meta", verbose=0)
    return Answer(2 * said.total_mult_adds, said.total_params)


def ask_thop(model: torch.nn.Module, tokens: torch.Tensor) -> Answer:
    """It counts multiply-adds: two FLOPs each."""
    multiply_adds, parameters = thop.profile(model, (tokens,), verbose=False)
    return Answer(int(2 * multiply_adds), int(parameters))


Ask = Callable[[torch.nn.Module, torch.Tensor], Answer]
TOOLS: dict[str, Ask] = {
    "FlopCounterMode": ask_counter,
    "calflops": ask_calflops,
    "torchinfo": ask_torchinfo,
    "thop": ask_thop,
}


def make_gpt2(attention: str = "eager") -> torch.nn.Module:
    """GPT-2 small from its configuration; "eager" attention is two plain products."""
    with torch.device("meta"):
        model: torch.nn.Module = AutoModelForCausalLM.from_config(
            GPT2Config(),
            attn_implementation=attention,
        )
    return model.eval()


def make_tokens(seq_len: int) -> torch.Tensor:
    return torch.zeros(1, seq_len, dtype=torch.long, device="meta")


def ask_at_both(ask: Ask) -> dict[int, Answer]:
    """The answers at both lengths; a new model each time: some tools leave marks."""
    return {T: ask(make_gpt2(), make_tokens(T)) for T in CONTEXTS}


answers = {tool: ask_at_both(ask) for tool, ask in TOOLS.items()}


# --8<-- [start:ratios]
def flops_of(said: dict[int, Answer]) -> dict[int, int]:
    """FLOPs alone, at both lengths."""
    return {T: answer.flops for T, answer in said.items()}


def over_truth(flops: dict[int, int]) -> dict[int, float]:
    """What is said over what is true."""
    return {T: counted / true_flops[T] for T, counted in flops.items()}


said_flops = {tool: flops_of(said) for tool, said in answers.items()}
flops_ratio = {tool: over_truth(flops) for tool, flops in said_flops.items()}
said_parameters = {tool: said[256].parameters for tool, said in answers.items()}
parameters_ratio = {tool: n / true_parameters for tool, n in said_parameters.items()}
assert said_flops["FlopCounterMode"] == true_flops
assert said_parameters["FlopCounterMode"] == true_parameters
# --8<-- [end:ratios]


gpt2 = make_gpt2()
as_convolution = sum(
    parameter.numel() * module.nf  # nf: its output features
    for module in gpt2.modules()
    if isinstance(module, Conv1D)
    for parameter in module.parameters()
)
all_others = sum(
    parameter.numel()
    for module in gpt2.modules()
    if not isinstance(module, Conv1D)
    for parameter in module.parameters(recurse=False)
)
tied_parameters = VOCABULARY * WIDTH  # of embedding and head, counted twice
assert set(said_flops["torchinfo"].values()) == {2 * (as_convolution + all_others)} == {constant_flops}
assert said_parameters["torchinfo"] == true_parameters + tied_parameters
print(f"multiply-adds: {as_convolution:,} as convolutions, {all_others:,} all else")


NORMS = 2 * LAYERS + 1

head_and_norms_flops = {
    T: 2 * (T * VOCABULARY * WIDTH + NORMS * 4 * T * WIDTH)  # 4: its rule for a norm
    for T in CONTEXTS
}
norms_flops = {T: head_and_norms_flops[T] - parts_flops[T]["head"] for T in CONTEXTS}
assert said_flops["thop"] == head_and_norms_flops
assert said_parameters["thop"] == VOCABULARY * WIDTH + NORMS * 2 * WIDTH
print(f"thop sees the head and {NORMS} norms, and no product in {LAYERS} blocks")


extra_flops = said_flops["calflops"][256] - true_flops[256]
fused = {T: ask_calflops(make_gpt2("sdpa"), make_tokens(T)) for T in CONTEXTS}
fused_ratio = over_truth(flops_of(fused))
attention_share = {T: 4 * T**2 * WIDTH * LAYERS / true_flops[T] for T in CONTEXTS}

print(f"eager, T = 256: {extra_flops:,} more than the products")
for T, share in attention_share.items():
    print(f"sdpa, T = {T}: {fused_ratio[T]:.4f} of the truth; attention is {share:.4f}")
    assert abs(fused_ratio[T] + share - 1) < 0.0005


ARITHMETIC = ("add", "mul", "pow", "tanh", "_softmax", "native_layer_norm")


class Results(TorchDispatchMode):
    """Adds up how many numbers these operations write; no view, no copy, no matmul."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.written = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in ARITHMETIC:
            self.written += (result[0] if isinstance(result, tuple) else result).numel()
        return result


with Results() as others:
    make_gpt2()(make_tokens(1024))
results_share = others.written / true_flops[1024]
print(f"{others.written:,} results, {results_share:.4%} of the matmuls' FLOPs")


REAL = 0.40  # utilization of a pass over 1,024 tokens, by the true count

reported_share = {tool: REAL * ratio[1024] for tool, ratio in flops_ratio.items()}
undoubled_share = reported_share["thop"] / 2  # multiply-adds taken for FLOPs
for tool, share in reported_share.items():
    print(f"{tool:16}{share:.1%}")
print(f"thop, undoubled {undoubled_share:.1%}")
assert reported_share["thop"] < REAL < reported_share["torchinfo"]
