"""Models by their names, and by their config.json, for the planner: all kinds that flops_bytes.model.config reads.

What a training step holds is derived for the kinds of flops_bytes.memory.step. Of others an answer says what weights,
gradients and the optimizer's state take at least, and never that it fits.
"""

from collections.abc import Callable, Mapping
from typing import Any

from flops_bytes.memory.layers import FAMILIES, LLAMA
from flops_bytes.memory.step import SAME_AS_LLAMA, SUPPORTED, family_of
from flops_bytes.model.config import (
    bits_of,
    decoder_of,
    is_partly,
    is_read,
    is_unpacked,
    left_out,
    quantization,
    read_stack,
)
from flops_bytes.model.presets import PRESETS, known, preset_of
from flops_bytes.model.shapes import SHAPES, decoder_from_config, quoted
from flops_bytes.plan.assumptions import plan_with_choices, plan_with_defaults
from flops_bytes.plan.fleet import plan_for_deadline
from flops_bytes.plan.model import Model, is_composed, model_of_shape, read_shape, refuse_long_context
from flops_bytes.plan.options import OPTIONS, load_config, read_gpu, read_options
from flops_bytes.plan.training import (
    limits_without_activations,
    peak_memory,
    read_format,
    refuse,
    why_not_derived,
)


def plan_model(**asked: Any) -> dict[str, Any]:
    """What training or serving takes, of all models that are known by name and all kinds of config.json that are read.

    Raises ValueError with a sentence that names the option or the configuration's key, and the mend.
    """
    return plan_for_deadline(
        asked, lambda each: with_notes(each, lambda question: plan_with_choices(question, each, read_model))
    )


def plan_model_exactly(**asked: Any) -> dict[str, Any]:
    """The same as plan(), but nothing is chosen: what is not given has the default of its option."""
    return with_notes(asked, lambda question: plan_with_defaults(question, read_model))


def training_bytes_exactly(**asked: Any) -> dict[str, int]:
    """What a GPU holds of a training, by line, as plan_model_exactly() says it: in a tenth of its time, of which what
    else would fit takes the most. Raises ValueError as that does, but for what no byte hangs on: speed and data."""
    question, _ = as_stored(asked, config_of_question(asked) or {})
    a = read_options(question)
    model, peaks = read_model(question, a), read_gpu(a).peak_flop_per_second
    refuse_long_context(a, model.stack)
    read_format(a, peaks)  # or says what else to take
    refuse(a, model, peaks)
    if why_not_derived(a, model):
        lines: dict[str, int] = limits_without_activations(a, model.stack)["memory_bytes"]
    else:
        _, lines = peak_memory(a, model)
    return lines | {"total": sum(lines.values())}


def with_notes(asked: Mapping[str, Any], plan_once: Callable[[Mapping[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """What is found, and what was taken from a configuration, or left out of it, beside what is estimated."""
    config = config_of_question(asked) or {}
    question, notes = as_stored(asked, config)
    answer = plan_once(question)
    left_out_notes = [f"{key}: left out" for key in left_out(config)] + notes
    return answer | {"estimated": answer["estimated"] + left_out_notes}


def read_model(told: Mapping[str, Any], a: Mapping[str, Any]) -> Model:
    """The one model that was asked for: a configuration is of transformers' modules, a name of this book's where it has
    some. Raises ValueError, also for options that say what a step holds, where that is not derived."""
    config = config_of_question(a)
    if config is None:
        return read_shape(told, {**a, "model": a["model"] and preset_of(str(a["model"]))})
    own = unquantized(decoder_of(config))
    kind = str(own.get("model_type"))
    if not is_read(config):
        return model_of_shape(decoder_from_config(own, a["context"]), a)
    stack = read_stack(config)
    dropout = (bool(own.get("attention_dropout")), bool(own.get("residual_dropout") or own.get("resid_pdrop")))
    has_own = Model(stack, FAMILIES.get(kind, LLAMA), kind).decoder is not None
    if has_own and not is_composed(a):
        return Model(stack, family_of(stack, False), kind, dropout)
    if told.get("layers") and not is_composed(a):
        raise ValueError(f"--layers: this book has no modules of a {kind}; leave it out")
    # a SmolLM 3 whose layers all see everything is derived as a Llama, without asking which know positions
    name = "llama" if kind == "smollm3" and has_own else kind
    model = Model(stack, FAMILIES.get(name, LLAMA), name, dropout)
    if name not in SUPPORTED and name not in SAME_AS_LLAMA:
        refuse_underived(told, kind)
    return model


def with_config_or_name(
    asked: Mapping[str, Any], reader: Callable[[str], Mapping[str, Any]] = load_config
) -> dict[str, Any]:
    """A question with what its config.json holds; a model's name may stand there too, but a file may have that name."""
    try:
        return {**asked, "config": reader(asked["config"])}
    except ValueError:
        name = known(asked["config"])
        if not name:
            raise
        return {option: value for option, value in asked.items() if option != "config"} | {"model": name}


QUANTIZATION_KEY = "quantization_config"
PARTLY_NOTE = f"{QUANTIZATION_KEY}: what it leaves in 16 bits is taken to have as few as the rest"


def as_stored(asked: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A question with the bits in which a checkpoint stores its weights, where it says no others, and what is said.

    Served are weights as they are stored. Trained they have the recipe's format, but the frozen ones of LoRA, if these
    bits can be planned.
    """
    told, quantized = dict(asked), quantization(config)
    if not quantized:
        return told, []
    bits, serves = bits_of(quantized), told.get("task") == "serve"
    if serves and not told.get("weights"):
        if bits is None:
            raise ValueError(
                f"--weights: quantization_config = {quoted(dict(quantized))} is not understood; say 16bit, 8bit or 4bit"
            )
        notes = [PARTLY_NOTE] if is_partly(quantized) else []
        return told | {"weights": f"{bits}bit"}, [f"{QUANTIZATION_KEY}: weights in {bits} bits", *notes]
    if serves:
        return told, []
    is_base = f"{bits}bit" in OPTIONS["base"].kind and not is_unpacked(quantized)
    if told.get("lora") and not told.get("base") and is_base:
        return told | {"base": f"{bits}bit"}, [f"{QUANTIZATION_KEY}: a frozen base in {bits} bits"]
    return told, [f"{QUANTIZATION_KEY}: left out; weights are held as the recipe says"]


def config_of_question(asked: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The configuration of the model that is asked for; None if its shape is said, or known by name."""
    if len([name for name in ("model", "config", "shape") if asked.get(name)]) != 1:
        return None  # which the planner refuses
    if asked.get("config"):
        return load_config(asked["config"])
    name = known(str(asked.get("model") or ""))
    if name in PRESETS:
        return PRESETS[name].config
    if asked.get("model") and not name:
        mend = f"choose {', '.join([*SHAPES, *PRESETS])}, or give --config or --shape"
        raise ValueError(f"--model: {quoted(asked['model'])} is not known; {mend}")
    return None


def unquantized(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as of weights in 16 bits or more: how a checkpoint stores them changes no shape."""
    return {key: value for key, value in config.items() if key != QUANTIZATION_KEY}


# Options that say what a training step holds:
TRAINING_OPTIONS: tuple[str, ...] = ("trained", "lora", "lora_on", "base", "chunks", "optimizer", "loss", "layers")
TRAINING_OPTIONS += ("offload", "dropout", "checkpointing", "checkpoint_every", "update", "reentrant", "sharding_by")
TRAINING_OPTIONS += ("reduce_bucket", "quantized_by", "lora_inputs", "lora_dropout", "qkv_made", "matmuls")


def refuse_underived(told: Mapping[str, Any], kind: str) -> None:
    """Raises ValueError for options that say what a training step holds, where that is not derived."""
    for name in TRAINING_OPTIONS:
        value = told.get(name)
        is_plain = value is None or value == OPTIONS[name].default or (name == "trained" and value == "all")
        if not (is_plain or (name == "checkpointing" and value == "full")):
            why = f"what a training step of a {kind} holds with it is not derived"
            raise ValueError(f"--{name.replace('_', '-')}: {why}; leave it out")
