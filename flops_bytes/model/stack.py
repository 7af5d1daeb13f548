"""A decoder whose layers differ: experts, latent and linear attention, windows. Numbers in, numbers out, Python alone.

It is a list of layers with how many there are of each, a layer is a mixer (which lets tokens see each other) and an
MLP. All of these say what matrices they have; parameters and FLOPs of products follow. What a mixer does without
weights, and what it keeps of tokens that have gone by, is its own. `Decoder` is the simple case: layers all alike.

Symbols: b sequences of T tokens; layers of width d; H query heads and G key-value heads of Q features; V tokens in the
vocabulary. A FLOP is an addition or a multiplication; only matrix products are counted.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from flops_bytes.model.shapes import Decoder


class Matrix(NamedTuple):
    """A matrix of weights, or several of one shape."""

    part: str  # The key under which parameters() and forward_flops() count it.
    inputs: int
    outputs: int
    biased: bool = False
    per_layer: int = 1  # A layer has so many of these matrices.
    per_token: int = 1  # One token is multiplied by so many of them.

    def parameters(self, active: bool = False) -> int:
        return (self.per_token if active else self.per_layer) * (self.inputs + self.biased) * self.outputs

    def flops(self, tokens: int) -> int:
        return 2 * tokens * self.per_token * self.inputs * self.outputs


def causal_pairs(tokens: int) -> int:
    return tokens * (tokens + 1) // 2


def pairs(seq_len: int, window: int = 0, chunked: bool = False, causal: bool = True) -> int:
    """Pairs of tokens between which there is a score.

    A token attends to `window` tokens, itself the last of them, or with 0 to all before it; if `chunked`, to those of
    its own chunk of so many. Not `causal`: as papers count, with as many tokens whether they come before it or not.

    >>> pairs(1_024, causal=False), pairs(1_024), pairs(1_024, window=256)
    (1048576, 524800, 229504)
    """
    if not window or window >= seq_len:
        return causal_pairs(seq_len) if causal else seq_len**2
    if chunked:
        whole, rest = divmod(seq_len, window)
        return whole * causal_pairs(window) + causal_pairs(rest) if causal else whole * window**2 + rest**2
    return causal_pairs(window) + (seq_len - window) * window if causal else seq_len * window


@dataclass(frozen=True)
class Attention:
    """Softmax attention, over all tokens before, or over those within reach."""

    heads: int  # H
    kv_heads: int  # G
    head_dim: int  # Q
    window: int = 0  # A token attends to so many tokens, itself among them; 0 means all.
    chunked: bool = False  # The window is a chunk, and a token attends within its own (Llama 4).
    biases: bool = False  # Queries, keys and values have biases.
    out_bias: bool = False
    gated: bool = False  # A gate as wide as the queries multiplies the result (Qwen3-Next).
    head_norms: bool = False  # QK-norm: each head's queries and keys have an RMSNorm of Q features.
    norms_over_heads: bool = False  # QK-norm over all heads at once (OLMo 2).
    sinks: bool = False  # Attention sinks: each head has a score that stands for no token (gpt-oss).
    k_eq_v: bool = False  # Keys and values are made by one matrix (Gemma 4's attention_k_eq_v).

    def matrices(self, d: int) -> list[Matrix]:
        wide, narrow = self.heads * self.head_dim, self.kv_heads * self.head_dim
        outputs = wide * (1 + self.gated) + narrow * (1 if self.k_eq_v else 2)
        return [Matrix("attention", d, outputs, self.biases), Matrix("attention", wide, d, self.out_bias)]

    def vectors(self) -> int:
        """Parameters that are in no matrix: norms, and sinks."""
        normed = 2 * self.head_norms + (self.heads + self.kv_heads) * self.norms_over_heads
        return normed * self.head_dim + self.heads * self.sinks

    def mixing_flops(self, seq_len: int, causal: bool) -> dict[str, int]:
        """FLOPs of a sequence in matmuls without weights: scores, and their products with values."""
        each = 2 * pairs(seq_len, self.window, self.chunked, causal) * self.heads * self.head_dim
        return {"scores": each, "values": each}

    def attended_tokens(self, context: int) -> int:
        """How many of `context` tokens the last one attends to; in chunks, when its chunk is fullest."""
        return min(context, self.window) if self.window else context

    def step_flops(self, context: int, absorbed: bool = True) -> int:
        """FLOPs of a decoding step's new token in matmuls without weights: it attends to `context` tokens."""
        return 4 * self.attended_tokens(context) * self.heads * self.head_dim

    def cached_numbers(self, tokens: int) -> int:
        """Numbers that the cache holds of so many tokens: keys and values, with a window at most those that fill it."""
        return 2 * self.attended_tokens(tokens) * self.kv_heads * self.head_dim

    def cached_numbers_read(self, context: int) -> int:
        """Numbers of the cache that a decoding step reads."""
        return self.cached_numbers(context)

    def state_bytes(self, width: int) -> int:
        return 0

    def with_shared_heads(self, gpus: int) -> "Attention":
        """The attention that tensor-parallel GPUs hold together: each has at least one key-value head."""
        return replace(self, kv_heads=gpus * -(-self.kv_heads // gpus))


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention: keys and values are made of a few numbers a token, and only these are kept.

    DeepSeek-V2 (arXiv 2405.04434), section 2.1. In training the latent is expanded to the keys and values of all heads.
    When decoding, the matrix that expands it can be absorbed: queries go through its transpose, and scores and values
    are of latents, so that nothing is expanded.

    DeepSeek-V3.2 (arXiv 2512.02556) has a layer attend to `index_topk` tokens alone. An indexer chooses them by
    scores of a few narrow heads with one more key of each token, which is kept too. In GLM-5.2 some layers take the
    choice of an earlier one.
    """

    heads: int
    q_lora_rank: int  # Features of the queries' latent; 0 means that they have none.
    kv_lora_rank: int  # Features of the latent of keys and values.
    nope_dim: int  # Features of a key without RoPE (qk_nope_head_dim).
    rope_dim: int  # Features with RoPE (qk_rope_head_dim), which all heads share.
    v_head_dim: int
    biases: bool = False  # The matrices that make latents have biases, and the output's.
    cache_copies: int = 1  # GPUs that share the heads each hold the whole cache.
    index_topk: int = 0  # A token attends to so many tokens, which the indexer chooses; 0 means all.
    index_heads: int = 0  # The indexer's heads; with 0 the layer takes the choice of an earlier one.
    index_dim: int = 0

    def expand(self) -> Matrix:
        return Matrix("attention", self.kv_lora_rank, self.heads * (self.nope_dim + self.v_head_dim))

    def matrices(self, d: int) -> list[Matrix]:
        wide = self.heads * (self.nope_dim + self.rope_dim)
        queries = [Matrix("attention", d, wide)]
        if self.q_lora_rank:
            queries = [
                Matrix("attention", d, self.q_lora_rank, self.biases),
                Matrix("attention", self.q_lora_rank, wide),
            ]
        latent = Matrix("attention", d, self.kv_lora_rank + self.rope_dim, self.biases)
        out = Matrix("attention", self.heads * self.v_head_dim, d, self.biases)
        return [*queries, latent, self.expand(), out, *self.indexer(d)]

    def indexer(self, d: int) -> list[Matrix]:
        """The indexer's matrices: of its queries, of its key, and of the weights by which its heads are summed."""
        if not self.index_heads:
            return []
        queries = Matrix("indexer", self.q_lora_rank, self.index_heads * self.index_dim)
        return [queries, Matrix("indexer", d, self.index_dim), Matrix("indexer", d, self.index_heads)]

    def vectors(self) -> int:
        # These are norms. The indexer's key has a LayerNorm, which has two vectors.
        return self.q_lora_rank + self.kv_lora_rank + 2 * self.index_dim

    def mixing_flops(self, seq_len: int, causal: bool) -> dict[str, int]:
        each = 2 * pairs(seq_len, self.index_topk, causal=causal) * self.heads
        index = 2 * pairs(seq_len, causal=causal) * self.index_heads * (self.index_dim + 1)
        return {"scores": each * (self.nope_dim + self.rope_dim), "values": each * self.v_head_dim, "index": index}

    def attended_tokens(self, context: int) -> int:
        return min(context, self.index_topk) if self.index_topk else context

    def step_flops(self, context: int, absorbed: bool = True) -> int:
        """FLOPs as for Attention. If not `absorbed`, the latents of all earlier tokens are expanded again, as
        transformers does it."""
        index = 2 * context * self.index_heads * (self.index_dim + 1)
        if absorbed:
            return index + 2 * self.attended_tokens(context) * self.heads * (2 * self.kv_lora_rank + self.rope_dim)
        each = 2 * self.attended_tokens(context) * self.heads * (self.nope_dim + self.rope_dim + self.v_head_dim)
        return index + each + self.expand().flops(context - 1)

    def cached_numbers(self, tokens: int) -> int:
        """Numbers that the cache holds: the latent, the key with RoPE, which all heads share, and the indexer's key."""
        return self.cache_copies * tokens * (self.kv_lora_rank + self.rope_dim + self.index_dim)

    def cached_numbers_read(self, context: int) -> int:
        """Numbers of the cache that a decoding step reads: all keys of the indexer, and the latents that it chooses."""
        return self.cache_copies * (
            self.attended_tokens(context) * (self.kv_lora_rank + self.rope_dim) + context * self.index_dim
        )

    def expanded_numbers(self, tokens: int) -> int:
        """Numbers of a cache of keys and values themselves, as engines without latent attention keep it."""
        return tokens * (self.heads * (self.nope_dim + self.rope_dim + self.v_head_dim) + self.index_dim)

    def state_bytes(self, width: int) -> int:
        return 0

    def with_shared_heads(self, gpus: int) -> "LatentAttention":
        """Each GPU holds all latents, since every head needs them."""
        return replace(self, cache_copies=gpus)


CHUNK = 64  # Tokens of a chunk in flash-linear-attention's kernels and in transformers' own code.


@dataclass(frozen=True)
class GatedDelta:
    """Linear attention by the gated delta rule: a state of k × v features a head, whatever the number of tokens.

    Gated DeltaNet (Yang et al., arXiv 2412.06464) in Qwen3-Next and Qwen3.5; Kimi Delta Attention (arXiv 2510.26692)
    has a decay for each feature of a key (`decay_per_feature`), made by two narrow matrices; two others make its gate.
    """

    key_heads: int
    value_heads: int  # Each value head has a state.
    key_dim: int
    value_dim: int
    conv_kernel_size: int  # The convolution of a feature reaches over so many tokens.
    decay_per_feature: bool = False

    def channels(self) -> int:
        """Features of queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def matrices(self, d: int) -> list[Matrix]:
        wide = self.value_heads * self.value_dim
        conv = Matrix("convolution", self.conv_kernel_size, self.channels())
        out = Matrix("attention", wide, d)
        if self.decay_per_feature:
            # One is the decay's, one the gate's.
            narrow = Matrix("attention", d, self.value_dim, per_layer=2, per_token=2)
            widened = Matrix("attention", self.value_dim, wide, per_layer=2, per_token=2)
            return [Matrix("attention", d, self.channels() + self.value_heads), narrow, widened, conv, out]
        # Beside queries, keys and values there are the gate, and two numbers a head: how fast it forgets, how much it
        # learns.
        return [Matrix("attention", d, self.channels() + wide + 2 * self.value_heads), conv, out]

    def vectors(self) -> int:
        """The norm of a head's result; of the decay a factor a head, and a bias a head, or a feature."""
        return self.value_dim + self.value_heads + self.value_heads * (self.value_dim if self.decay_per_feature else 1)

    def mixing_flops(self, seq_len: int, causal: bool) -> dict[str, int]:
        """In chunks, the last of them padded: within one, scores of keys with keys and with queries, the inverse of the
        first times keys and values, the second times values; between chunks, three products with the state.

        The inverse itself, a triangular system of the size of a chunk, is left out.
        """
        tokens = -(-seq_len // CHUNK) * CHUNK
        k, v = self.key_dim, self.value_dim
        within = 2 * CHUNK * (2 * k + (k + v) + v)
        return {"state": tokens * self.value_heads * (within + 3 * 2 * k * v)}

    def step_flops(self, context: int, absorbed: bool = True) -> int:
        """The state is read with the key, updated, and read with the query: three products of k × v a head."""
        return 3 * 2 * self.value_heads * self.key_dim * self.value_dim

    def cached_numbers(self, tokens: int) -> int:
        return 0

    def cached_numbers_read(self, context: int) -> int:
        return 0

    def state_bytes(self, width: int) -> int:
        """Of a sequence of any length: the state in float32, and the convolution's last inputs."""
        return 4 * self.value_heads * self.key_dim * self.value_dim + width * self.channels() * self.conv_kernel_size

    def with_shared_heads(self, gpus: int) -> "GatedDelta":
        return self


@dataclass(frozen=True)
class Dense:
    """An MLP that each token goes through."""

    d_ff: int  # f
    biases: bool = False
    gated: bool = True  # A gated MLP has one more matrix (SwiGLU).
    activation_parameters: int = 0  # The activation function has so many parameters (Apertus).

    def matrices(self, d: int) -> list[Matrix]:
        ups = Matrix("mlp", d, self.d_ff, self.biases, per_layer=1 + self.gated, per_token=1 + self.gated)
        activation = [Matrix("mlp", 0, self.activation_parameters, biased=True)] if self.activation_parameters else []
        return [ups, Matrix("mlp", self.d_ff, d, self.biases), *activation]

    def active_d_ff(self) -> int:
        """Inner features that a token goes through."""
        return self.d_ff


@dataclass(frozen=True)
class Experts:
    """Many MLPs, of which a router sends each token to a few; and one beside them for all tokens, if it is there."""

    experts: int
    active: int
    d_ff: int  # The inner width of one expert is f.
    shared_d_ff: int = 0  # The inner width of all shared experts together.
    shared_gate: bool = False  # A gate of one number multiplies the shared expert's result (Qwen).
    biases: bool = False
    router_bias: bool = False
    # The router has a vector that scales its input, and a number for each expert (Gemma 4).
    router_scales: bool = False
    gated: bool = True  # A gated MLP has one more matrix (SwiGLU).

    def matrices(self, d: int) -> list[Matrix]:
        ups = 1 + self.gated
        each = [
            Matrix("experts", d, self.d_ff, self.biases, ups * self.experts, ups * self.active),
            Matrix("experts", self.d_ff, d, self.biases, self.experts, self.active),
            Matrix("router", d, self.experts, self.router_bias),
        ]
        if self.shared_d_ff:
            shared = Dense(self.shared_d_ff).matrices(d)
            each += [matrix._replace(part="shared_experts") for matrix in shared]
        scales = [Matrix("router", 0, d, biased=True), Matrix("router", 0, self.experts, biased=True)]
        return each + ([Matrix("router", d, 1)] if self.shared_gate else []) + (scales if self.router_scales else [])

    def active_d_ff(self) -> int:
        return self.active * self.d_ff + self.shared_d_ff


Mixer = Attention | LatentAttention | GatedDelta


@dataclass(frozen=True)
class Layer:
    mixer: Mixer
    mlp: Dense | Experts
    norms: int = 2  # A layer has so many norms of d features.


@dataclass(frozen=True)
class Stack:
    """A decoder: an embedding, layers, a norm and a head. `read_stack` reads one from a config.json.

    >>> from flops_bytes.model.shapes import GPT2_SMALL
    >>> model = stack_of(GPT2_SMALL)
    >>> model.depth, sum(parameters(model).values())
    (12, 124439808)
    """

    d_model: int  # d
    vocab: int  # V
    layers: tuple[tuple[Layer, int], ...]  # Each kind of layer stands with how many there are.
    tied: bool = False  # The head's matrix is the embedding's.
    mtp_layers: int = 0  # Multi-token prediction adds so many layers, which predict tokens after the next.
    positions: int = 0  # Learned position embeddings; 0 means RoPE, which has no parameters.
    norm_shift: bool = False  # LayerNorm has a second vector, RMSNorm has not.

    @property
    def depth(self) -> int:
        return sum(times for _, times in self.layers)

    def mixers(self) -> Iterator[tuple[Mixer, int]]:
        return ((layer.mixer, times) for layer, times in self.layers)


def stack_of(shape: Decoder) -> Stack:
    """A decoder whose layers are all alike, as a stack.

    >>> from flops_bytes.model.shapes import LLAMA_3_8B
    >>> sum(parameters(stack_of(LLAMA_3_8B)).values())
    8030261248
    """
    mixer = Attention(
        shape.heads,
        shape.kv_heads,
        shape.head_dim,
        biases=shape.biases or shape.qkv_biases,
        out_bias=shape.biases,
        head_norms=shape.head_norms,
    )
    mlp: Dense | Experts = Dense(shape.d_ff, shape.biases, shape.gated)
    if shape.experts > 1:
        mlp = Experts(shape.experts, shape.active_experts, shape.d_ff, biases=shape.biases, gated=shape.gated)
    layers = ((Layer(mixer, mlp), shape.layers),)
    return Stack(shape.d_model, shape.vocab, layers, shape.tied, positions=shape.positions, norm_shift=shape.norm_shift)


def as_decoder(stack: Stack) -> Decoder | None:
    """The same as a decoder whose layers are all alike, if it is one; windows are not said there."""
    (layer, layers), *others = stack.layers
    mixer, mlp = layer.mixer, layer.mlp
    if others or stack.mtp_layers or layer.norms != 2 or not isinstance(mixer, Attention):
        return None
    if mixer.gated or mixer.norms_over_heads or mixer.sinks or mixer.k_eq_v or mixer.chunked:
        return None
    is_plain = (
        not (mlp.shared_d_ff or mlp.router_bias or mlp.router_scales)
        if isinstance(mlp, Experts)
        else not mlp.activation_parameters
    )
    if not is_plain or mixer.out_bias != mlp.biases or (mlp.biases and not mixer.biases):
        return None
    return Decoder(
        layers=layers,
        d_model=stack.d_model,
        heads=mixer.heads,
        kv_heads=mixer.kv_heads,
        head_dim=mixer.head_dim,
        d_ff=mlp.d_ff,
        vocab=stack.vocab,
        positions=stack.positions,
        tied=stack.tied,
        gated=mlp.gated,
        biases=mlp.biases,
        norm_shift=stack.norm_shift,
        experts=mlp.experts if isinstance(mlp, Experts) else 1,
        active_experts=mlp.active if isinstance(mlp, Experts) else 1,
        qkv_biases=mixer.biases and not mlp.biases,
        head_norms=mixer.head_norms,
    )


def layer_counts(layers: Iterable[Layer]) -> tuple[tuple[Layer, int], ...]:
    """Each kind of layer with how many there are, as Stack.layers has them."""
    return tuple(Counter(layers).items())


def with_shared_heads(stack: Stack, gpus: int) -> Stack:
    """The model that tensor-parallel GPUs hold together, with what each of them repeats."""
    layers = ((replace(layer, mixer=layer.mixer.with_shared_heads(gpus)), times) for layer, times in stack.layers)
    return replace(stack, layers=tuple(layers))


def matrices(stack: Stack, layer: Layer) -> list[Matrix]:
    return layer.mixer.matrices(stack.d_model) + layer.mlp.matrices(stack.d_model)


PARTS = ("attention", "indexer", "convolution", "mlp", "experts", "shared_experts", "router")


def parameters(stack: Stack, active: bool = False) -> dict[str, int]:
    """Parameters by component; with `active`, those that one token passes through. Without predicting layers.

    >>> from flops_bytes.model.shapes import MIXTRAL_8X7B
    >>> model = stack_of(MIXTRAL_8X7B)
    >>> sum(parameters(model).values()), sum(parameters(model, active=True).values())
    (46702792704, 12879925248)
    """
    d = stack.d_model
    of_parts = dict.fromkeys(PARTS, 0)
    vectors = d  # The last norm has d parameters.
    for layer, times in stack.layers:
        vectors += times * (layer.norms * d + layer.mixer.vectors())
        for matrix in matrices(stack, layer):
            of_parts[matrix.part] += times * matrix.parameters(active)
    ends = {"embedding": stack.vocab * d, "head": 0 if stack.tied else stack.vocab * d}
    if stack.norm_shift:
        vectors += (1 + sum(times * layer.norms for layer, times in stack.layers)) * d
    ends |= {"positions": stack.positions * d} if stack.positions else {}
    return {part: count for part, count in of_parts.items() if count} | {"norms": vectors} | ends


def four_bit_parameters(stack: Stack) -> int:
    """Parameters that a base in 4 bits stores in 4 bits: all matrices of the layers but routers.

    >>> from flops_bytes.model.shapes import LLAMA_3_8B
    >>> four_bit_parameters(stack_of(LLAMA_3_8B))
    6979321856
    """
    return sum(
        times * matrix.per_layer * matrix.inputs * matrix.outputs
        for layer, times in stack.layers
        for matrix in matrices(stack, layer)
        if matrix.part != "router"
    )


def largest_layer_parameters(stack: Stack) -> int:
    """Parameters of the largest layer, with all of its experts: ZeRO-3 gathers a layer as a whole.

    >>> from flops_bytes.model.shapes import LLAMA_3_8B
    >>> largest_layer_parameters(stack_of(LLAMA_3_8B))
    218112000
    """
    of_norm = stack.d_model * (1 + stack.norm_shift)
    return max(
        sum(matrix.parameters() for matrix in matrices(stack, layer)) + layer.norms * of_norm + layer.mixer.vectors()
        for layer, _ in stack.layers
    )


def mtp_parameters(stack: Stack, active: bool = False) -> int:
    """Parameters of the layers that predict further tokens.

    Each is as the last layer, with a matrix that joins two vectors, their two norms and one more. Embedding and head
    are the model's own (DeepSeek-V3, arXiv 2412.19437, section 2.2).
    """
    if not stack.mtp_layers:
        return 0
    d, (layer, _) = stack.d_model, stack.layers[-1]
    of_layer = sum(matrix.parameters(active) for matrix in matrices(stack, layer))
    return stack.mtp_layers * (2 * d * d + 3 * d + of_layer + layer.norms * d + layer.mixer.vectors())


def forward_flops(stack: Stack, seq_len: int, batch: int = 1, causal: bool = False) -> dict[str, int]:
    """FLOPs of a forward pass by component: scores between all pairs of tokens, or, `causal`, those the mask leaves.

    >>> from flops_bytes.model.shapes import LLAMA_3_8B
    >>> sum(forward_flops(stack_of(LLAMA_3_8B), seq_len=8_192, causal=True).values())
    140550657277952
    """
    flops = dict.fromkeys((*PARTS, "index", "scores", "values", "state"), 0)
    tokens = batch * seq_len
    for layer, times in stack.layers:
        for matrix in matrices(stack, layer):
            flops[matrix.part] += times * matrix.flops(tokens)
        for part, of_sequence in layer.mixer.mixing_flops(seq_len, causal).items():
            flops[part] += times * batch * of_sequence
    head = 2 * tokens * stack.d_model * stack.vocab
    return {part: of_part for part, of_part in flops.items() if of_part} | {"head": head}


def backward_flops(
    stack: Stack, seq_len: int, batch: int = 1, causal: bool = False, fused: bool = True
) -> dict[str, int]:
    """FLOPs of one backward pass: two products for each, and scores once more where fused attention makes them again.

    Of linear attention as many are counted, though its kernels make more of it again; of an indexer too, which
    DeepSeek trains, and transformers' module does not.

    >>> from flops_bytes.model.shapes import LLAMA_3_8B
    >>> sum(backward_flops(stack_of(LLAMA_3_8B), seq_len=8_192, causal=True).values())
    289898481319936
    """
    forward = forward_flops(stack, seq_len, batch, causal)
    return {part: (3 if fused and part == "scores" else 2) * flops for part, flops in forward.items()}


def cache_bytes(stack: Stack, tokens: int, width: int = 2) -> int:
    """Bytes that a sequence of so many tokens keeps: keys and values, or latents; and states, however long it is.

    `width` is the bytes of a number of the cache; states are kept in 2 bytes at least.

    >>> from flops_bytes.model.shapes import LLAMA_3_8B
    >>> cache_bytes(stack_of(LLAMA_3_8B), tokens=8_192)  # 1 GiB
    1073741824
    """
    return sum(
        times * (width * mixer.cached_numbers(tokens) + mixer.state_bytes(max(width, 2)))
        for mixer, times in stack.mixers()
    )


def expanded_cache_bytes(stack: Stack, tokens: int, width: int = 2) -> int:
    """The same where latents are kept as the keys and values that are made of them."""
    latents = ((mixer, times) for mixer, times in stack.mixers() if isinstance(mixer, LatentAttention))
    more = sum(times * (mixer.expanded_numbers(tokens) - mixer.cached_numbers(tokens)) for mixer, times in latents)
    return cache_bytes(stack, tokens, width) + width * more


def read_parameters(stack: Stack, users: int = 1) -> float:
    """Parameters that a decoding step reads: of experts those that a user is sent to, all as likely; no table.

    >>> from flops_bytes.model.shapes import LLAMA_3_8B
    >>> read_parameters(stack_of(LLAMA_3_8B))  # all but the embedding's table
    7504924672.0
    """
    tables = (stack.positions + (0 if stack.tied else stack.vocab)) * stack.d_model
    read = float(sum(parameters(stack).values()) - tables)
    for layer, times in stack.layers:
        if isinstance(mlp := layer.mlp, Experts):
            idle = (1 - mlp.active / mlp.experts) ** users  # The share of experts to which no user's token is sent.
            experts = (matrix for matrix in mlp.matrices(stack.d_model) if matrix.part == "experts")
            read -= times * idle * sum(matrix.parameters() for matrix in experts)
    return read


def weights_bytes(stack: Stack, bits: float = 16, end_bits: float = 0) -> float:
    """Bytes of all weights; `end_bits` of a weight of embedding and head, 0: as of the others.

    >>> from flops_bytes.model.shapes import LLAMA_3_8B
    >>> weights_bytes(stack_of(LLAMA_3_8B)), weights_bytes(stack_of(LLAMA_3_8B), bits=4, end_bits=16)
    (16060522496.0, 5591140352.0)
    """
    count = parameters(stack)
    ends = count["embedding"] + count["head"] + count.get("positions", 0)
    return (sum(count.values()) * bits + ends * ((end_bits or bits) - bits)) / 8


def decode_bytes(
    stack: Stack, users: int, context: int, bits: float = 16, width: int = 2, end_bits: float = 0
) -> float:
    """Bytes that a decoding step reads: the weights once, each user's own cache, and states, which it writes too.

    Each of `users` has `context` tokens in the cache, of `width` bytes a number. A weight has `bits`; one of embedding
    and head has `end_bits`, or `bits` where that is 0.

    >>> from flops_bytes.model.shapes import LLAMA_3_8B
    >>> decode_bytes(stack_of(LLAMA_3_8B), users=1, context=8_192)
    16083591168.0
    """
    more = stack.vocab * stack.d_model * ((end_bits or bits) - bits)
    of_user = sum(
        times * (width * mixer.cached_numbers_read(context) + 2 * mixer.state_bytes(max(width, 2)))
        for mixer, times in stack.mixers()
    )
    return (read_parameters(stack, users) * bits + more) / 8 + users * of_user


def decode_flops(stack: Stack, users: int, context: int, absorbed: bool = True) -> int:
    """FLOPs of a decoding step: each user's new token sees `context`, itself too. For `absorbed` see LatentAttention.

    >>> from flops_bytes.model.shapes import LLAMA_3_8B
    >>> decode_flops(stack_of(LLAMA_3_8B), users=1, context=8_192)
    19304284160
    """
    with_weights = sum(
        times * sum(matrix.flops(1) for matrix in matrices(stack, layer)) for layer, times in stack.layers
    )
    mixing = sum(times * mixer.step_flops(context, absorbed) for mixer, times in stack.mixers())
    return users * (with_weights + mixing + 2 * stack.d_model * stack.vocab)


def prefill_flops(stack: Stack, prompt: int, users: int = 1) -> int:
    """FLOPs of a prompt through all layers, causal, and of its last token's logits.

    >>> from flops_bytes.model.shapes import LLAMA_3_8B
    >>> prefill_flops(stack_of(LLAMA_3_8B), prompt=8_192)
    131944593489920
    """
    flops = forward_flops(stack, prompt, users, causal=True)
    return sum(flops.values()) - flops["head"] + flops["head"] // prompt
