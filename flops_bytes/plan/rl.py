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
from flops_bytes.model.shapes import quoted
from flops_bytes.model.stack import cache_bytes, forward_flops, parameters, prefill_flops
from flops_bytes.plan.model import Model, Reader, read_shape, refuse_long, totals
from flops_bytes.plan.options import OPTIONS, Option, capacity_source, read, read_gpu, read_options
from flops_bytes.plan.serving import decode_seconds, forward_bytes
from flops_bytes.plan.training import held_at, read_format, recipe_of, refuse, trained_of, why_of, work
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
READ_AS = {"length": "context", "count": "accumulation", "share": "mfu", "bytes": "allowance"}  # options of a kind
TAKEN: tuple[str, ...] = ("model", "config", "shape", "gpu", "gpu_memory", "gpu_peak", "gpus", "context", "allowance")
TAKEN += ("micro_batch", "accumulation", "recipe", "layers", "attention", "checkpointing", "checkpoint_every")
TAKEN += ("lora", "lora_on", "base", "optimizer", "update", "offload")
STATE = ("weights", "adapters", "master", "optimizer", "reduced", "allowance")  # lines that no phase is without
PHASES = ("sampling", "scoring", "training")


def is_asked(asked: Mapping[str, Any]) -> bool:
    """Whether a question is about reinforcement learning."""
    return asked.get("task") == "rl"


class Question(NamedTuple):
    """What was asked, read."""

    a: dict[str, Any]  # the planner's own options
    ours: dict[str, Any]
    model: Model
    gpu: Gpu
    flop_per_second: float  # of matmuls, at their peak

    @property
    def answers(self) -> int:
        """Of a GPU in a step."""
        return int(self.a["micro_batch"] * self.a["accumulation"])

    @property
    def engine_bytes(self) -> int:
        return round((self.ours["engine_share"] or 0) * self.gpu.memory_bytes)

    @property
    def beside_bytes(self) -> int:
        """Of an engine, while it does not sample."""
        asleep = self.ours["engine_asleep"]
        return self.engine_bytes if asleep is None else int(asleep)


def read_own(name: str, value: Any) -> Any:
    """An option of RL as it is planned with. Raises ValueError with the mend."""
    kind, flag = RL[name].kind, f"--{name.replace('_', '-')}"
    if isinstance(kind, tuple):
        if value not in kind:
            raise ValueError(f"{flag}: {quoted(value)} is not known; choose {', '.join(kind)}")
        return value
    try:
        return read(READ_AS[kind], value)
    except ValueError as error:
        raise ValueError(str(error).replace(f"--{READ_AS[kind]}", flag, 1)) from None


def read_question(asked: Mapping[str, Any], reader: Reader) -> Question:
    """Raises ValueError with a sentence that names the option and the mend."""
    told = {name: value for name, value in asked.items() if value is not None and name != "task"}
    ours = {name: option.default for name, option in RL.items()}
    ours |= {name: read_own(name, told.pop(name)) for name in RL if name in told}
    for name in told:
        if name in OPTIONS and name not in TAKEN and told[name] != OPTIONS[name].default:
            raise ValueError(f"--{name.replace('_', '-')}: it is not derived for --task rl; leave it out")
    a = read_options({"recipe": "autocast"} | told)
    if a["recipe"] not in ("fp32", "autocast"):
        raise ValueError("--recipe: --task rl is derived for logits in float32; choose fp32 or autocast")
    if ours["answer"] is None or ours["answer"] >= a["context"]:
        why = "it is missing" if ours["answer"] is None else f"the context of {a['context']} has its prompt too"
        raise ValueError(f"--answer: {why}; give the tokens of an answer, fewer than --context has")
    if a["lora"] and ours["reference"] == "yes":
        raise ValueError("--reference: the model without its adapters is the reference; leave it out")
    if ours["engine_asleep"] is not None and ours["engine_share"] is None:
        raise ValueError("--engine-asleep: there is no engine; give --engine-share, or leave it out")
    model, gpu = reader(told, a), read_gpu(a)
    peaks = gpu.peak_flop_per_second
    refuse_long(a, model.stack)
    refuse(a, model, peaks)
    if why := why_of(a, model):
        raise ValueError(f"--model: no GRPO is planned, because {why}; choose another")
    return Question(a, ours, model, gpu, peaks[read_format(a, peaks)])


def sampled_at_once(question: Question) -> tuple[int, dict[str, int]]:
    """Answers, and the bytes for them: keys, values and one token's logits, or an engine's share of the card.

    Autocast turns keys in float32, and leaves values in 16 bits. An engine has weights in 16 bits, and room for a
    forward pass of a prompt; what remains is for keys and values.
    """
    ours, stack, context = question.ours, question.model.stack, question.a["context"]
    wanted = int(ours["samples"] or question.answers)
    if ours["engine_share"] is None:
        width = 4 if question.a["recipe"] == "fp32" else 3
        logits = 4 * wanted * stack.vocab
        return wanted, {"cache": wanted * cache_bytes(stack, context, width), "logits": logits}
    weights = 2 * sum(parameters(stack).values())
    room = question.engine_bytes - weights - forward_bytes(stack, context)
    fit = room // cache_bytes(stack, context)
    if fit < 1:
        raise ValueError("--engine-share: it has no room for the model in 16 bits and one answer; give it more")
    return min(wanted, fit), {"engine": question.engine_bytes}


def phases(question: Question) -> tuple[str, dict[str, dict[str, int]]]:
    """The moment of training that holds most, and what each phase holds, by line."""
    a, stack = question.a, question.model.stack
    answer, sequences = question.ours["answer"], a["micro_batch"]
    at = held_at(a, question.model, answer)
    # where one answer is trained on, the gradient of its logsumexp has three tensors as large as the logits
    if sequences == 1:
        at["loss"]["logits"] = at["loss"]["logits"] * 4 // 3
    moment = max(at, key=lambda moment: sum(at[moment].values()))
    frozen = RECIPES[recipe_of(a)].weights * sum(parameters(stack).values())
    held = {"reference": frozen if question.ours["reference"] == "yes" else 0}
    state = {line: at["forward"][line] for line in STATE if line in at["forward"]} | held
    beside = {"engine": question.beside_bytes}
    _, sampling = sampled_at_once(question)
    scored = {"logits": 2 * 4 * sequences * answer * stack.vocab}
    return moment_of(moment), {
        "sampling": state | sampling,
        "scoring": state | scored | beside,
        "training": at[moment] | held | beside,
    }


def least_seconds(question: Question) -> dict[str, float] | None:
    """Of each phase of a step, as if nothing but matmuls, attention and reads of weights and cache took time.

    Decoding steps grow by a token, so the mean of the first and the last is that of all but where the bound changes.
    """
    a, ours, stack, peak = question.a, question.ours, question.model.stack, question.flop_per_second
    bandwidth = question.gpu.bandwidth_bytes_per_second
    if not bandwidth:
        return None
    context, answer, answers = a["context"], ours["answer"], question.answers
    bits = 16 if ours["engine_share"] is not None or a["recipe"] != "fp32" else 32
    server = Server(bandwidth, peak, bits, bits // 8)
    most, _ = sampled_at_once(question)
    prompt, sampling, left = context - answer, 0.0, answers
    while left:
        now = min(most, left)
        turns = left // now  # alike
        ends = [decode_seconds(stack, now, tokens, server) for tokens in (prompt + 1, context - 1)]
        sampling += turns * (now * prefill_flops(stack, prompt) / peak + (answer - 1) * sum(ends) / 2)
        left -= turns * now
    forward = forward_flops(stack, context, causal=True)
    spared = forward["head"] * (context - answer) // context
    scoring = (sum(forward.values()) - spared) * (ours["reference"] == "yes")
    trained = work(a, question.model, True)
    training = trained["device"] * context - (2 if a["lora"] else 3) * spared
    return {"sampling": sampling, "scoring": answers * scoring / peak, "training": answers * training / peak}


def plan(reader: Reader = read_shape, /, **asked: Any) -> dict[str, Any]:
    """What each phase of a step of GRPO holds and takes at least; `schema.json` says what is in the answer.

    Raises ValueError with a sentence that names the option and the mend.
    """
    question = read_question(asked, reader)
    moment, held = phases(question)
    sizes = {phase: sum(lines.values()) for phase, lines in held.items()}
    fullest = max(PHASES, key=lambda phase: sizes[phase])
    at_once, _ = sampled_at_once(question)
    memory = question.gpu.memory_bytes
    return {
        "parameters": totals(question.model.stack) | {"trained": trained_of(question.a, question.model)},
        "peaks_in": fullest,
        "training_peaks_at": moment,
        "memory_bytes": held[fullest] | {"total": sizes[fullest]},
        "phases": {phase: lines | {"total": sizes[phase]} for phase, lines in held.items()},
        "gpu_bytes": memory,
        "gpu_bytes_are": capacity_source(question.a),
        "fits": sizes[fullest] <= memory,
        "headroom_bytes": memory - sizes[fullest],
        "answers": question.answers,
        "answers_at_once": at_once,
        "least_seconds": least_seconds(question),
    }
