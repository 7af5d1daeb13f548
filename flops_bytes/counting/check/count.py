"""What a step that was asked of the planner takes, counted: this book's modules or transformers', without memory.

Autocast is PyTorch's own for CPUs, on fake tensors, with CUDA's list of what stays in float32.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._functorch.partitioners import get_default_op_list
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import flop_registry
from transformers import CONFIG_MAPPING, AttentionInterface, AutoModelForCausalLM

from flops_bytes.counting.card import cross_entropy
from flops_bytes.counting.counter import on_cuda
from flops_bytes.lessons.models import (
    GPT2,
    Llama,
    NormOnMeta,
    RMSNorm,
    again,
    chunked_backward,
    eager,
    flash,
    fused,
    loss,
)
from flops_bytes.lessons.trace import Trace, made_inside
from flops_bytes.memory.adapters import CONSTANTS, FORMATS, Format, quantized_bytes
from flops_bytes.model.shapes import Decoder
from flops_bytes.plan.options import has_dropout

BFLOAT16 = torch.bfloat16
AUTOCAST = ("autocast", "autocast-fp16")  # in float16 as many bytes; the loss's scale is a scalar
IN_FLOAT32 = ("fp32", *AUTOCAST)  # the weights
DROPOUT_SHARE = 0.1  # where there is any


class Uncountable(Exception):
    """Why a step cannot be counted here."""


class Counter(Trace):
    """A trace that adds up FLOPs too, by PyTorch's own formulas."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if count := flop_registry.get(func._overloadpacket):
            self.flops += count(*args, **(kwargs or {}), out_val=result)
        return result


class Tracker(MemTracker):
    """PyTorch's, with what is made inside a kernel and without what it notes of modules: that refuses a second
    micro-batch.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def with_temporaries(*args: Any, **kwargs: Any) -> tuple[Any, list[Tensor]]:
            return func(*args, **kwargs), made_inside(func, args)

        return super().__torch_dispatch__(with_temporaries, types, args, kwargs)[0]  # type: ignore[no-untyped-call]

    def _pre_fw_hook(self, module: Any, inputs: Any) -> None:
        pass

    def _post_fw_hook(self, module: Any, inputs: Any, outputs: Any) -> None:
        pass

    def _pre_bw_hook(self, module: Any, args: Any) -> None:
        pass

    def _post_bw_hook(self, module: Any, args: Any) -> None:
        pass


@contextmanager
def as_on_cuda(drops: bool) -> Iterator[None]:
    """What CUDA does otherwise: autocast makes powers and softmax in float32, dropout keeps a mask of bytes.

    This book's attention has no dropout of its own: where the step `drops`, its softmax gets it here.
    """
    power, softmax, method = torch.pow, F.softmax, Tensor.softmax

    def wide(x: Any) -> Any:
        return x.float() if isinstance(x, Tensor) and torch.is_autocast_enabled("cpu") else x

    def probabilities(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
        found = method(wide(x), dim, dtype=dtype)
        return dropped(found) if drops else found

    def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        return dropped(x) if p else x

    with (
        patch.object(torch, "pow", lambda x, exponent: power(wide(x), exponent)),
        patch.object(F, "softmax", lambda x, dim, dtype=None: softmax(wide(x), dim, dtype=dtype)),
        patch.object(Tensor, "softmax", probabilities),
        patch.object(F, "dropout", dropout),
    ):
        yield


def dropped(x: Tensor) -> Tensor:
    return torch.native_dropout(x, DROPOUT_SHARE, True)[0]


def one_kernel(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0, window: int | None = None) -> Tensor:
    """What a GPU takes, whose factors autocast casts. Of a layer with a window transformers repeats the keys."""
    if torch.is_autocast_enabled("cpu"):
        q, k, v = (x.to(BFLOAT16) for x in (q, k, v))
    is_windowed = window is not None and window < q.shape[2]
    return flash(q, k, v) if is_windowed else on_cuda(q, k, v, dropout)


def as_transformers(attend: Callable[..., Any]) -> Callable[..., Any]:
    def attended(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, **options: Any) -> tuple[Tensor, None]:
        return attend(module, q, k, v, mask, options).transpose(1, 2), None

    return attended


def theirs_in_one(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, options: Any) -> Tensor:
    return one_kernel(q, k, v, options.get("dropout", 0.0), options.get("sliding_window"))


def theirs_eager(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, options: Any) -> Tensor:
    """What the model's own file has."""
    written = sys.modules[type(module).__module__].eager_attention_forward
    attended: Tensor = written(module, q, k, v, mask, **options)[0]
    return attended.transpose(1, 2)


AttentionInterface.register("one_kernel", as_transformers(theirs_in_one))
AttentionInterface.register("one_kernel_again", as_transformers(again(theirs_in_one)))
AttentionInterface.register("eager_again", as_transformers(again(theirs_eager)))


class FourBit(torch.autograd.Function):
    """A product with a matrix that is unpacked for it, forward and backward, and kept packed (bitsandbytes)."""

    @staticmethod
    def forward(context: Any, x: Tensor, packed: Any) -> Tensor:
        context.packed = packed
        return F.linear(x, packed.unpack(x.dtype))

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] @ context.packed.unpack(gradients[0].dtype), None


class Packed(nn.Module):
    """A frozen matrix in 4 bits, and a constant for each 64 of them."""

    def __init__(self, frozen: nn.Linear, base: str) -> None:
        super().__init__()
        weight = frozen.weight
        self.sizes = weight.shape
        size = quantized_bytes(weight.numel(), 4, 64, CONSTANTS[base])
        self.packed = nn.Buffer(torch.empty(size, dtype=torch.uint8, device=weight.device))

    def unpack(self, dtype: torch.dtype) -> Tensor:
        return self.packed.new_empty(self.sizes, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_autocast_enabled("cpu"):
            x = x.to(BFLOAT16)
        multiply: Callable[..., Tensor] = FourBit.apply
        return multiply(x, self)


class Adapted(nn.Module):
    """A frozen matrix and beside it two trained ones in float32, of `rank` rows and `rank` columns (Hu et al. 2021)."""

    def __init__(self, frozen: nn.Linear, rank: int, base: str) -> None:
        super().__init__()
        rows, columns = frozen.weight.shape
        self.frozen = Packed(frozen, base) if base in CONSTANTS else frozen
        self.down = nn.Parameter(torch.empty(rank, columns, device=frozen.weight.device))
        self.up = nn.Parameter(torch.empty(rows, rank, device=frozen.weight.device))

    def forward(self, x: Tensor) -> Tensor:
        down, up = (each.to(x.dtype) for each in (self.down, self.up))
        both: Tensor = self.frozen(x) + F.linear(F.linear(x, down), up)
        return both


ADAPTED: dict[
    str, tuple[str, ...]
] = {  # as flops_bytes.memory.layers has them, by the names of this book and of transformers
    "query-value": ("q", "v", "q_proj", "v_proj", "qkv_proj", "q_b_proj", "kv_b_proj")
}
ADAPTED["attention"] = (*ADAPTED["query-value"], "k", "out", "k_proj", "o_proj", "q_a_proj", "kv_a_proj_with_mqa")
ADAPTED["all"] = (*ADAPTED["attention"], "gate", "up", "down", "gate_proj", "up_proj", "down_proj", "gate_up_proj")


def adapt(model: nn.Module, blocks: Any, asked: dict[str, Any]) -> None:
    """Freezes a model and sets adapters beside matrices of its layers; those without may be packed too."""
    model.requires_grad_(False)
    base = asked["base"]
    if asked["checkpointing"] == "per-op":
        raise Uncountable("adapters' matmuls change which of them is every second")
    for block in blocks:
        for module in list(block.modules()):
            for name, linear in list(module.named_children()):
                if isinstance(linear, nn.Linear) and name in ADAPTED[asked["lora_on"]]:
                    setattr(module, name, Adapted(linear, asked["lora"], base))
                elif isinstance(linear, nn.Linear) and base in CONSTANTS:
                    setattr(module, name, Packed(linear, base))


class LowBit(torch.autograd.Function):
    """A product of copies in few bits, each made in one kernel.

    Of factors that are kept in 16 bits and copied again, as torchao's manual_float8_matmul_with_args_in_hp does, whose
    names hold all four copies until it ends; or of copies that are kept: nanochat's turns both round, NVFP4's neither.
    """

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor, form: Format) -> Tensor:
        copies = [in_few_bits(x, form), in_few_bits(weight, form)]
        context.form, context.sizes = form, (x.shape, weight.shape)
        context.save_for_backward(*(copies if form.keeps_copies else (x, weight)))
        return F.linear(x, weight)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        form, of_result = context.form, gradients[0]
        kept = context.saved_tensors
        x, weight = (of_result.new_empty(()).expand(size) for size in context.sizes) if form.keeps_copies else kept
        copies = [in_few_bits(of_result, form)]
        copies += [in_few_bits(weight, form)] if form.peak != "float4" else []
        of_x = of_result @ weight
        copies += [in_few_bits(of_result, form)]
        copies += [in_few_bits(x, form)] if form.peak != "float4" else []
        of_weight = of_result.flatten(0, -2).t() @ (
            of_result.new_empty(()).expand(x[..., 0].numel(), x.shape[-1]) if form.keeps_copies else x.flatten(0, -2)
        )
        return of_x, of_weight, None


def in_few_bits(x: Tensor, form: Format) -> Tensor:
    return torch.empty(x.numel() * form.bits // 32, dtype=torch.uint8, device=x.device)


def low_bit_linear(linear: nn.Linear, form: Format, x: Tensor) -> Tensor:
    multiply: Callable[..., Tensor] = LowBit.apply
    result = multiply(x, linear.weight, form)
    return result if linear.bias is None else result + linear.bias


def multiply_in_few_bits(blocks: Any, form: Format) -> None:
    """All linear modules of the layers."""
    for module in (each for block in blocks for each in block.modules() if isinstance(each, nn.Linear)):
        module.forward = partial(low_bit_linear, module, form)  # type: ignore[method-assign]


class CompiledLoss(torch.autograd.Function):
    """Cross entropy as torch.compile makes it: it keeps the logits as they are, and two numbers a row."""

    @staticmethod
    def forward(context: Any, logits: Tensor, targets: Tensor) -> Tensor:
        rows = logits.new_empty(2, len(logits), dtype=torch.float32)
        context.save_for_backward(logits, targets, rows)
        return rows.sum()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return torch.empty_like(context.saved_tensors[0]), None


class FusedLoss(torch.autograd.Function):
    """Liger's fused linear cross entropy: all gradients in the forward pass, chunk by chunk."""

    @staticmethod
    def forward(context: Any, hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        features, losses = torch.zeros_like(hidden), torch.zeros(len(hidden), device=hidden.device)
        of_weight = torch.zeros_like(weight) if weight.requires_grad else None
        increase = -(-weight.shape[0] // hidden.shape[1])
        size = 1 << (-(-len(hidden) // increase) - 1).bit_length()
        for first in range(0, len(hidden), size):
            piece = hidden[first : first + size]
            logits = piece @ weight.t()  # which its kernel turns into their gradient, in place
            factors: tuple[Tensor, ...] = (logits.t(), piece)
            if logits.dtype == hidden.dtype:
                torch.mm(logits, weight, out=features[first : first + size])
            else:  # under autocast; CPUs do not add a product of 16 bits to float32, so its factors have no bytes here
                features[first : first + size] = logits @ weight
                piece = piece.to(logits.dtype)
                factors = tuple(features.new_empty(()).expand(factor.shape) for factor in factors)
            if of_weight is not None:
                torch.addmm(of_weight, *factors, out=of_weight)
            del logits, factors
        context.save_for_backward(features, of_weight)
        return losses.sum()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        features, of_weight = context.saved_tensors
        return features, of_weight, None


def policies() -> Any:
    """As torchtitan's SelectiveAC: every second mm is made again, all else that PyTorch counts as dear is kept."""
    operations: Any = get_default_op_list().compute_intensive_ops
    dear = {operation.default for operation in operations}
    counts = {True: 0, False: 0}

    def policy(context: Any, operation: Any, *inputs: Any, **named: Any) -> CheckpointPolicy:
        if operation is torch.ops.aten.mm.default:
            counts[context.is_recompute] += 1
            if counts[context.is_recompute] % 2 == 0:
                return CheckpointPolicy.PREFER_RECOMPUTE
        return CheckpointPolicy.MUST_SAVE if operation in dear else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def forget(asked: dict[str, Any], blocks: Any) -> None:
    """Layers that are made again, whole or but for what is kept of them."""
    contexts: dict[str, Any] = {"context_fn": policies} if asked["checkpointing"] == "per-op" else {}
    if asked["checkpointing"] in ("full", "per-op"):
        for block in blocks[:: asked["checkpoint_every"]]:
            block.forward = partial(
                checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False, **contexts
            )


class Made(NamedTuple):
    """A model, and what the step asks of it."""

    model: nn.Module
    hidden: Callable[[Tensor], Tensor]  # what the head sees
    head: Callable[[Tensor], Tensor]
    loss: Callable[[Tensor, Tensor], Tensor]
    weight: Tensor  # the head's


def ours(asked: dict[str, Any], shape: Decoder, device: str) -> Made:
    """This book's modules."""
    gpt2, plain = bool(shape.positions), not (shape.qkv_biases or shape.head_norms or shape.experts > 1)
    same = shape.tied or not gpt2
    if not (plain and same and {gpt2} == {shape.biases, shape.norm_shift, not shape.gated}):
        raise Uncountable("this book has no module of that shape")
    kernel = fused if device == "cuda" else partial(one_kernel, dropout=DROPOUT_SHARE * has_dropout(asked, shape))
    attend = kernel if asked["attention"] == "fused" else eager
    with torch.device(device):
        model = (GPT2 if gpt2 else Llama)(shape, again(attend) if asked["checkpointing"] == "selective" else attend)
    if device == "cpu":
        for norm in (each for each in model.modules() if isinstance(each, RMSNorm)):
            norm.forward = norm_in_one.__get__(norm)  # type: ignore[method-assign]
    if asked["lora"]:
        if gpt2:
            raise Uncountable("GPT-2 makes queries, keys and values with one matrix")
        adapt(model, model.blocks, asked)
    if has_dropout(asked, shape) and gpt2:
        model.blocks[0].register_forward_pre_hook(lambda module, inputs: (dropped(inputs[0]), *inputs[1:]))
        blocks: Any = model.blocks
        for block in blocks:
            for part in (block.out, block.down):
                part.register_forward_hook(lambda module, inputs, output: dropped(output))
    if asked["matmuls"] != "as-recipe":
        multiply_in_few_bits(model.blocks, FORMATS[asked["matmuls"]])
    forget(asked, model.blocks)
    return Made(
        model, model.hidden, model.head, lambda tokens, targets: loss(model, tokens, targets), model.head.weight
    )


def norm_in_one(norm: nn.RMSNorm, x: Tensor) -> Tensor:
    kernel: Callable[..., Tensor] = NormOnMeta.apply
    return kernel(x, norm.weight)


def as_config(shape: Decoder) -> dict[str, Any]:
    """A shape as a configuration of transformers."""
    if shape.positions:
        sizes = {"n_embd": shape.d_model, "n_layer": shape.layers, "n_head": shape.heads, "n_inner": shape.d_ff}
        return {"model_type": "gpt2", "n_positions": shape.positions, "vocab_size": shape.vocab} | sizes
    return {
        "model_type": "mixtral" if shape.experts > 1 else "mistral",
        "hidden_size": shape.d_model,
        "intermediate_size": shape.d_ff,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
        "tie_word_embeddings": shape.tied,
        "num_local_experts": shape.experts,
        "num_experts_per_tok": shape.active_experts,
        "sliding_window": None,
    }


def theirs(asked: dict[str, Any], shape: Decoder, device: str) -> Made:
    """Transformers' modules."""
    told = dict(asked["config"] or as_config(shape))
    kind = told.pop("model_type")
    share = DROPOUT_SHARE * has_dropout(asked, shape)
    told |= dict.fromkeys(
        ("attn_pdrop", "resid_pdrop", "embd_pdrop") if kind == "gpt2" else ("attention_dropout",), share
    )
    if kind == "gpt2" and asked["lora"]:
        raise Uncountable("GPT-2 makes queries, keys and values with one matrix")
    if kind == "mixtral" and (asked["lora"] or asked["recipe"] in IN_FLOAT32):
        raise Uncountable("transformers' experts multiply in 16 bits alone, and have no matrix of their own")
    is_eager = asked["attention"] == "eager"
    attention = "eager" if is_eager else "sdpa" if device == "cuda" else "one_kernel"
    attention += "_again" if asked["checkpointing"] == "selective" else ""
    dtype = torch.float32 if asked["recipe"] in IN_FLOAT32 else BFLOAT16
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(
            CONFIG_MAPPING[kind](**told), attn_implementation=attention, dtype=dtype
        )
    model.train()
    body: Any = model.base_model
    written = sys.modules[type(body).__module__]
    blocks = body.h if kind == "gpt2" else body.layers
    if asked["lora"]:
        adapt(model, blocks, asked)
    if asked["matmuls"] != "as-recipe":
        multiply_in_few_bits(blocks, FORMATS[asked["matmuls"]])
    forget(asked, blocks)

    their_own = written.create_causal_mask

    def masks(**told: Any) -> Tensor | None:
        """One for all layers, as large as eager_mask()'s, which asks what a tensor on meta cannot answer.

        On a card it is their own, to which no positions say that several texts lie in a row.
        """
        if device == "cuda":
            own: Tensor | None = their_own(**told | {"position_ids": None})
            return own
        sizes = asked["micro_batch"], 1, asked["context"], asked["context"]
        return torch.zeros(sizes, dtype=dtype, device=device) if is_eager else None

    def hidden(tokens: Tensor) -> Tensor:
        with patch.object(written, "create_causal_mask", masks):
            found: Tensor = body(input_ids=tokens, use_cache=False).last_hidden_state
        return found

    def missed(tokens: Tensor, targets: Tensor) -> Tensor:
        with patch.object(written, "create_causal_mask", masks):
            found: Tensor = model(input_ids=tokens, labels=targets, use_cache=False).loss
        return found

    head: Any = model.get_output_embeddings()
    return Made(model, hidden, head, missed, head.weight)


class Counted(NamedTuple):
    """What a step takes."""

    peak_bytes: int
    flops: int  # 0 where PyTorch's counter does not know them: experts' products in one kernel


def count(asked: dict[str, Any], shape: Decoder, tracker: bool = False) -> Counted:
    """A step's peak and FLOPs, from options that are read; by PyTorch's memory tracker its peak alone.

    Of several micro-batches the last is counted, which finds gradients of those before it.
    """
    cast = asked["recipe"] in AUTOCAST
    with FakeTensorMode() if cast else nullcontext():
        device = "cpu" if cast else "meta"
        make = theirs if asked["layers"] == "composed" else ours
        made = make(asked, shape, device)
        if not cast:
            for weight in made.model.parameters():  # adapters stay in float32
                if not (asked["lora"] and weight.requires_grad):
                    weight.data = weight.data.to(torch.float32 if asked["recipe"] == "fp32" else BFLOAT16)
        weights = [weight for weight in made.model.parameters() if weight.requires_grad]
        has_masters = asked["recipe"] == "bf16-master" and not asked["lora"]
        masters: list[Tensor] = [weight.detach().float() for weight in weights] if has_masters else list(weights)
        own, updated = None, masters  # and what AdamW updates
        if asked["optimizer"] == "muon":
            own, updated = muon_of(made, weights, masters)
        if asked["optimizer"] == "adafactor":
            own, updated = adafactor_of(masters, asked["update"] == "foreach"), []
        if asked["optimizer"].startswith("paged"):
            moments = []  # in the host's memory
        elif asked["optimizer"] == "adamw-8bit":
            tables = [module for module in made.model.modules() if isinstance(module, nn.Embedding)]
            in_float32 = tables if asked["layers"] == "composed" and not asked["lora"] else []  # Trainer's choice
            wide = sum(table.weight.numel() for table in in_float32)
            size = 8 * wide + quantized_bytes(2 * (sum(master.numel() for master in masters) - wide), 8, 256)
            moments = [torch.empty(size, dtype=torch.uint8, device=device)]
        else:
            moments = [torch.zeros_like(master) for master in updated for _ in range(2)]
        tokens = torch.zeros(asked["micro_batch"], asked["context"], dtype=torch.int64, device=device)
        targets = torch.zeros_like(tokens)
        state = [each for of in own.state.values() for each in of.values() if each.dim()] if own else []
        held = [*made.model.parameters(), *made.model.buffers(), *masters, *moments, *state, tokens, targets]
        trace = Tracker() if tracker else Counter()
        for tensor in held:
            trace.track_external(tensor) if isinstance(trace, Tracker) else trace.hold(tensor.untyped_storage())
        if asked["update"] == "in-backward":  # each gradient goes as soon as AdamW, which works in place, has had it
            for weight in weights:
                weight.register_post_accumulate_grad_hook(lambda weight: setattr(weight, "grad", None))
        with trace, as_on_cuda(asked["layers"] == "fused" and has_dropout(asked, shape)):
            if asked["accumulation"] > 1:
                for weight in weights:
                    weight.grad = torch.empty_like(weight)
            go(made, tokens, targets, asked)
            if has_masters:
                for weight, master in zip(weights, masters, strict=True):
                    master.grad, weight.grad = weight.grad.float(), None  # type: ignore[union-attr]
            # AdamW works in place, but that foreach makes all roots at once (torch.optim's _multi_tensor_adamw)
            flops = trace.flops if isinstance(trace, Counter) else 0
            if asked["update"] == "foreach" and asked["optimizer"] in ("adamw", "muon"):
                torch._foreach_sqrt(moments[1::2])
            if own:
                with patch.object(Tensor, "item", lambda scalar: 1.0):  # which Adafactor asks for
                    own.step()
        if isinstance(trace, Tracker):
            return Counted(trace.get_tracker_snapshot("peak")[torch.device(device)]["Total"], 0)
        is_eager = any(operation.name == "_softmax.default" for operation in trace.operations)
        assert shape.experts > 1 or is_eager == (asked["attention"] == "eager")  # a router has a softmax too
        flops *= asked["accumulation"]
        return Counted(trace.peak_bytes, flops if shape.experts == 1 else 0)


def muon_of(made: Made, weights: Sequence[Tensor], masters: list[Tensor]) -> tuple[torch.optim.Optimizer, list[Tensor]]:
    """torch.optim.Muon with its state, for matrices that are neither tables nor the head, and what is left to AdamW."""
    apart = {id(made.weight)} | {
        id(module.weight) for module in made.model.modules() if isinstance(module, nn.Embedding)
    }
    is_matrix = [weight.dim() == 2 and id(weight) not in apart for weight in weights]
    matrices = [master for master, is_one in zip(masters, is_matrix, strict=True) if is_one]
    others = [master for master, is_one in zip(masters, is_matrix, strict=True) if not is_one]
    muon = torch.optim.Muon(matrices)
    for matrix in matrices:
        muon.state[matrix]["momentum_buffer"] = torch.zeros_like(matrix)
    return muon, others


def adafactor_of(masters: list[Tensor], foreach: bool) -> torch.optim.Optimizer:
    """torch.optim.Adafactor with its state."""
    adafactor = torch.optim.Adafactor(masters, foreach=foreach)
    for each in masters:
        state: dict[str, Tensor] = {"step": torch.tensor(0.0)}
        if each.dim() > 1:
            state |= {"row_var": each.new_zeros(len(each), 1), "col_var": each.new_zeros(1, each.shape[1])}
        else:
            state["variance"] = torch.zeros_like(each)
        adafactor.state[each] = {name: tensor.detach() for name, tensor in state.items()}
    return adafactor


def shifted(logits: Tensor, targets: Tensor) -> Tensor:
    """ForCausalLMLoss of transformers 4.48: each position's logits beside the next one's word."""
    before, words = logits[:, :-1].contiguous(), targets[:, 1:].flatten()
    narrow = torch.is_autocast_enabled("cpu")  # on CUDA autocast makes of them what it does not on a CPU
    return (cross_entropy if narrow else F.cross_entropy)(before.view(-1, logits.shape[-1]), words)


def in_autocast(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A part of the forward pass with a context of its own, since backward passes lie outside (PyTorch's advice)."""

    def cast(*inputs: Tensor) -> Tensor:
        with torch.autocast(inputs[0].device.type, BFLOAT16):
            return function(*inputs)

    return cast


def go(made: Made, tokens: Tensor, targets: Tensor, asked: dict[str, Any]) -> None:
    """Forward and backward."""
    chunks, cast = min(asked["chunks"], tokens.numel()), asked["recipe"] in AUTOCAST
    if chunks > 1:
        if cast:
            made = made._replace(hidden=in_autocast(made.hidden), head=in_autocast(made.head))
        chunked_backward(made, tokens, targets, chunks)  # type: ignore[arg-type]
        return
    names: list[Tensor] = []  # which hold the logits

    def loss_of(tokens: Tensor, targets: Tensor) -> Tensor:
        words = targets.flatten()
        if asked["loss"] == "fused":
            fused: Callable[..., Tensor] = FusedLoss.apply
            return fused(made.hidden(tokens).flatten(0, 1), made.weight, words)
        if asked["loss"] == "compiled":
            compiled: Callable[..., Tensor] = CompiledLoss.apply
            return compiled(made.head(made.hidden(tokens)).flatten(0, 1), words)
        if asked["loss"] == "logits-held":
            names.append(made.head(made.hidden(tokens)))
            return F.cross_entropy(names[0].flatten(0, 1).float(), words)
        if asked["loss"] == "float32-held":
            names.append(made.head(made.hidden(tokens)).float())
            return shifted(names[0], targets)
        if asked["loss"] == "as-logits":
            return shifted(made.head(made.hidden(tokens)), targets)
        if asked["loss"] == "shifted":
            own = made.head(made.hidden(tokens))
            return shifted(own.float(), targets)
        return made.loss(tokens, targets)

    (in_autocast(loss_of) if cast else loss_of)(tokens, targets).backward()
