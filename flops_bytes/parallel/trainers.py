"""How trainers write a model whose layers several ranks share, and what they keep, for flops_bytes.parallel.rank_steps.

Each class is a trainer's model at a commit, its functions those modules with the names that they have there. Symbols as
in flops_bytes.memory.layers, of one tensor rank: b sequences of T tokens, of which it has T/t between matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from flops_bytes.memory.layers import (
    ADAPTED,
    LayerContext,
    ModelFamily,
    Ranks,
    fused_attention,
    gathered,
    laid_out,
    norm,
    scattered,
)
from flops_bytes.memory.own_layers import OWN_LLAMA
from flops_bytes.memory.passes import each_layer, eager_mask, tables
from flops_bytes.memory.step import (
    LOSS,
    StepConfig,
    compiled_loss,
    external_tensor,
    in_chunks,
    layer_context,
    layer_forward,
    logits_of,
    norm_head_and_loss,
)
from flops_bytes.memory.tape import (
    FLOAT32,
    SENT,
    Like,
    Storage,
    Tape,
    Tensor,
    add,
    apply_saving_input,
    cast,
    concatenate,
    dropout,
    like,
    multiply,
    multiply_scalar,
    numel,
    passed_on,
    saved_factors,
    softmax,
    split,
    vector,
    weight,
    weight_matmul,
)
from flops_bytes.model.stack import Attention, Dense, Experts, LatentAttention, Layer, Stack
from flops_bytes.parallel.rank_steps import Modules, Stage, ranks_of, token_ranks


class Torchtitan:
    """PyTorch's modules with DTensor's tensor parallelism, as torchtitan applies it: sequence parallelism between
    matrices, and the loss over logits that stay split."""

    def __init__(self, family: ModelFamily) -> None:
        self.family = family

    def embedding(self, tape: Tape, stage: Stage, config: StepConfig) -> Tensor:
        stack, x = stage.stack, looked_up(tape, stage, config)
        if stack.positions:
            places = vector(tape, "positions", (stack.positions, stack.d_model))
            x = add(tape, x, tape.apply([places], x.shape[1:], config.number_bytes, [], [like(places)]))
        return scattered(end_context(tape, self.family, config), x)

    def layers(self, tape: Tape, stage: Stage, config: StepConfig, x: Tensor) -> Tensor:
        if not stage.stack.layers:
            return x
        cos_sin, mask = tables(tape, stage.stack, self.family, config), eager_mask(tape, self.family, config)
        for place, layer in enumerate(each_layer(stage.stack)):
            tape.moment = f"layer {place}"
            its_mask = None if config.fused else mask
            context = layer_context(tape, self.family, config.of_layers(), tape.moment, cos_sin, its_mask, layer.mixer)
            x = layer_forward(context, x, layer, config.of_layers(), True)
        return x

    def end(self, tape: Tape, stage: Stage, config: StepConfig, x: Tensor) -> Tensor:
        end, is_split = config.of_end(), ranks_of(config).tensor_ranks > 1
        if not is_split and end.chunks == 1:
            return norm_head_and_loss(tape, stage.stack, self.family, end, x)
        context = end_context(tape, self.family, end)
        tape.enter()
        tape.moment = "norm"
        hidden = gathered(context, norm(context, x, "norm"))
        if end.chunks > 1:
            return tape.leave(chunked_loss(tape, stage, end, hidden, split_loss if is_split else None))
        logits = logits_of(tape, stage.stack, hidden)
        if end.loss == "compiled":
            return tape.leave(compiled_loss(tape, logits))
        return tape.leave(split_loss(tape, logits, end.loss != "as-logits"))


def chunked_loss(
    tape: Tape, stage: Stage, config: StepConfig, hidden: Tensor, loss: Callable[[Tape, Tensor], Tensor] | None
) -> Tensor:
    """Head and loss go forward and backward chunk by chunk, before all else goes backward."""
    hidden = tape.keep_to_end(hidden)
    made = tape.record([hidden], [], [like(hidden)])
    if made is not None:
        made.moment = "loss"
        made.backward_fn = lambda tape, operation, gradient: in_chunks(
            tape, stage.stack, config, hidden, config.chunks, loss
        )
    return tape.finish(made, [hidden], tape.new(LOSS, FLOAT32))


def looked_up(tape: Tape, stage: Stage, config: StepConfig) -> Tensor:
    """Rows of the embedding, whose matrix is the head's where they are one."""
    table = vector(tape, "head" if stage.ties else "embedding", (stage.stack.vocab, stage.stack.d_model))
    shape = (config.batch, config.seq_len, stage.stack.d_model)
    return tape.apply([table], shape, config.number_bytes, [], [like(table)])


def end_context(tape: Tape, family: ModelFamily, config: StepConfig) -> LayerContext:
    nothing = external_tensor((0,), 1)
    return layer_context(tape, family, config, "end", (nothing, nothing))


def split_loss(tape: Tape, logits: Tensor, wide: bool = True) -> Tensor:
    """loss_parallel(), of logits that have a name until the loss is there. All is computed in float32, and of 16 bits
    cast back: what is shifted by the largest, its exponentials and the logarithms, which are kept. Backward there are
    the targets' gradient, its sum with the probabilities, and their product
    (torch/distributed/tensor/parallel/loss.py)."""
    tape.enter()
    logits = tape.bind(logits)
    x = tape.bind(cast(tape, logits, FLOAT32)) if wide else logits
    if not wide:
        tape.bind(tape.new(x.shape, FLOAT32))
    tape.bind(tape.new(x.shape, FLOAT32))
    tape.forget(tape.bind(tape.new(x.shape, FLOAT32)))
    kept = tape.bind(tape.new(x.shape, FLOAT32))
    if not wide:
        kept = tape.bind(tape.new(x.shape, x.itemsize))
    made = tape.record([x], [kept], [like(x)], 2 * like(x).total_bytes())
    return tape.leave(tape.finish(made, [x], tape.new(LOSS, FLOAT32)))


class MegatronLM:
    """GPTModel in megatron/core/models/gpt of NVIDIA/Megatron-LM at 23e00ed, with Transformer Engine 2.11's modules and
    sequence parallelism. Products add their weights' gradients to float32 buffers (gradient_accumulation_fusion), and
    give autograd an empty tensor of the weights' size, one for all weights of a shape (get_dummy_wgrad). Norms are one
    kernel, and so is what stands between an expert's matrices (TEGroupedMLP, with moe_permute_fusion)."""

    def __init__(self, family: ModelFamily, loss: str) -> None:
        is_shifted = family.norm_kind == "layer_norm"
        self.kind, self.loss = family if is_shifted else replace(family, norm_kind="kernel"), loss

    def embedding(self, tape: Tape, stage: Stage, config: StepConfig) -> Tensor:
        """VocabParallelEmbedding.forward()."""
        x = looked_up(tape, stage, config)
        return x if ranks_of(config).tensor_ranks == 1 else reduce_scatter(tape, config, x)

    def layers(self, tape: Tape, stage: Stage, config: StepConfig, x: Tensor) -> Tensor:
        if not stage.stack.layers:
            return x
        cos_sin = tables(tape, stage.stack, self.kind, config)
        for place, layer in enumerate(each_layer(stage.stack)):
            tape.moment = f"layer {place}"
            context = layer_context(tape, self.kind, config.of_layers(), tape.moment, cos_sin, None, layer.mixer)
            forward = self.checkpointed if config.checkpointing == "full" else self.layer
            x = forward(context, x, layer, config)
        return x

    def checkpointed(self, context: LayerContext, x: Tensor, layer: Layer, config: StepConfig) -> Tensor:
        """recompute_granularity full, uniform, of one layer."""
        tape = context.tape
        tape.enter()
        x = tape.bind(x)
        return tape.leave(tape.checkpoint(lambda: self.layer(context, x, layer, config), [x]))

    def layer(self, context: LayerContext, x: Tensor, layer: Layer, config: StepConfig) -> Tensor:
        """TransformerLayer.forward(): LayerNorm and the matrix behind it are one module, which keeps what comes to
        both."""
        tape, mixer, mlp, name = context.tape, layer.mixer, layer.mlp, context.name
        tape.enter()
        x = tape.bind(x)
        h = norm(context, x, "first")
        if isinstance(mixer, Attention):
            mixed = megatron_attention(context, config, h, mixer)
        else:
            assert isinstance(mixer, LatentAttention)
            mixed = megatron_latents(context, config, h, mixer)
        y = tape.bind(add(tape, mixed, x))
        h = norm(context, y, "second")
        if isinstance(mlp, Experts):
            change = megatron_experts(tape, config, h, mlp, name)
        else:
            change = megatron_mlp(tape, config, h, mlp.d_ff, 1 + mlp.gated, name)
        return tape.leave(add(tape, change, y))

    def end(self, tape: Tape, stage: Stage, config: StepConfig, x: Tensor) -> Tensor:
        """_postprocess(): of fused cross entropy one kernel makes the gradient of logits where they lie; else they are
        cast to float32, and there are their exponentials."""
        tape.moment = "norm"
        tape.enter()
        hidden = norm(end_context(tape, self.kind, config), x, "norm")
        tape.moment = "head"
        logits = tape.bind(column_linear(tape, config, hidden, "head", stage.stack.vocab, True, True))
        tape.moment = "loss"
        seen = logits if self.loss == "compiled" else cast(tape, logits, FLOAT32)
        made = tape.record([seen], [seen], [Like(seen.shape, seen.itemsize, saved_index=0)])
        return tape.leave(tape.finish(made, [seen], tape.new(LOSS, FLOAT32)))


def megatron_attention(context: LayerContext, config: StepConfig, x: Tensor, mixer: Attention) -> Tensor:
    """SelfAttention.forward(): queries and keys are rotated, values are copied, for Transformer Engine takes none that
    lie apart."""
    tape, name, d = context.tape, context.name, x.shape[-1]
    wide, narrow = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
    tape.enter()
    qkv = tape.bind(column_linear(tape, config, x, f"{name}.qkv", wide + 2 * narrow, True))
    q, k, v = [tape.bind(each) for each in split(tape, qkv, (wide, narrow, narrow))]
    if mixer.head_norms:
        q, k = [
            tape.bind(norm(context, tape.view(each, (*each.shape[:2], -1, mixer.head_dim)), f"{which}_norm"))
            for which, each in (("q", q), ("k", k))
        ]
    turned_q, turned_k = [tape.apply([each], each.shape, each.itemsize, [], [like(each)]) for each in (q, k)]
    of_heads = [
        tape.view(each, (each.shape[0], each.shape[-1] // mixer.head_dim, each.shape[1], mixer.head_dim))
        for each in (turned_q, turned_k, laid_out(tape, v))
    ]
    mixed = fused_attention(context, *of_heads)
    return tape.leave(row_linear(tape, config, mixed, f"{name}.out", d, True))


def megatron_mlp(tape: Tape, config: StepConfig, x: Tensor, d_ff: int, matrices: int, name: str) -> Tensor:
    """MLP.forward(): bias_swiglu_impl() is one kernel, which keeps what comes to it."""
    both = column_linear(tape, config, x, f"{name}.gate_up", matrices * d_ff, True)
    inner = activated(tape, both, d_ff)
    return row_linear(tape, config, inner, f"{name}.down", x.shape[-1], True)


def activated(tape: Tape, x: Tensor, features: int) -> Tensor:
    return tape.apply([x], (*x.shape[:-1], features), x.itemsize, [x], [like(x)])


def own_linear(tape: Tape, config: StepConfig, x: Tensor, name: str, outputs: int) -> Tensor:
    """A matrix that each tensor rank has all of, and multiplies with its own tokens."""
    return column_linear(tape, config._replace(seq_len=x.shape[1], ranks=Ranks()), x, name, outputs, True)


def megatron_latents(context: LayerContext, config: StepConfig, x: Tensor, mixer: LatentAttention) -> Tensor:
    """MLASelfAttention.forward(): latents of own tokens are gathered before the matrices that expand them. Queries are
    rotated in place, keys and values are laid out by one kernel, which keeps nothing (fused_apply_mla_rope_for_kv)."""
    tape, name = context.tape, context.name
    of_key, of_query = mixer.nope_dim + mixer.v_head_dim, mixer.nope_dim + mixer.rope_dim
    tape.enter()
    x = q = tape.bind(x)
    if mixer.q_lora_rank:
        q = norm(context, own_linear(tape, config, x, f"{name}.q_a", mixer.q_lora_rank), "q_norm")
    q = tape.bind(column_linear(tape, config, q, f"{name}.q_b", mixer.heads * of_query, True))
    latents = tape.bind(own_linear(tape, config, x, f"{name}.kv_a", mixer.kv_lora_rank + mixer.rope_dim))
    narrow, key = [tape.bind(each) for each in split(tape, latents, (mixer.kv_lora_rank, mixer.rope_dim))]
    both = column_linear(tape, config, norm(context, narrow, "kv_norm"), f"{name}.kv_b", mixer.heads * of_key, True)
    sizes = mixer.heads * of_query, mixer.heads * mixer.v_head_dim
    joined = tape.bind(
        tape.apply([both, key], (*both.shape[:-1], sum(sizes)), both.itemsize, [], [like(both), like(key)])
    )
    keys, values = [tape.bind(each) for each in split(tape, joined, sizes)]
    of_heads = [
        tape.view(each, (each.shape[0], mixer.heads, each.shape[1], each.shape[-1] // mixer.heads))
        for each in (q, keys, values)
    ]
    mixed = fused_attention(context, *of_heads)
    return tape.leave(row_linear(tape, config, mixed, f"{name}.out", x.shape[-1], True))


def megatron_experts(tape: Tape, config: StepConfig, x: Tensor, mlp: Experts, name: str) -> Tensor:
    """MoELayer.forward(), with MoEAlltoAllTokenDispatcher: tokens are copied once for each of their experts, sent,
    gathered by the ranks that share an expert's matrices, sorted by experts, and all of it back. A token's weights
    multiply between the matrices (weighted_bias_swiglu_impl), so that nothing keeps what comes out of the second."""
    ranks, (batch, tokens, d) = ranks_of(config), x.shape
    rows, copies = batch * tokens, batch * tokens * mlp.active
    together = copies * (1 if ranks.whole_experts else token_ranks(config))
    all_experts = mlp.experts * ranks.expert_ranks
    tape.enter()
    x = tape.bind(x)
    scores = softmax(tape, cast(tape, own_linear(tape, config, x, f"{name}.router", all_experts), FLOAT32))
    tape.bind(scores)
    rows_of_copies = tape.bind(tape.new((rows, 2 * all_experts + 1), 4))  # row_id_map, of 32 bits
    ways = [(copies, d)] * 2 + [(together, d)] * ((together > copies) + (mlp.experts > 1))
    selected = tape.view(x, (rows, d))
    for shape in ways:  # Copied, sent, gathered, sorted.
        selected = tape.apply([selected], shape, x.itemsize, [rows_of_copies], [like(selected)])
    both = grouped_linear(tape, selected, f"{name}.experts.gate_up", mlp.experts, (1 + mlp.gated) * mlp.d_ff)
    found = grouped_linear(tape, activated(tape, both, mlp.d_ff), f"{name}.experts.down", mlp.experts, d)
    for shape in [*reversed(ways[:-1]), (rows, d)]:
        found = tape.apply([found], shape, x.itemsize, [rows_of_copies], [like(found)])
    found = tape.view(found, x.shape)
    if mlp.shared_d_ff:
        own = megatron_mlp(tape, config, x, mlp.shared_d_ff, 2, f"{name}.shared")
        made = tape.record([found, own], [], [passed_on(found), passed_on(own)])  # added in place
        found = tape.finish(made, [found, own], tape.tensor(found.shape, found.itemsize, found.storage))
    return tape.leave(found)


def grouped_linear(tape: Tape, x: Tensor, name: str, experts: int, outputs: int) -> Tensor:
    """TEGroupedLinear: of each expert a matrix, whose gradient is added to its float32 sum."""
    matrix = weight(tape, name, (experts, x.shape[-1], outputs))
    made = tape.record_product([x, matrix], saved_factors(x, matrix), [like(x), None], "matrices", 1)
    result = tape.matmul_result((x.shape[0], outputs), x.itemsize, True, "matrices", 1)
    return tape.finish(made, [x, matrix], result)


class Nanotron:
    """LlamaForTraining in src/nanotron/models/llama.py of huggingface/nanotron at 2411b02, with tp_mode REDUCE_SCATTER,
    asynchronous, what tensor ranks gather gathered again (tp_recompute_allgather). It gathers into two buffers that
    stay (MemoryBuffer)."""

    family = OWN_LLAMA

    def embedding(self, tape: Tape, stage: Stage, config: StepConfig) -> Tensor:
        """TensorParallelEmbedding.forward()."""
        x = looked_up(tape, stage, config)
        if ranks_of(config).tensor_ranks == 1:
            return x
        tape.enter()
        mask = tape.bind(tape.new(x.shape[:-1], 1))
        made = tape.record([x], [mask], [like(x)])
        x = tape.bind(tape.finish(made, [x], tape.new(x.shape, x.itemsize)))
        return tape.leave(reduce_scatter(tape, config, x))

    def layers(self, tape: Tape, stage: Stage, config: StepConfig, x: Tensor) -> Tensor:
        for place, layer in enumerate(each_layer(stage.stack)):
            tape.moment = f"layer {place}"
            x = self.layer(tape, config, x, layer, tape.moment)
        return x

    def layer(self, tape: Tape, config: StepConfig, x: Tensor, layer: Layer, name: str) -> Tensor:
        """LlamaDecoderLayer._core_forward(), whose `output` holds what attention gave until it ends."""
        mixer, mlp = layer.mixer, layer.mlp
        assert isinstance(mixer, Attention) and isinstance(mlp, Dense)
        nothing = external_tensor((0,), 1)
        context = layer_context(tape, self.family, config, name, (nothing, nothing))
        tape.enter()
        x = tape.bind(x)
        h = tape.bind(norm(context, x, "first"))
        output = tape.bind(nanotron_attention(tape, config, h, mixer, name))
        tape.forget(h)
        y = tape.bind(add(tape, output, x))
        h = tape.bind(norm(context, y, "second"))
        change = tape.bind(nanotron_mlp(tape, config, h, mlp.d_ff, name))
        return tape.leave(add(tape, change, y))

    def end(self, tape: Tape, stage: Stage, config: StepConfig, x: Tensor) -> Tensor:
        """forward_with_hidden_states() from final_layer_norm on, and Loss.forward()."""
        tape.moment = "norm"
        tape.enter()
        hidden = tape.bind(norm(end_context(tape, self.family, config), x, "norm"))
        tape.moment = "head"
        logits = tape.bind(column_linear(tape, config, hidden, "head", stage.stack.vocab))
        tape.moment = "loss"
        wide = tape.leave(cast(tape, logits, FLOAT32))
        tape.enter()
        wide = tape.bind(wide)
        softmax = tape.bind(tape.new(wide.shape, FLOAT32))  # What is its gradient's, in the end.
        made = tape.record([wide], [softmax], [Like(wide.shape, FLOAT32, saved_index=0)])
        return tape.leave(tape.finish(made, [wide], tape.new(LOSS, FLOAT32)))


def nanotron_attention(tape: Tape, config: StepConfig, x: Tensor, mixer: Attention, name: str) -> Tensor:
    """CausalSelfAttention.forward(): queries, keys and values are copied sequence by sequence, then keys and values
    once more into one tensor, head by head, in which the keys are rotated in place (flash_attn's RotaryEmbedding)."""
    wide, narrow = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
    tape.enter()
    qkv = tape.bind(column_linear(tape, config, x, f"{name}.qkv", wide + 2 * narrow))
    q, k, v = [tape.bind(each) for each in split(tape, laid_out(tape, qkv), (wide, narrow, narrow))]
    joined = tape.bind(concatenate(tape, [k, v]))
    pairs = tape.bind(laid_out(tape, joined))
    tape.forget(joined)
    turned = tape.bind(tape.apply([q], q.shape, q.itemsize, [], [like(q)], like(q).total_bytes()))
    keys, values = [tape.bind(each) for each in split(tape, pairs, (narrow, narrow))]
    mixed = flash_attention(tape, turned, keys, values, mixer.heads)
    return tape.leave(row_linear(tape, config, mixed, f"{name}.out", x.shape[-1]))


def flash_attention(tape: Tape, q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """flash_attn_varlen_func(): backward it sums the queries' gradients in float32."""
    sums = tape.new((q.shape[0], heads, q.shape[1]), FLOAT32)
    made_of = [q, k, v]
    result = tape.new(q.shape, q.itemsize)
    made = tape.record(made_of, [*made_of, result, sums], [like(each) for each in made_of], FLOAT32 * numel(q.shape))
    tape.let_go(sums)
    return tape.finish(made, made_of, result)


def nanotron_mlp(tape: Tape, config: StepConfig, x: Tensor, d_ff: int, name: str) -> Tensor:
    """MLP.forward()."""
    tape.enter()
    merged = tape.bind(column_linear(tape, config, x, f"{name}.gate_up", 2 * d_ff))
    gate, up = [tape.bind(each) for each in split(tape, merged, (d_ff, d_ff))]
    product = multiply(tape, apply_saving_input(tape, gate), up)
    return tape.leave(row_linear(tape, config, product, f"{name}.down", x.shape[-1]))


def column_linear(
    tape: Tape,
    config: StepConfig,
    x: Tensor,
    name: str,
    outputs: int,
    fuses_gradients: bool = False,
    gives_empty: bool = False,
) -> Tensor:
    """A matrix that tensor ranks share by its outputs: it keeps a rank's own tokens, and gathers all of them before
    each product; of the gradient of all it sends the sums. nanotron gathers into a buffer that stays
    (_ColumnLinearAsyncCommunication); who `fuses_gradients` adds weights' elsewhere, and gathers into a new tensor
    (_LayerNormLinear in transformer_engine/pytorch/module/layernorm_linear.py), or of a head `gives_empty` ones
    (LinearWithGradAccumulationAndAsyncCommunication in megatron/core/tensor_parallel/layers.py)."""
    tensor = token_ranks(config)
    matrix = weight(tape, name, (outputs, x.shape[-1]))
    of_matrix = None if fuses_gradients else Like(matrix.shape, matrix.itemsize, as_view=True)
    is_trained = matrix.grad_fn is not None
    tape.enter()
    x = tape.bind(x)
    whole = 0 if tensor == 1 else like(x).total_bytes() * tensor
    temporary = (1 + (fuses_gradients and is_trained)) * whole + (gives_empty and is_trained) * like(
        matrix
    ).total_bytes()
    made = tape.record_product([x, matrix], saved_factors(x, matrix), [like(x), of_matrix], "matrices", 1, temporary)
    if made is not None and tensor > 1:
        made.line = SENT  # What it makes backward.
    if fuses_gradients:
        tape.bind(tape.new((whole,), 1))
    result = tape.matmul_result((x.shape[0], config.seq_len, outputs), x.itemsize, True, "matrices", 1)
    return tape.leave(with_adapter(tape, config, x, name, tape.finish(made, [x, matrix], result), False))


def row_linear(
    tape: Tape, config: StepConfig, x: Tensor, name: str, outputs: int, fuses_gradients: bool = False
) -> Tensor:
    """One that they share by its inputs: all tokens' results are there before their sums are scattered."""
    tensor = token_ranks(config)
    matrix = weight(tape, name, (outputs, x.shape[-1]))
    of_matrix = None if fuses_gradients else Like(matrix.shape, matrix.itemsize, as_view=True)
    own = (x.shape[0], x.shape[1] // tensor, outputs)
    tape.enter()
    x = tape.bind(x)
    gathered_bytes = like(x).total_bytes() // x.shape[-1] * outputs if fuses_gradients and tensor > 1 else 0
    factors = saved_factors(x, matrix)
    made = tape.record_product([x, matrix], factors, [like(x), of_matrix], "matrices", 1, gathered_bytes)
    if tensor > 1:
        sum_of_all = Storage(numel(x.shape[:-1]) * outputs * x.itemsize, SENT)
        tape.bind(tape.tensor((*x.shape[:-1], outputs), x.itemsize, sum_of_all))
    result = tape.matmul_result(own, x.itemsize, True, "matrices", 1)
    return tape.leave(with_adapter(tape, config, x, name, tape.finish(made, [x, matrix], result), True))


def with_adapter(tape: Tape, config: StepConfig, x: Tensor, name: str, result: Tensor, shares_inputs: bool) -> Tensor:
    """ParallelLinearAdapter in src/megatron/bridge/peft/utils.py of NVIDIA-NeMo/Megatron-Bridge at 067f987, of numbers
    as wide as the model's, beside a matrix of Megatron's. What is gathered for the matrix is kept for the adapter's
    first, which ranks share as the matrix, by outputs or inputs; its second they share by outputs, and gather what it
    makes of a row's."""
    adapters, tensor = config.adapters, token_ranks(config)
    if adapters is None or name.rpartition(".")[2] not in ADAPTED[adapters.target_modules]:
        return result
    own = tape.bind(result)
    batch, features = own.shape[0], own.shape[-1]
    if not shares_inputs and tensor > 1:
        x = tape.apply(
            [x], (batch, config.seq_len, x.shape[-1]), x.itemsize, [], [like(x)], like(x).total_bytes() * tensor
        )
    x = dropout(tape, x) if adapters.drops_out_inputs else x
    rows = adapters.rank if shares_inputs else -(-adapters.rank // tensor)
    columns = -(-features // tensor) if shares_inputs else features
    down = tape.leaf(f"{name}.down", (rows, x.shape[-1]), x.itemsize)
    narrow = weight_matmul(tape, [x, down], (*x.shape[:-1], adapters.rank), False)
    up = tape.leaf(f"{name}.up", (columns, adapters.rank), x.itemsize)
    made = weight_matmul(tape, [narrow, up], (batch, config.seq_len, features), False)
    if shares_inputs and tensor > 1:
        made = tape.apply([made], own.shape, own.itemsize, [], [like(made)])
    return add(tape, own, multiply_scalar(tape, made))


def reduce_scatter(tape: Tape, config: StepConfig, x: Tensor) -> Tensor:
    """differentiable_reduce_scatter_sum()."""
    own = (x.shape[0], x.shape[1] // ranks_of(config).tensor_ranks, x.shape[2])
    return tape.apply([x], own, x.itemsize, [], [like(x)])


# What a layer can be made of; torchtitan's can be all that the planner knows.
WRITTEN: dict[str, tuple[type, ...]] = {
    "megatron-lm": (Attention, LatentAttention, Dense, Experts),
    "nanotron": (Attention, Dense),
}


def is_written(trainer: str, stack: Stack) -> bool:
    """Whether the trainer's modules are derived for all of these layers."""
    parts = [part for layer, _ in stack.layers for part in (layer.mixer, layer.mlp)]
    return trainer not in WRITTEN or all(isinstance(part, WRITTEN[trainer]) for part in parts)


@cache
def modules_of(trainer: str, family: ModelFamily, loss: str) -> Modules:
    """One object for all that is alike, by which passes are cached."""
    if trainer == "megatron-lm":
        return MegatronLM(family, loss)
    return Nanotron() if trainer == "nanotron" else Torchtitan(family)
