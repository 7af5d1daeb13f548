"""What an operation has to do, and whether its arithmetic or its bytes take the time. Python alone."""

from typing import NamedTuple

# --8<-- [start:work]
BFLOAT16 = 2  # bytes of one element


class Work(NamedTuple):
    """What an operation has to do, whatever does it."""

    work_flops: int
    moved_bytes: int  # every input read once, every output written once

    def intensity(self) -> float:
        """FLOPs per byte moved."""
        return self.work_flops / self.moved_bytes


def elementwise(num_elements: int, flops: int, itemsize: int = BFLOAT16) -> Work:
    """One tensor read, one written, so many FLOPs for each element."""
    return Work(flops * num_elements, 2 * num_elements * itemsize)


def matmul(m: int, n: int, p: int, itemsize: int = BFLOAT16) -> Work:
    """(m, n) @ (n, p): m · p sums of n terms."""
    return Work(2 * m * n * p, itemsize * (m * n + n * p + m * p))


# --8<-- [end:work]
