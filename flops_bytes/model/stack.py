"""A decoder whose layers differ: experts, latent and linear attention, windows. Numbers in, numbers out, Python alone.

It is a list of layers with how many there are of each, a layer is a mixer (which lets tokens see each other) and an
MLP. All of these say what matrices they have; parameters and FLOPs of products follow. What a mixer does without
weights, and what it keeps of tokens that have gone by, is its own. `Decoder` is the simple case: layers all alike.

Symbols: b sequences of T tokens; layers of width d; H query heads and G key-value heads of Q features; V tokens in the
vocabulary. A FLOP is an addition or a multiplication; only matrix products are counted.
"""

# --8<-- [start:matrix]
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from flops_bytes.model.shapes import Decoder


class Matrix(NamedTuple):
    """A matrix of weights, or several alike."""

    part: str  # of parameters() and of forward_flops()
    inputs: int
    outputs: int
    biased: bool = False
    per_layer: int = 1  # how many of these a layer has
    per_token: int = 1  # how many of these a token goes through

    def parameters(self, active: bool = False) -> int:
        return (self.per_token if active else self.per_layer) * (self.inputs + self.biased) * self.outputs

    def flops(self, tokens: int) -> int:
        return 2 * tokens * self.per_token * self.inputs * self.outputs


# --8<-- [end:matrix]


# --8<-- [start:pairs]
def causal_pairs(tokens: int) -> int:
    return tokens * (tokens + 1) // 2


def pairs(seq_len: int, window: int = 0, chunked: bool = False, causal: bool = True) -> int:
    """Pairs of tokens between which there is a score.

    A token attends to `window` tokens, itself the last of them, or with 0 to all before it; if `chunked`, to those of
    its own chunk of so many. Not `causal`: as papers count, with as many tokens whether they come before it or not.
    """
    if not window or window >= seq_len:
        return causal_pairs(seq_len) if causal else seq_len**2
    if chunked:
        whole, rest = divmod(seq_len, window)
        return whole * causal_pairs(window) + causal_pairs(rest) if causal else whole * window**2 + rest**2
    return causal_pairs(window) + (seq_len - window) * window if causal else seq_len * window


# --8<-- [end:pairs]


# --8<-- [start:attention]
@dataclass(frozen=True)
class Attention:
    """Softmax attention, over all tokens before, or over those within reach."""

    heads: int  # H
    kv_heads: int  # G
    head_dim: int  # Q
    window: int = 0  # tokens that a token sees, itself among them; 0: all
    chunked: bool = False  # these are of its own chunk
    biases: bool = False  # of queries, keys and values
    out_bias: bool = False
    gated: bool = False  # as many features as queries, which close what comes out (Qwen3-Next)
    head_norms: bool = False  # an RMSNorm of Q features for queries, one for keys
    norms_over_heads: bool = False  # an RMSNorm of all queries' features, one of all keys' (OLMo 2)
    sinks: bool = False  # a score a head that stands for no token (gpt-oss)
    k_eq_v: bool = False  # values are made as keys are, by the same matrix (Gemma 4's layers that see everything)

    def matrices(self, d: int) -> list[Matrix]:
        wide, narrow = self.heads * self.head_dim, self.kv_heads * self.head_dim
        outputs = wide * (1 + self.gated) + narrow * (1 if self.k_eq_v else 2)
        return [Matrix("attention", d, outputs, self.biases), Matrix("attention", wide, d, self.out_bias)]

    def vectors(self) -> int:
        """Parameters that stand in no matrix."""
        normed = 2 * self.head_norms + (self.heads + self.kv_heads) * self.norms_over_heads
        return normed * self.head_dim + self.heads * self.sinks

    def mixing_flops(self, seq_len: int, causal: bool) -> dict[str, int]:
        """Of a sequence: what has no weights."""
        each = 2 * pairs(seq_len, self.window, self.chunked, causal) * self.heads * self.head_dim
        return {"scores": each, "values": each}

    def attended_tokens(self, context: int) -> int:
        """Of so many tokens, those that the last one sees; of a chunk, when it is full, or fullest."""
        return min(context, self.window) if self.window else context

    def step_flops(self, context: int, absorbed: bool = True) -> int:
        """Of a new token that sees `context`, itself too: what has no weights."""
        return 4 * self.attended_tokens(context) * self.heads * self.head_dim

    def cached_numbers(self, tokens: int) -> int:
        """Numbers that the cache holds of so many tokens: keys and values, of a window no more than fill it."""
        return 2 * self.attended_tokens(tokens) * self.kv_heads * self.head_dim

    def cached_numbers_read(self, context: int) -> int:
        """Of these, what a step reads."""
        return self.cached_numbers(context)

    def state_bytes(self, width: int) -> int:
        return 0

    def with_shared_heads(self, gpus: int) -> "Attention":
        """What GPUs hold together that share its heads: each has a key-value head at least."""
        return replace(self, kv_heads=gpus * -(-self.kv_heads // gpus))


# --8<-- [end:attention]


# --8<-- [start:latent]
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
    q_lora_rank: int  # of the queries' latent; 0: they have none
    kv_lora_rank: int  # of the latent of keys and values
    nope_dim: int  # features of a key that positions do not turn
    rope_dim: int  # those that they turn, the same for all heads
    v_head_dim: int
    biases: bool = False  # of what makes latents, and of the output
    cache_copies: int = 1  # of the cache, on GPUs that share the heads
    index_topk: int = 0  # tokens that a token attends to; 0: all
    index_heads: int = 0  # of the indexer, which chooses them; 0: it has none of its own
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
        """Of its queries, of the key, and of the weights by which heads are added up."""
        if not self.index_heads:
            return []
        queries = Matrix("indexer", self.q_lora_rank, self.index_heads * self.index_dim)
        return [queries, Matrix("indexer", d, self.index_dim), Matrix("indexer", d, self.index_heads)]

    def vectors(self) -> int:
        # their norms, of which the key's has a shift too
        return self.q_lora_rank + self.kv_lora_rank + 2 * self.index_dim

    def mixing_flops(self, seq_len: int, causal: bool) -> dict[str, int]:
        each = 2 * pairs(seq_len, self.index_topk, causal=causal) * self.heads
        index = 2 * pairs(seq_len, causal=causal) * self.index_heads * (self.index_dim + 1)
        return {"scores": each * (self.nope_dim + self.rope_dim), "values": each * self.v_head_dim, "index": index}

    def attended_tokens(self, context: int) -> int:
        return min(context, self.index_topk) if self.index_topk else context

    def step_flops(self, context: int, absorbed: bool = True) -> int:
        """Not absorbed, latents of all tokens before are expanded again, as transformers does it."""
        index = 2 * context * self.index_heads * (self.index_dim + 1)
        if absorbed:
            return index + 2 * self.attended_tokens(context) * self.heads * (2 * self.kv_lora_rank + self.rope_dim)
        each = 2 * self.attended_tokens(context) * self.heads * (self.nope_dim + self.rope_dim + self.v_head_dim)
        return index + each + self.expand().flops(context - 1)

    def cached_numbers(self, tokens: int) -> int:
        """The latent and the turned key, which all heads share, and the indexer's key."""
        return self.cache_copies * tokens * (self.kv_lora_rank + self.rope_dim + self.index_dim)

    def cached_numbers_read(self, context: int) -> int:
        """Of these, the keys of the indexer, and the latents that it chooses."""
        return self.cache_copies * (
            self.attended_tokens(context) * (self.kv_lora_rank + self.rope_dim) + context * self.index_dim
        )

    def expanded_numbers(self, tokens: int) -> int:
        """Numbers of a cache of keys and values themselves, as engines keep it that do not know of latents."""
        return tokens * (self.heads * (self.nope_dim + self.rope_dim + self.v_head_dim) + self.index_dim)

    def state_bytes(self, width: int) -> int:
        return 0

    def with_shared_heads(self, gpus: int) -> "LatentAttention":
        """Each has all latents, since every head needs them."""
        return replace(self, cache_copies=gpus)


# --8<-- [end:latent]


# --8<-- [start:delta]
CHUNK = 64  # tokens; of flash-linear-attention's kernels, and of transformers' own code


@dataclass(frozen=True)
class GatedDelta:
    """Linear attention by the gated delta rule: a state of k × v features a head, whatever the number of tokens.

    Gated DeltaNet (Yang et al., arXiv 2412.06464) in Qwen3-Next and Qwen3.5; Kimi Delta Attention (arXiv 2510.26692)
    has a decay for each feature of a key (`decay_per_feature`), made by two narrow matrices; two others make its gate.
    """

    key_heads: int
    value_heads: int  # of states
    key_dim: int
    value_dim: int
    conv_kernel_size: int  # tokens that the convolution of each feature takes
    decay_per_feature: bool = False

    def channels(self) -> int:
        """Features of queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def matrices(self, d: int) -> list[Matrix]:
        wide = self.value_heads * self.value_dim
        conv = Matrix("convolution", self.conv_kernel_size, self.channels())
        out = Matrix("attention", wide, d)
        if self.decay_per_feature:
            narrow = Matrix("attention", d, self.value_dim, per_layer=2, per_token=2)  # of the decay and of the gate
            widened = Matrix("attention", self.value_dim, wide, per_layer=2, per_token=2)
            return [Matrix("attention", d, self.channels() + self.value_heads), narrow, widened, conv, out]
        # beside queries, keys and values the gate, and two numbers a head: how fast it forgets, how much it learns
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
        """The state is asked with the key, mended, and asked with the query."""
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


# --8<-- [end:delta]


# --8<-- [start:mlp]
@dataclass(frozen=True)
class Dense:
    """An MLP that each token goes through."""

    d_ff: int  # f
    biases: bool = False
    gated: bool = True  # by a matrix more
    activation_parameters: int = 0  # numbers of its activation (Apertus)

    def matrices(self, d: int) -> list[Matrix]:
        ups = Matrix("mlp", d, self.d_ff, self.biases, per_layer=1 + self.gated, per_token=1 + self.gated)
        activation = [Matrix("mlp", 0, self.activation_parameters, biased=True)] if self.activation_parameters else []
        return [ups, Matrix("mlp", self.d_ff, d, self.biases), *activation]

    def active_d_ff(self) -> int:
        """Features of a token inside."""
        return self.d_ff


@dataclass(frozen=True)
class Experts:
    """Many MLPs, of which a router sends each token to a few; and one beside them for all tokens, if it is there."""

    experts: int
    active: int
    d_ff: int  # of one
    shared_d_ff: int = 0  # of the shared ones together
    shared_gate: bool = False  # a number by which the shared one's result is multiplied (Qwen)
    biases: bool = False
    router_bias: bool = False
    router_scales: bool = False  # the router's input by a vector, each expert by a number (Gemma 4)
    gated: bool = True  # by a matrix more

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


# --8<-- [end:mlp]


# --8<-- [start:stack]
Mixer = Attention | LatentAttention | GatedDelta


@dataclass(frozen=True)
class Layer:
    mixer: Mixer
    mlp: Dense | Experts
    norms: int = 2  # RMSNorms of d features


@dataclass(frozen=True)
class Stack:
    """A decoder: an embedding, layers, a norm and a head."""

    d_model: int  # d
    vocab: int  # V
    layers: tuple[tuple[Layer, int], ...]  # each kind of layer, and how many there are
    tied: bool = False  # the head is the embedding's matrix
    mtp_layers: int = 0  # layers that predict tokens after the next (multi-token prediction), beside all others
    positions: int = 0  # learned position embeddings; 0: positions are rotated in, without parameters
    norm_shift: bool = False  # LayerNorm's second vector; RMSNorm has none

    @property
    def depth(self) -> int:
        return sum(times for _, times in self.layers)

    def mixers(self) -> Iterator[tuple[Mixer, int]]:
        return ((layer.mixer, times) for layer, times in self.layers)


def stack_of(shape: Decoder) -> Stack:
    """A decoder whose layers are all alike, as a stack."""
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
    """Layers in their order, as a Stack has them."""
    return tuple(Counter(layers).items())


def with_shared_heads(stack: Stack, gpus: int) -> Stack:
    """What GPUs hold together that share the heads of each layer."""
    layers = ((replace(layer, mixer=layer.mixer.with_shared_heads(gpus)), times) for layer, times in stack.layers)
    return replace(stack, layers=tuple(layers))


def matrices(stack: Stack, layer: Layer) -> list[Matrix]:
    return layer.mixer.matrices(stack.d_model) + layer.mlp.matrices(stack.d_model)


# --8<-- [end:stack]


# --8<-- [start:parameters]
PARTS = ("attention", "indexer", "convolution", "mlp", "experts", "shared_experts", "router")


def parameters(stack: Stack, active: bool = False) -> dict[str, int]:
    """Parameters by component; with `active`, those that one token passes through. Without predicting layers."""
    d = stack.d_model
    of_parts = dict.fromkeys(PARTS, 0)
    vectors = d  # the last norm
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
    """Of the matrices that a base in 4 bits packs: all of the layers' but routers."""
    return sum(
        times * matrix.per_layer * matrix.inputs * matrix.outputs
        for layer, times in stack.layers
        for matrix in matrices(stack, layer)
        if matrix.part != "router"
    )


def largest_layer_parameters(stack: Stack) -> int:
    """Of the fullest layer, which is gathered as a whole: with all of its experts."""
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


# --8<-- [end:parameters]


# --8<-- [start:flops]
def forward_flops(stack: Stack, seq_len: int, batch: int = 1, causal: bool = False) -> dict[str, int]:
    """FLOPs of a forward pass by component: scores between all pairs of tokens, or, `causal`, those the mask leaves."""
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
    """
    forward = forward_flops(stack, seq_len, batch, causal)
    return {part: (3 if fused and part == "scores" else 2) * flops for part, flops in forward.items()}


# --8<-- [end:flops]


# --8<-- [start:cache]
def cache_bytes(stack: Stack, tokens: int, width: int = 2) -> int:
    """Bytes that a sequence of so many tokens keeps: keys and values, or latents; and states, however long it is."""
    return sum(
        times * (width * mixer.cached_numbers(tokens) + mixer.state_bytes(max(width, 2)))
        for mixer, times in stack.mixers()
    )


def expanded_cache_bytes(stack: Stack, tokens: int, width: int = 2) -> int:
    """The same where latents are kept as the keys and values that are made of them."""
    latents = ((mixer, times) for mixer, times in stack.mixers() if isinstance(mixer, LatentAttention))
    more = sum(times * (mixer.expanded_numbers(tokens) - mixer.cached_numbers(tokens)) for mixer, times in latents)
    return cache_bytes(stack, tokens, width) + width * more


# --8<-- [end:cache]


# --8<-- [start:decode]
def read_parameters(stack: Stack, users: int = 1) -> float:
    """Parameters that a decoding step reads: of experts those that a user is sent to, all as likely; no table."""
    tables = (stack.positions + (0 if stack.tied else stack.vocab)) * stack.d_model
    read = float(sum(parameters(stack).values()) - tables)
    for layer, times in stack.layers:
        if isinstance(mlp := layer.mlp, Experts):
            idle = (1 - mlp.active / mlp.experts) ** users  # the share that nobody is sent to
            experts = (matrix for matrix in mlp.matrices(stack.d_model) if matrix.part == "experts")
            read -= times * idle * sum(matrix.parameters() for matrix in experts)
    return read


def weights_bytes(stack: Stack, bits: float = 16, end_bits: float = 0) -> float:
    """Bytes of all weights; `end_bits` of a weight of embedding and head, 0: as of the others."""
    count = parameters(stack)
    ends = count["embedding"] + count["head"] + count.get("positions", 0)
    return (sum(count.values()) * bits + ends * ((end_bits or bits) - bits)) / 8


def decode_bytes(
    stack: Stack, users: int, context: int, bits: float = 16, width: int = 2, end_bits: float = 0
) -> float:
    """Bytes that a step reads: the weights once, each user's own cache, and states, which it writes too."""
    more = stack.vocab * stack.d_model * ((end_bits or bits) - bits)
    of_user = sum(
        times * (width * mixer.cached_numbers_read(context) + 2 * mixer.state_bytes(max(width, 2)))
        for mixer, times in stack.mixers()
    )
    return (read_parameters(stack, users) * bits + more) / 8 + users * of_user


def decode_flops(stack: Stack, users: int, context: int, absorbed: bool = True) -> int:
    """FLOPs of a step: each user's new token sees `context`, itself too. For `absorbed` see Latent."""
    with_weights = sum(
        times * sum(matrix.flops(1) for matrix in matrices(stack, layer)) for layer, times in stack.layers
    )
    mixing = sum(times * mixer.step_flops(context, absorbed) for mixer, times in stack.mixers())
    return users * (with_weights + mixing + 2 * stack.d_model * stack.vocab)


def prefill_flops(stack: Stack, prompt: int, users: int = 1) -> int:
    """FLOPs of a prompt through all layers, causal, and of its last token's logits."""
    flops = forward_flops(stack, prompt, users, causal=True)
    return sum(flops.values()) - flops["head"] + flops["head"] // prompt


# --8<-- [end:decode]
