"""Whether a number that a reader worked out is right; the pages' tasks put their answers here."""

RIGHT: dict[str, float] = {}  # a task's answer, once its block has run


def check(task: str, mine: float, within: float = 0.02) -> bool:
    """Whether a number is right, within so large a share of it; says by what factor it is off."""
    ratio = mine / RIGHT[task]
    right = abs(ratio - 1) <= within
    print(f"{task}: {'right' if right else f'{ratio:.2f} times the answer'}")
    return right
