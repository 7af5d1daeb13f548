"""The planner for GRPO: what a card holds while it samples, scores and trains. The command alone answers it.

Training is the planner's own step, with the logits of the answers alone: by TRL 0.17, which divides them by the
temperature, the divided ones and a gradient for each of their two uses, the chosen token's and the logsumexp
(trl/trainer/grpo_trainer.py, _get_per_token_logps; utils.py, selective_log_softmax). Seconds are bounds, by bandwidth
and peak.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from flops_bytes.memory.formulas import RECIPES
from flops_bytes.memory.step import moment_of
from flops_bytes.model.stack import cache_bytes, forward_flops, parameters, prefill_flops
from flops_bytes.plan.model import Model, Reader, parameter_totals, read_shape, refuse_long_context
from flops_bytes.plan.options import OPTIONS, Option, capacity_source, read_gpu, read_options, read_other
from flops_bytes.plan.serving import decode_seconds, forward_bytes
from flops_bytes.plan.training import (
    bytes_by_moment,
    count_trained,
    flops_a_token,
    read_format,
    recipe_name,
    refuse,
    why_not_derived,
)
from flops_bytes.serve.inference import Server
from flops_bytes.time.gpus import Gpu

RL = {
    "answer": Option(
        "length", None, "of --task rl: the tokens of --context that are sampled; the others are the prompt"
    ),
    "samples": Option("count", None, "of --task rl: answers that a GPU samples at once; if not given, all of a step"),
    "reference": Option(
        ("no", "yes"), "no", "of --task rl: a frozen copy of the model, for a penalty such as TRL's beta"
    ),
    "engine_share": Option("share", None, "of --task rl: of the card, that an engine such as vLLM takes to sample"),
    "engine_asleep": Option(
        "bytes", None, "of --task rl: what that engine still holds while it sleeps; awake, if not given"
    ),
}
ACCEPTED: tuple[str, ...] = ("model", "config", "shape", "gpu", "gpu_memory", "gpu_peak", "gpus", "context")
ACCEPTED += ("micro_batch", "accumulation", "recipe", "layers", "attention", "checkpointing", "checkpoint_every")
ACCEPTED += ("allowance", "lora", "lora_on", "base", "optimizer", "update", "offload")
STATE = ("weights", "adapters", "master", "optimizer", "reduced", "allowance")  # lines that no phase is without
PHASES = ("sampling", "scoring", "training")
# Bytes of a cached number by recipe, the mean of keys and values: autocast turns keys in float32. With each of these
# recipes logits are in float32: what a model gives back under its mixed precision accelerate casts, of weights in bf16
# too (accelerate/utils/operations.py, convert_outputs_to_fp32).
CACHE_ITEMSIZE = {"fp32": 4, "autocast": 3, "bf16": 2}


def is_asked(asked: Mapping[str, Any]) -> bool:
    """Whether a question is about reinforcement learning."""
    return asked.get("task") == "rl"


class GrpoQuestion(NamedTuple):
    """What was asked, read."""

    a: dict[str, Any]  # the planner's own options
    rl_options: dict[str, Any]
    model: Model
    gpu: Gpu
    flop_per_second: float  # of matmuls, at their peak

    @property
    def answers(self) -> int:
        """Of a GPU in a step."""
        return int(self.a["micro_batch"] * self.a["accumulation"])

    @property
    def engine_bytes(self) -> int:
        return round((self.rl_options["engine_share"] or 0) * self.gpu.memory_bytes)

    @property
    def idle_engine_bytes(self) -> int:
        """Of an engine, while it does not sample."""
        asleep = self.rl_options["engine_asleep"]
        return self.engine_bytes if asleep is None else int(asleep)


def read_question(asked: Mapping[str, Any], reader: Reader) -> GrpoQuestion:
    """Raises ValueError with a sentence that names the option and the mend."""
    told = {name: value for name, value in asked.items() if value is not None and name != "task"}
    rl_options = {name: option.default for name, option in RL.items()}
    rl_options |= {name: read_other(RL, name, told.pop(name)) for name in RL if name in told}
    for name in told:
        if name in OPTIONS and name not in ACCEPTED and told[name] != OPTIONS[name].default:
            raise ValueError(f"--{name.replace('_', '-')}: it is not derived for --task rl; leave it out")
    a = read_options({"recipe": "autocast"} | told)
    if a["recipe"] not in CACHE_ITEMSIZE:
        choices = ", ".join(CACHE_ITEMSIZE)
        raise ValueError(f"--recipe: --task rl is derived for logits in float32; choose one of {choices}")
    if rl_options["answer"] is None or rl_options["answer"] >= a["context"]:
        why = "it is missing" if rl_options["answer"] is None else f"the context of {a['context']} has its prompt too"
        raise ValueError(f"--answer: {why}; give the tokens of an answer, fewer than --context has")
    if a["lora"] and rl_options["reference"] == "yes":
        raise ValueError("--reference: the model without its adapters is the reference; leave it out")
    if rl_options["engine_asleep"] is not None and rl_options["engine_share"] is None:
        raise ValueError("--engine-asleep: there is no engine; give --engine-share, or leave it out")
    model, gpu = reader(told, a), read_gpu(a)
    peaks = gpu.peak_flop_per_second
    refuse_long_context(a, model.stack)
    refuse(a, model, peaks)
    if why := why_not_derived(a, model):
        raise ValueError(f"--model: no GRPO is planned, because {why}; choose another")
    return GrpoQuestion(a, rl_options, model, gpu, peaks[read_format(a, peaks)])


def sampled_at_once(question: GrpoQuestion) -> tuple[int, dict[str, int]]:
    """Answers, and the bytes for them: keys, values and one token's logits, or an engine's share of the card.

    An engine has weights in 16 bits, and room for a forward pass of a prompt; what remains is for keys and values.
    """
    rl_options, stack, context = question.rl_options, question.model.stack, question.a["context"]
    wanted_answers = int(rl_options["samples"] or question.answers)
    if rl_options["engine_share"] is None:
        cache = wanted_answers * cache_bytes(stack, context, CACHE_ITEMSIZE[question.a["recipe"]])
        return wanted_answers, {"cache": cache, "logits": 4 * wanted_answers * stack.vocab}
    weight_bytes = 2 * sum(parameters(stack).values())
    room_bytes = question.engine_bytes - weight_bytes - forward_bytes(stack, context)
    fitting_answers = room_bytes // cache_bytes(stack, context)
    if fitting_answers < 1:
        raise ValueError("--engine-share: it has no room for the model in 16 bits and one answer; give it more")
    return min(wanted_answers, fitting_answers), {"engine": question.engine_bytes}


def bytes_by_phase(question: GrpoQuestion) -> tuple[str, dict[str, dict[str, int]]]:
    """The moment of training that holds most, and what each phase holds, by line."""
    a, stack = question.a, question.model.stack
    answer_tokens, sequences = question.rl_options["answer"], a["micro_batch"]
    moments = bytes_by_moment(a, question.model, answer_tokens)
    # where one answer is trained on, the gradient of its logsumexp has three tensors as large as the logits
    if sequences == 1:
        moments["loss"]["logits"] = moments["loss"]["logits"] * 4 // 3
    moment = max(moments, key=lambda moment: sum(moments[moment].values()))
    frozen_bytes = RECIPES[recipe_name(a)].weights * sum(parameters(stack).values())
    reference = {"reference": frozen_bytes if question.rl_options["reference"] == "yes" else 0}
    state = {line: moments["forward"][line] for line in STATE if line in moments["forward"]} | reference
    idle_engine = {"engine": question.idle_engine_bytes}
    _, sampling = sampled_at_once(question)
    scoring = {"logits": 2 * 4 * sequences * answer_tokens * stack.vocab}
    return moment_of(moment), {
        "sampling": state | sampling,
        "scoring": state | scoring | idle_engine,
        "training": moments[moment] | reference | idle_engine,
    }


def least_seconds(question: GrpoQuestion) -> dict[str, float] | None:
    """Of each phase of a step, as if nothing but matmuls, attention and reads of weights and cache took time.

    Decoding steps grow by a token, so the mean of the first and the last is that of all but where the bound changes.
    """
    a, rl_options, stack = question.a, question.rl_options, question.model.stack
    flop_per_second, bandwidth = question.flop_per_second, question.gpu.bandwidth_bytes_per_second
    if not bandwidth:
        return None
    context, answer_tokens, answers = a["context"], rl_options["answer"], question.answers
    bits = 16 if rl_options["engine_share"] is not None or a["recipe"] != "fp32" else 32
    server = Server(bandwidth, flop_per_second, bits, bits // 8)
    most_at_once, _ = sampled_at_once(question)
    prompt_tokens, sampling_seconds, answers_left = context - answer_tokens, 0.0, answers
    while answers_left:
        at_once = min(most_at_once, answers_left)
        rounds = answers_left // at_once  # alike
        end_seconds = [decode_seconds(stack, at_once, tokens, server) for tokens in (prompt_tokens + 1, context - 1)]
        prefill = at_once * prefill_flops(stack, prompt_tokens) / flop_per_second
        sampling_seconds += rounds * (prefill + (answer_tokens - 1) * sum(end_seconds) / 2)
        answers_left -= rounds * at_once
    forward_part_flops = forward_flops(stack, context, causal=True)
    spared_flops = forward_part_flops["head"] * (context - answer_tokens) // context
    scoring_flops = (sum(forward_part_flops.values()) - spared_flops) * (rl_options["reference"] == "yes")
    token_flops = flops_a_token(a, question.model, True)
    training_flops = token_flops["device"] * context - (2 if a["lora"] else 3) * spared_flops
    return {
        "sampling": sampling_seconds,
        "scoring": answers * scoring_flops / flop_per_second,
        "training": answers * training_flops / flop_per_second,
    }


def plan_grpo(reader: Reader = read_shape, /, **asked: Any) -> dict[str, Any]:
    """What each phase of a step of GRPO holds and takes at least; `schema.json` says what is in the answer.

    Raises ValueError with a sentence that names the option and the mend.
    """
    question = read_question(asked, reader)
    moment, lines_by_phase = bytes_by_phase(question)
    sizes = {phase: sum(lines.values()) for phase, lines in lines_by_phase.items()}
    fullest = max(PHASES, key=lambda phase: sizes[phase])
    at_once, _ = sampled_at_once(question)
    memory = question.gpu.memory_bytes
    return {
        "parameters": parameter_totals(question.model.stack) | {"trained": count_trained(question.a, question.model)},
        "peaks_in": fullest,
        "training_peaks_at": moment,
        "memory_bytes": lines_by_phase[fullest] | {"total": sizes[fullest]},
        "phases": {phase: lines | {"total": sizes[phase]} for phase, lines in lines_by_phase.items()},
        "gpu_bytes": memory,
        "gpu_bytes_are": capacity_source(question.a),
        "fits": sizes[fullest] <= memory,
        "headroom_bytes": memory - sizes[fullest],
        "answers": question.answers,
        "answers_at_once": at_once,
        "least_seconds": least_seconds(question),
    }
