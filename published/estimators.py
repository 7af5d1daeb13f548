"""What other programs estimate of the runs that others published: each is asked with the command that stands beside it.

`python -m published.estimators measurements/published CLONES` runs what is new, with `--anew` everything,
and writes what was printed into measurements/published/estimators. CLONES holds the programs' repositories as
<owner>/<name>; the `python` that is found first has their packages.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from flops_bytes.model.shapes import Decoder, parameters
from flops_bytes.plan.options import named_shape, read_options
from published.readings import GIB, Compared, Reading, asked, compare, read_all

WRITTEN = "# Written by `python -m published.estimators`. No hand types what follows."
UNITS = {"gib": GIB, "bytes": 1}
MIXED = ("bf16-master", "autocast")  # recipes with weights, gradients and moments in float32
CARDS = {"A100 80GB SXM": "a100-sxm-80gb", "H100 SXM": "h100-sxm-80gb"}  # as llm-analysis calls them


def ask_accelerate(shape: Decoder, told: Mapping[str, Any]) -> str | None:
    if told["gpus"] > 1 or told["recipe"] not in MIXED or not shape.gated:
        return None
    kind = "Qwen2Config" if shape.qkv_biases else "LlamaConfig"
    return f"""python - <<'END'
from accelerate import init_empty_weights
from accelerate.commands.estimate import estimate_training_usage
from accelerate.utils import calculate_maximum_sizes, convert_bytes
from transformers import AutoModel, {kind}
config = {kind}(
    num_hidden_layers={shape.layers}, hidden_size={shape.d_model}, num_attention_heads={shape.heads},
    num_key_value_heads={shape.kv_heads}, intermediate_size={shape.d_ff}, vocab_size={shape.vocab},
)
with init_empty_weights():
    model = AutoModel.from_config(config)
total_size, largest_layer = calculate_maximum_sizes(model)
print(convert_bytes(max(estimate_training_usage(total_size, "float16").values())))
END"""


def ask_deepspeed(shape: Decoder, told: Mapping[str, Any]) -> str | None:
    gpus = told["gpus"]
    if told["recipe"] not in MIXED or (gpus > 1 and told["zero"] != "3"):
        return None
    name = "estimate_zero3_model_states_mem_needs_all_cold"
    sizes = f"total_params={sum(parameters(shape).values())}, largest_layer_params={shape.vocab * shape.d_model}"
    cards = f"num_gpus_per_node={min(gpus, 8)}, num_nodes={max(gpus // 8, 1)}"
    return f"python -c 'from deepspeed.runtime.zero.stage3 import {name}; {name}({sizes}, {cards})'"


def stage(told: Mapping[str, Any]) -> str:
    """ZeRO's; of one GPU, which DeepSpeed may be told all the same, none: there is nothing to share."""
    return str(told["zero"]) if told["gpus"] > 1 else "0"


def ask_eleuther(shape: Decoder, told: Mapping[str, Any]) -> str | None:
    if told["recipe"] not in MIXED or told["checkpointing"] not in ("none", "full"):
        return None
    sizes = f"--num-layers={shape.layers} --hidden-size={shape.d_model} --num-attention-heads={shape.heads}"
    sizes += f" --kv-size-ratio={shape.kv_heads / shape.heads:g} --ffn-expansion-factor={shape.d_ff / shape.d_model:g}"
    sizes += f" --num-mlp-linears={2 + shape.gated} --vocab-size={shape.vocab}"
    batch = f"--sequence-length={told['context']} --batch-size-per-gpu={told['micro_batch']}"
    cards = f"--num-gpus={told['gpus']} --zero-stage={stage(told)}"
    again = " --checkpoint-activations" if told["checkpointing"] == "full" else ""
    return f"python calc/calc_transformer_mem.py {sizes} {batch} {cards}{again}"


def ask_llm_analysis(shape: Decoder, told: Mapping[str, Any]) -> str | None:
    again = {"none": 0, "full": 4}.get(told["checkpointing"])
    if told["recipe"] not in (*MIXED, "bf16") or again is None or told["gpu"] not in CARDS:
        return None
    model = {"name": "asked", "num_layers": shape.layers, "n_head": shape.heads, "hidden_dim": shape.d_model}
    model |= {"vocab_size": shape.vocab, "max_seq_len": told["context"], "num_key_value_heads": shape.kv_heads}
    model |= {"ffn_embed_dim": shape.d_ff, "mlp_gated_linear_units": bool(shape.gated)}
    state = " --master_weights_dtype_bytes=2 --other_op_bytes=2" if told["recipe"] == "bf16" else ""
    return f"""echo '{json.dumps(model)}' > asked.json
python -m llm_analysis.analysis train --model_name=asked.json --gpu_name={CARDS[told["gpu"]]} \
--total_num_gpus={told["gpus"]} --ds_zero={stage(told)} --batch_size_per_gpu={told["micro_batch"]} \
--seq_len={told["context"]} --activation_recomputation={again}{state}"""


def ask_simumax(shape: Decoder, told: Mapping[str, Any]) -> str | None:
    again = told["checkpointing"] == "full"
    if told["gpus"] > 1 or told["recipe"] != "bf16-master" or told["checkpointing"] not in ("none", "full"):
        return None
    recompute = f', recompute_granularity="full_block", recompute_layer_num={shape.layers}' if again else ""
    return f"""PYTHONPATH=. python - <<'END'
from simumax.core.config import ModelConfig, StrategyConfig, SystemConfig
from simumax.core.perf_llm import PerfLLM
from simumax.utils import get_simu_system_config
perf = PerfLLM()
perf.configure(
    strategy_config=StrategyConfig(
        seq_len={told["context"]}, micro_batch_size={told["micro_batch"]}, micro_batch_num={told["accumulation"]},
        dtype="bf16", world_size=1, tp_size=1, pp_size=1, ep_size=1, etp_size=1, zero_state=0,
        enable_recompute={again}{recompute},
    ),
    model_config=ModelConfig(
        model_type="dense", model_name="asked", hidden_size={shape.d_model}, head_num={shape.heads},
        kv_head_num={shape.kv_heads}, head_size={shape.head_dim}, intermediate_size={shape.d_ff},
        layer_num={shape.layers}, vocab_size={shape.vocab}, use_swiglu={bool(shape.gated)},
    ),
    system_config=SystemConfig.init_from_config_file(get_simu_system_config("a100_pcie")),
)
perf.run_estimate()
print(perf.analysis_mem())
END"""


ASK: dict[str, Callable[[Decoder, Mapping[str, Any]], str | None]] = {
    "accelerate": ask_accelerate,
    "deepspeed": ask_deepspeed,
    "eleuther": ask_eleuther,
    "llm-analysis": ask_llm_analysis,
    "simumax": ask_simumax,
}


def commands(name: str, settings: Mapping[str, Any]) -> list[str]:
    """What asks an estimator about a run, once for each thing that it can be; nothing, if it cannot be expressed."""
    found = []
    for question in asked(settings):
        told = read_options(question)
        plain = told["optimizer"] == "adamw" and told["update"] != "in-backward" and told["offload"] == "no"
        if told["lora"] or not plain:
            return []
        found.append(ASK[name](named_shape(told), told))
    return [] if None in found else sorted({command for command in found if command})


def read_said(folder: Path) -> dict[str, dict[str, Any]]:
    """The estimators by name. Of each, `runs`: a command, what it printed, and of which sources, tables and rows it is.

    Of what is printed, tensors come first, then what the allocator reserves, if that is printed too.
    """
    return {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.toml"))}


def estimates(folder: Path, compared: Iterable[Compared]) -> Iterator[tuple[str, Compared, tuple[float, float]]]:
    """Of each estimator and each reading that it expresses, the lowest and the highest that it says."""
    estimators = read_said(folder)
    for each in compared:
        reading, gpus = each.reading, each.reading.about.get("summed_gpus", 1)
        for name, estimator in estimators.items():
            (unit,) = re.compile(estimator["prints"]).groupindex
            told = [run["printed"] for run in estimator["runs"] if row_of(reading) in run["rows"]]
            if not reading.what.startswith("memory"):  # which meter it was is known
                place = 0 if reading.what.startswith(("allocated", "active")) else -1
                told = [[printed[place]] for printed in told]
            said = [gpus * float(literal) * UNITS[unit] for printed in told for literal in printed]
            if said:
                low = 1e9 / GIB if reading.what == "memory_g" else 1  # whether a G is 1e9 bytes or 2**30
                yield name, each, (min(said) * low, max(said))


def row_of(reading: Reading) -> list[str | int]:
    return [reading.source, reading.table, reading.row]


def run(path: Path, readings: Iterable[Reading], clones: Path, anew: bool) -> int:
    """Asks an estimator about every reading that it expresses, and writes what it prints; how many commands were run.

    Unless `anew`, what a command printed before stands.
    """
    text = path.read_text(encoding="utf-8").partition(WRITTEN)[0].rstrip()
    estimator, count = tomllib.loads(text), 0
    before = tomllib.loads(path.read_text(encoding="utf-8")).get("runs", [])
    kept = {} if anew else {run["command"].strip(): run["printed"] for run in before}
    lines = [text, "", WRITTEN]
    for command, rows in wanted(path.stem, readings).items():
        count += command not in kept
        printed = kept.get(command) or ask(estimator, command, clones)
        lines += ["", "[[runs]]", f"command = '''\n{command}\n'''"]
        lines += [f"printed = {json.dumps(printed)}", f"rows = {json.dumps(rows)}"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return count


def wanted(name: str, readings: Iterable[Reading]) -> dict[str, list[list[str | int]]]:
    """The commands that ask an estimator about readings, and of which rows each is."""
    found: dict[str, list[list[str | int]]] = {}
    for reading in readings:
        for command in commands(name, reading.settings):
            rows = found.setdefault(command, [])
            rows += [row_of(reading)] if row_of(reading) not in rows else []
    return found


def ask(estimator: Mapping[str, Any], command: str, clones: Path) -> list[str]:
    """What an estimator prints, run in its repository at its commit. Raises ValueError if it is nothing."""
    folder = clones / estimator.get("repository", "")
    if commit := estimator.get("commit"):
        subprocess.run(["git", "-C", str(folder), "checkout", "-q", commit], check=True)
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True)
    if printed := re.findall(estimator["prints"], done.stdout, re.MULTILINE):
        return list(printed)
    raise ValueError(f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def main(arguments: list[str]) -> None:
    """Asks every estimator about the readings that the planner can be asked."""
    folder, clones = map(Path, arguments[:2])
    readings = [
        each.reading for each in compare(each for each in read_all(folder) if each.kind == "memory") if each.said
    ]
    for path in sorted((folder / "estimators").glob("*.toml")):
        print(f"{path.stem}: {run(path, readings, clones, '--anew' in arguments)} commands were run")


if __name__ == "__main__":
    main(sys.argv[1:])
