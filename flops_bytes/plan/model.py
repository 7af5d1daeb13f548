"""The model that a question is about: one description of it, whichever way it was said."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from flops_bytes.memory.layers import NO_DROPOUT, ModelFamily
from flops_bytes.memory.step import family_of
from flops_bytes.model.shapes import Decoder
from flops_bytes.model.stack import Stack, as_decoder, mtp_parameters, parameters, stack_of
from flops_bytes.plan.options import has_dropout, named_shape, shape_asked


class Model(NamedTuple):
    """A decoder, and whose code writes its layers."""

    stack: Stack
    family: ModelFamily  # how its layers are written
    name: str = ""  # of the kind, as a config.json has it; of this book's own shapes none
    dropout: tuple[bool, bool] = NO_DROPOUT  # where nobody says: as its configuration has it

    @property
    def is_own(self) -> bool:
        """Whether its layers are this book's modules."""
        return self.family.code[:3] == "own"

    @property
    def decoder(self) -> Decoder | None:
        """As a decoder whose layers are all alike, if it is one: experts are Mixtral's alone, which come one by one."""
        decoder = as_decoder(self.stack)
        return decoder if decoder is None or decoder.experts == 1 or self.name in ("", "mixtral") else None


# From what was said, and the options that were read of it. Raises ValueError with the mend.
Reader = Callable[[Mapping[str, Any], Mapping[str, Any]], Model]


def is_composed(a: Mapping[str, Any]) -> bool:
    """Whether layers are made of PyTorch's operations, as in transformers: of a config.json, if nobody says."""
    return bool(a["layers"] == "composed")


def read_shape(told: Mapping[str, Any], a: Mapping[str, Any]) -> Model:
    """A model by one of the few names that have a shape here, or by its shape."""
    return model_of_shape(named_shape(a), a)


def read_named(told: Mapping[str, Any], a: Mapping[str, Any]) -> Model:
    """The same, of what a page knows at once; of a configuration another script knows more."""
    if a["config"]:
        raise ValueError("--config: it is not read here; give --model or --shape")
    return model_of_shape(shape_asked(a), a)


def model_of_shape(shape: Decoder, a: Mapping[str, Any]) -> Model:
    """Layers that are all alike. Raises ValueError with the mend."""
    if shape.heads % shape.kv_heads:
        uneven = f"{shape.kv_heads} key-value heads do not share {shape.heads} heads evenly"
        flag = "config" if a["config"] else "shape"
        raise ValueError(f"--{flag}: {uneven}; give a number that divides {shape.heads}")
    stack, has_masks = stack_of(shape), has_dropout({**a, "dropout": None}, shape)
    return Model(stack, family_of(stack, is_composed(a)), dropout=(has_masks, has_masks))


def refuse_long_context(a: Mapping[str, Any], stack: Stack) -> None:
    """Raises ValueError for a context that has more tokens than the model has positions."""
    if 0 < stack.positions < a["context"]:
        raise ValueError(f"--context: the model has {stack.positions} positions; ask for so many tokens or fewer")


def parameter_totals(stack: Stack) -> dict[str, int]:
    """All parameters, and those that a token passes through; of layers that predict further tokens apart."""
    further = {"predicting": mtp_parameters(stack)} if stack.mtp_layers else {}
    total, active = (sum(parameters(stack, active=only).values()) for only in (False, True))
    return {"total": total, "active": active} | further
