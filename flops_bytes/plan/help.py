"""The planner's options as `--help` shows them: those that most people need, or all of them in groups."""

import argparse
from collections.abc import Mapping

from flops_bytes.plan.options import OPTIONS, SERVED, Option
from flops_bytes.plan.parallel import DEGREES, PARALLEL
from flops_bytes.plan.rl import RL

DESCRIPTION = "Does a model fit on so many GPUs, how long does it train, what does it cost, how many does it serve?"
# What the command does with an answer, by its name: whether it is followed by a value, and what it is called then.
OWN = {
    "help": Option("all", None, "show a dozen options; all: every option, in groups"),
    "run_by": Option(
        "SOFTWARE",
        None,
        "who runs it, such as torchtitan or llama-factory: what you do not say is as its own files have it",
    ),
    "find": Option("", False, "what fits, the fastest first; what you ask for stays"),
    "explain": Option("", False, "every line of the answer, not the dozen"),
    "json": Option("", False, "the answer as JSON"),
    "schema": Option("", False, "print what that JSON holds, as a JSON Schema"),
    "snapshot": Option("PATH", None, "write the training step as a snapshot, which pytorch.org/memory_viz opens"),
}
SHORT = {  # in a line each
    "task": "train, serve or rl (GRPO); train if not given",
    "model": "such as llama-3-8b or qwen3-8b",
    "config": "instead: a config.json of Hugging Face",
    "gpu": "such as 'H100 SXM' or 'RTX 4090'",
    "gpus": "how many of them; 1 if not given",
    "context": "tokens of a sequence, such as 8192 or 128k",
    "micro_batch": "sequences that a GPU takes at once",
    "trained": "all weights, lora, qlora or qlora-double",
    "zero": "0 to 3, ZeRO's stage; 3 is what FSDP does",
    "tokens": "to train on, such as 15T",
    "run_by": "whose defaults stand, such as torchtitan",
    "price": "of a GPU for an hour, such as '$2.5'",
    "find": OWN["find"].meaning,
    "explain": OWN["explain"].meaning,
    "help": OWN["help"].meaning,
}
GROUPS: dict[str, tuple[str, ...]] = {
    "the model and the cards": (
        *("task", "model", "config", "shape", "gpu", "gpu_memory", "gpu_peak", "gpu_bandwidth", "gpus"),
        *("link", "node_gpus", "network_cards", "bus_bandwidth", "tp_bandwidth", "price"),
    ),
    "a step's sequences": ("context", "micro_batch", "accumulation", "micro_batches", "global_batch", "lengths"),
    "what is trained": (
        *("trained", "lora", "lora_on", "lora_inputs", "lora_dropout", "base", "optimizer", "offload"),
    ),
    "how a layer computes, and what it keeps": (
        *("recipe", "matmuls", "linear", "attention", "qkv_made", "dropout"),
        *("checkpointing", "checkpoint_every", "loss", "chunks"),
    ),
    "what GPUs share": (
        *("zero", "replicas", *DEGREES, "etp", "cp_by", "sequence", "overlap_tp"),
        *("schedule", "virtual_stages", "stages", "rank"),
    ),
    "a software's habits, which --run-by or its files say": (
        *("layers", "reentrant", "update", "trainer", "sharding_by", "reduce_bucket", "quantized_by"),
    ),
    "memory beside the step": ("allowance", "alloc_conf"),
    "time": (
        *("tokens", "text", "language", "bytes_a_token", "days", "mfu", "tokens_per_second", "step_seconds"),
        *("pairs", "matmul_share", "attention_share"),
    ),
    "with --task serve": tuple(name for name in SERVED if name != "gpu_bandwidth"),
    "with --task rl": tuple(RL),
    "the answer": tuple(OWN),
}


def known() -> Mapping[str, Option]:
    """All options that can be given, by their names."""
    every = OPTIONS | PARALLEL | RL | OWN
    return {name: option for name, option in every.items() if option.kind != "refused"}  # another name of a degree


def parser(all_options: bool, epilog: str = "") -> argparse.ArgumentParser:
    """The command's, whose help shows all options, or those that most people need."""
    made = argparse.ArgumentParser(
        prog="flops-bytes plan",
        usage="flops-bytes plan [options]",
        description=DESCRIPTION,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    options, groups = known(), GROUPS if all_options else {"options": tuple(SHORT)}
    for title, names in groups.items():
        group = made.add_argument_group(title)
        for name in names:
            meaning = options[name].meaning if all_options else SHORT[name]
            add(group, name, options[name], meaning.replace("%", "%%"))
    for name in options if not all_options else ():
        if name not in SHORT:
            add(made, name, options[name], argparse.SUPPRESS)
    return made


def add(to: argparse._ActionsContainer, name: str, option: Option, meaning: str) -> None:
    flags = [f"--{name.replace('_', '-')}"]
    if name in DEGREES:
        flags.append(f"--{DEGREES[name]}-parallel")
    if name == "help":
        to.add_argument("-h", *flags, nargs="?", const="short", choices=("short", "all"), metavar="all", help=meaning)
    elif name in OWN and option.default is False:
        to.add_argument(*flags, action="store_true", help=meaning)
    else:
        to.add_argument(*flags, metavar=str(option.kind) if name in OWN else "…", help=meaning)
