"""What optimizers beyond AdamW hold and compute: bytes and FLOPs of an update. Numbers in and out, nothing but Python.

A matrix has `rows` and `columns`, the first as many as a linear layer has outputs; a `width` is the bytes of a number.
"""

from collections.abc import Iterable
from math import prod

from flops_bytes.model.shapes import Decoder, matmuls

NEWTON_SCHULZ_STEPS = 5  # torch.optim.Muon's default, and nanochat's


def newton_schulz_flops(rows: int, columns: int, steps: int = NEWTON_SCHULZ_STEPS) -> int:
    """FLOPs of the matmuls that orthogonalize a matrix X, m of whose sides is the shorter one and n the longer.

    A step makes A = X Xᵀ with 2m²n of them, A A with 2m³, and B X with 2m²n (Jordan et al. 2024; torch.optim.Muon).

    >>> newton_schulz_flops(768, 3_072)
    40768634880
    """
    m, n = min(rows, columns), max(rows, columns)
    return steps * (4 * m**2 * n + 2 * m**3)


def muon_matrices(shape: Decoder) -> list[tuple[int, int]]:
    """Rows and columns of the matrices of one dense layer, which Muon updates; all else is left to AdamW.

    >>> from flops_bytes.model.shapes import GPT2_SMALL
    >>> muon_matrices(GPT2_SMALL)
    [(2304, 768), (768, 768), (3072, 768), (768, 3072)]
    """
    return [(each.outputs, each.inputs) for each in matmuls(shape)]


def muon_parameters(shape: Decoder) -> int:
    """Parameters of the matrices of all layers, which Muon updates.

    >>> from flops_bytes.model.shapes import GPT2_SMALL
    >>> muon_parameters(GPT2_SMALL)
    84934656
    """
    return shape.layers * sum(rows * columns for rows, columns in muon_matrices(shape))


def muon_flops(shape: Decoder, steps: int = NEWTON_SCHULZ_STEPS) -> int:
    """FLOPs of the matmuls of an update of all layers, however many tokens the step has.

    >>> from flops_bytes.model.shapes import GPT2_SMALL
    >>> muon_flops(GPT2_SMALL)
    1522029035520
    """
    return shape.layers * sum(newton_schulz_flops(rows, columns, steps) for rows, columns in muon_matrices(shape))


def muon_state_bytes(shape: Decoder, total: int, width: int = 4) -> int:
    """Bytes of state beside `total` parameters: momenta of the layers' matrices, and for the rest AdamW's moments.

    >>> from flops_bytes.model.shapes import GPT2_SMALL
    >>> muon_state_bytes(GPT2_SMALL, total=124_439_808)
    655779840
    """
    return width * (2 * total - muon_parameters(shape))


def muon_temporary_bytes(shape: Decoder, width: int = 4) -> int:
    """Bytes at the peak of torch.optim.Muon's update, which goes through the matrices one by one: the largest one's.

    The update in the gradient's width, X and the next X in 16 bits, A and B, which are m × m, too.

    >>> from flops_bytes.model.shapes import GPT2_SMALL
    >>> muon_temporary_bytes(GPT2_SMALL)
    21233664
    """
    return max((width + 4) * rows * columns + 4 * min(rows, columns) ** 2 for rows, columns in muon_matrices(shape))


def adafactor_state_bytes(shapes: Iterable[tuple[int, ...]], width: int = 4) -> int:
    """Bytes of state of torch.optim.Adafactor: of a matrix a mean of squares a row and a column, of a vector all.

    >>> adafactor_state_bytes([(768, 3_072), (768,)])
    18432
    """
    return width * sum(sum(sizes) for sizes in shapes)


def adafactor_temporary_bytes(shapes: Iterable[tuple[int, ...]], width: int = 4) -> int:
    """Bytes at the peak of torch.optim.Adafactor's update of tensors in this order, which goes through them one by one.

    It makes an estimate as large as each, while that of the one before has a name; and of a matrix a mean a row and a
    column, of a vector its squares, whose names stay as well (_single_tensor_adafactor).

    >>> adafactor_temporary_bytes([(768, 3_072), (768,)])
    9458688
    """
    most, before, means, squares = 0, 0, 0, 0
    for sizes in shapes:
        size, made = prod(sizes), sum(sizes)
        if len(sizes) > 1:  # means of the tensor before stay until these are made
            held = squares + max(means + sizes[0], made + size)
            means = made
        else:
            held = means + size + max(squares, size)
            squares = size
        most, before = max(most, before + held), size
    return width * most


BLOCK, SMALLEST = 256, 4_096  # numbers of a block; tensors with fewer stay in float32


def eight_bit_state_bytes(sizes: Iterable[int]) -> int:
    """Bytes of the two moments of tensors with so many numbers each, as bitsandbytes' AdamW8bit has them.

    A byte a number and a float32 for each block, even an incomplete one (Dettmers et al. 2021). The table of the 256
    values, 1 KiB a moment and once for all tensors, is not counted.

    >>> eight_bit_state_bytes([768 * 3_072, 768])  # the second stays in float32
    4798464
    """
    return sum(2 * (size + 4 * -(-size // BLOCK)) if size >= SMALLEST else 8 * size for size in sizes)


TORCHAO = {
    "adamw-8bit": (8, 256),
    "adamw-fp8": (8, 256),
    "adamw-4bit": (4, 128),
}  # bits of a number, numbers of a block


def low_bit_state_bytes(sizes: Iterable[int], bits: int, block: int, width: int) -> int:
    """Bytes of the two moments of tensors with so many numbers each, as torchao.optim has them.

    A float32 for each block. Tensors with fewer than 4,096 numbers, or with an incomplete block, stay in the `width` of
    the parameters (torchao/optim/adam.py, _new_buffer). The tables of the values are not counted: 1 KiB a moment and
    tensor of AdamW8bit, 64 bytes of AdamW4bit, none of AdamWFp8.

    >>> low_bit_state_bytes([768 * 3_072, 768], bits=4, block=128, width=4)
    2512896
    """
    found = 0
    for size in sizes:
        packed = size >= SMALLEST and size % block == 0
        found += 2 * (size * bits // 8 + 4 * size // block) if packed else 2 * width * size
    return found
