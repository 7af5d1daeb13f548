"""Training scripts that people know, counted as they are: a configuration and random tokens stand for what they load.

`python -m flops_bytes.counting.check.scripts --checkouts FOLDER [NAME…]` runs them from checkouts in FOLDER, each
called as its repository is, and prints a table. What they import has to be on the PYTHONPATH.
"""

import argparse
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch.utils.data import IterableDataset

from flops_bytes.counting.command import script
from flops_bytes.counting.counted import Counted
from flops_bytes.counting.ranks import count_ranks
from flops_bytes.counting.step_trace import Uncountable

LIMIT = 600  # seconds a script
VOCABULARY = 1000  # of random tokens


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(VOCABULARY, shape)


@contextmanager
def of_torchtitan_02() -> Iterator[None]:
    """torchtitan 0.2: its data set and its tokenizer."""
    tokenizer, texts = map(import_module, ("torchtitan.components.tokenizer", "torchtitan.hf_datasets.text_datasets"))

    class Texts(IterableDataset[Any]):
        def __init__(self, *_: Any, seq_len: int, **__: Any) -> None:
            self.length = seq_len

        def __iter__(self) -> Iterator[Any]:
            while True:
                row = tokens(self.length + 1)
                yield {"input": row[:-1]}, row[1:]

    def load(self: Any, *_: Any) -> None:
        self.eos_id = 0

    with (
        patch.object(texts, "HuggingFaceTextDataset", Texts),
        patch.object(tokenizer.HuggingFaceTokenizer, "__init__", load),
    ):
        yield


@contextmanager
def of_torchtitan_2024() -> Iterator[None]:
    """torchtitan of its benchmarks: its data loader, and its tokenizer of 128,256 words."""
    datasets = import_module("torchtitan.datasets")

    class Rows(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            while True:
                rows = tokens(self[0], self[1] + 1)
                yield rows[:, :-1], rows[:, 1:]

    with (
        patch.object(datasets, "build_tokenizer", lambda *_: SimpleNamespace(n_words=128256)),
        patch.object(datasets, "build_hf_data_loader", lambda *given: Rows(given[3:5])),
    ):
        yield


@contextmanager
def of_torchtitan() -> Iterator[None]:
    """torchtitan of August 2026: its data loader and its tokenizer."""
    tokenizer, loader = map(import_module, ("torchtitan.components.tokenizer", "torchtitan.components.data.loader"))

    def load(self: Any, config: Any, *, num_tokens_per_batch: int, max_context_length: int, **_: Any) -> None:
        def batches() -> Iterator[Any]:
            while True:
                row = tokens(num_tokens_per_batch + 1)
                yield {"input": row[:-1], "positions": torch.arange(num_tokens_per_batch) % max_context_length}, row[1:]

        self._iterator = batches()

    def read(self: Any, *_: Any, **__: Any) -> None:
        self.eos_id = 0

    with (
        patch.object(loader.GrainDataLoader, "__init__", load),
        patch.object(tokenizer.HuggingFaceTokenizer, "__init__", read),
        patch.object(torch.distributed, "set_timeout", lambda *_: None, create=True),  # of a PyTorch after 2.13
    ):
        yield


def modules(**parts: dict[str, Any]) -> AbstractContextManager[Any]:
    """Modules that are not here, by what is taken of them; of a package's, "__" is the dot."""
    found: dict[str, ModuleType] = {}
    for name, content in parts.items():
        dotted = name.replace("__", ".")
        found[dotted] = ModuleType(dotted)
        vars(found[dotted]).update(content)
    for name in [name.rpartition(".")[0] for name in found if "." in name]:
        found.setdefault(name, ModuleType(name))
    return patch.dict(sys.modules, found)


def flash(q: Any, k: Any, v: Any, causal: bool = False, **_: Any) -> torch.Tensor:
    """flash_attn's, which has heads after the sequence; its windows take as many bytes."""
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True).transpose(1, 2)


class Turn(torch.autograd.Function):
    """Rotary positions as flash_attn's one kernel."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, *tables: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(*tables)
        return torch.empty_like(x)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        return torch.empty_like(gradients[0]), None, None


def turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, **_: Any) -> Any:
    return Turn.apply(x, cos, sin)  # type: ignore[no-untyped-call]


def of_flash_attn() -> AbstractContextManager[Any]:
    def normalize(x: torch.Tensor, weight: torch.Tensor, *_: Any, **named: Any) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, named["eps"])

    return modules(
        flash_attn__flash_attn_interface={"flash_attn_func": flash},
        flash_attn__layers__rotary={"apply_rotary_emb": turn},
        flash_attn__ops__triton__layer_norm={"layer_norm_fn": normalize},
    )


LLAMA = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32}
LLAMA |= {"num_key_value_heads": 32, "vocab_size": 32000}


@contextmanager
def of_picotron() -> Iterator[None]:
    """Its tokenizer, its data set, and the file of weights whose names it reads."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaConfig

    def configure(*_: Any) -> Any:
        config = LlamaConfig(**LLAMA)
        config.rope_theta = 10000.0  # where transformers before 5 has it
        return config

    class File:
        def __init__(self, *_: Any, **__: Any) -> None:
            with torch.device("meta"):
                self.weights = AutoModelForCausalLM.from_config(LlamaConfig(**LLAMA)).state_dict()

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: Any) -> None:
            pass

        def keys(self) -> Any:
            return self.weights.keys()

        def get_tensor(self, name: str) -> torch.Tensor:
            return torch.empty(self.weights[name].shape)

    with (
        of_flash_attn(),
        patch.object(AutoTokenizer, "from_pretrained", lambda *_: None),
        patch.object(AutoConfig, "from_pretrained", configure),
    ):
        checkpoint, data, utils = (import_module(f"picotron.{part}") for part in ("checkpoint", "data", "utils"))

        def rows(_: Any, __: Any, ___: Any, length: int, *____: Any) -> Any:
            return [{"input_ids": [0] * (length + 1)}] * 1000

        with (
            patch.object(data, "load_dataset", lambda *_, **__: None),
            patch.object(data.MicroBatchDataLoader, "tokenize_dataset", rows),
            patch.object(checkpoint, "safe_open", File),
            patch.object(utils, "download_model", lambda *_: None),
        ):
            yield


PICOTRON: dict[str, Any] = {
    "distributed": {"tp_size": 2, "cp_size": 1, "pp_size": 4, "dp_size": 2, "pp_engine": "1f1b", "use_cpu": False},
    "model": {"name": "Llama 2 7B", "use_fused_adam": True},
    "training": {"seed": 42, "learning_rate": 3e-4, "total_train_steps": 9, "seq_length": 2048, "micro_batch_size": 4}
    | {"gradient_accumulation_steps": 8, "max_tokens": None},
    "dataset": {"name": "", "num_workers": 0, "num_proc": 1},
    "checkpoint": {"save_frequency": 300, "load_path": ""},
    "logging": {"use_wandb": False},
    "environment": {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "FLASH_ATTEN": "1", "HF_TOKEN": ""},
}


@contextmanager
def of_nanochat() -> Iterator[None]:
    """Its tokenizer of 32,768 words, its data loader, and FlashAttention 3."""
    flash_3 = SimpleNamespace(flash_attn_interface=SimpleNamespace(flash_attn_func=flash))

    def load(_: Any, rows: int, length: int, *__: Any, **___: Any) -> Iterator[Any]:
        while True:
            both = tokens(2, rows, length)
            yield both[0], both[1], {"epoch": 1, "pq_idx": 0, "rg_idx": 0}

    class Words:
        def get_vocab_size(self) -> int:
            return 32768

    with modules(kernels={"get_kernel": lambda _: flash_3, "has_kernel": all}):
        dataloader, tokenizer = map(import_module, ("nanochat.dataloader", "nanochat.tokenizer"))

        with (
            patch.object(tokenizer, "get_tokenizer", Words),
            patch.object(tokenizer, "get_token_bytes", lambda device: tokens(32768)),
            patch.object(dataloader, "tokenizing_distributed_data_loader_with_state_bos_bestfit", load),
        ):
            yield


def train_by_transformers(version: str) -> None:
    """Hugging Face's Trainer on accelerate's FSDP, for want of a script that everyone has."""
    from transformers import AutoModelForCausalLM, LlamaConfig, Trainer, TrainingArguments

    layer, reshard = "LlamaDecoderLayer", version == "2" or "full_shard"
    options = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        bf16=True,
        per_device_train_batch_size=1,
        max_steps=3,
        report_to=[],
        fsdp="full_shard auto_wrap",
        fsdp_config={
            "version": int(version),
            "transformer_layer_cls_to_wrap": [layer],
            "reshard_after_forward": reshard,
        },
    )
    rows = [{"input_ids": [1] * 2048, "labels": [1] * 2048}] * 1000
    Trainer(model=AutoModelForCausalLM.from_config(LlamaConfig(**LLAMA)), args=options, train_dataset=rows).train()


def train_in_stages(schedule: str, cut: str) -> None:
    """torch.distributed.pipelining's tutorial: stages by hand, or of one model that is traced and cut."""
    import torch.distributed as dist
    from torch import nn
    from torch.distributed import pipelining

    dist.init_process_group("nccl")
    rank, stages = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", rank % 8)
    layers = [nn.TransformerEncoderLayer(1024, 16, 4096, 0.0, batch_first=True) for _ in range(2 * stages)]
    x = torch.randn(32, 512, 1024, device=device)
    if cut == "traced":
        where = {str(2 * stage): pipelining.SplitPoint.BEGINNING for stage in range(1, stages)}
        stage: Any = pipelining.pipeline(nn.Sequential(*layers), (x[:2],), split_spec=where).build_stage(rank, device)
        part = stage.submod
    else:
        part = nn.Sequential(*layers[2 * rank : 2 * rank + 2]).to(device)
        stage = pipelining.PipelineStage(part, rank, stages, device)
    run = getattr(pipelining, schedule)(stage, 16, loss_fn=F.mse_loss)
    optimizer = torch.optim.AdamW(part.parameters())
    for _ in range(3):
        run.step(*[x] * (rank == 0), **{"target": x} if rank == stages - 1 else {})
        optimizer.step()
        optimizer.zero_grad()


class Case(NamedTuple):
    """A script as torchrun would start it."""

    checkout: str  # a folder
    file: str | Callable[..., None]  # or a function of this one
    arguments: str = ""
    world: int = 8
    ranks: tuple[int, ...] | None = (0,)  # None: those that differ from rank 0
    stand_in: Callable[[], AbstractContextManager[Any]] = nullcontext

    def run(self, folder: Path) -> None:
        """The script, on one rank."""
        root, asked = folder / self.checkout, self.arguments.split()
        with (
            patch.object(sys, "path", [str(root), *sys.path]),
            patch.object(sys, "argv", [str(self.file), *asked]),  # which some read when they are imported
            self.stand_in(),
        ):
            self.file(*asked) if callable(self.file) else script(root / self.file, "", asked)()


TITAN = ("torchtitan-v0.2.2", "torchtitan/train.py")


def titan(config: str, world: int, *more: str, ranks: tuple[int, ...] | None = (0,)) -> Case:
    path = f"torchtitan/models/{config}.toml"
    arguments = f"--job.config_file {{root}}/{path} --metrics.log_freq 1 " + " ".join(more)
    return Case(*TITAN, arguments, world, ranks, of_torchtitan_02)


def new_titan(model: str, config: str, world: int, *more: str) -> Case:
    """Of August 2026."""
    off = "--checkpoint.no-enable --training.disable_cuda_graphs --parallelism.spmd_backend partial_dtensor"
    arguments = f"--module {model} --config {config} --metrics.log_freq 1 {off} " + " ".join(more)
    return Case("torchtitan", TITAN[1], arguments, world, (0,), of_torchtitan)


def published(config: str, world: int, *more: str) -> Case:
    """As the benchmarks of December 2024 ran it (benchmarks/llama3_h100_202412_torchtitan.md)."""
    arguments = f"--job.config_file {{root}}/train_configs/llama3_{config}.toml --metrics.log_freq 1 " + " ".join(more)
    return Case("torchtitan-9dec370", "train.py", arguments, world, (0,), of_torchtitan_2024)


CASES: dict[str, Case] = {
    "published-8b-8": published("8b", 8, "--training.batch_size 2"),
    "published-8b-128": published("8b", 128, "--training.batch_size 2"),
    "published-70b-256": published("70b", 256, "--training.batch_size 16"),
    "published-8b-long": published("8b", 8, "--training.seq_len 32768 --activation_checkpoint.mode full"),
    "published-8b-cp": published(
        "8b",
        8,
        "--training.seq_len 65536 --activation_checkpoint.mode full --experimental.context_parallel_degree 2",
    ),
    "new-titan-8b": new_titan("llama3", "llama3_8b", 64),
    "new-titan-70b": new_titan("llama3", "llama3_70b", 64),
    "new-titan-moe": new_titan("qwen3", "qwen3_moe_debug", 8),
    "new-titan-deepseek": new_titan("deepseek_v3", "deepseek_v3_debugmodel", 8),
    "nanochat": Case("nanochat", "scripts/base_train.py", "--depth 20 --eval-every -1", 8, (0, 7), of_nanochat),
    "picotron": Case("picotron", "train.py", "--config {picotron}", 16, None, of_picotron),
    "trainer": Case(".", train_by_transformers, "2"),
    "trainer-fsdp-1": Case(".", train_by_transformers, "1"),
    "stages": Case(".", train_in_stages, "Schedule1F1B by-hand", 8, None),
    "stages-gpipe": Case(".", train_in_stages, "ScheduleGPipe by-hand", 4, None),
    "stages-traced": Case(".", train_in_stages, "Schedule1F1B traced", 4, None),
    "tp": Case("examples", "distributed/tensor_parallelism/tensor_parallel_example.py"),
    "sp": Case("examples", "distributed/tensor_parallelism/sequence_parallel_example.py"),
    "fsdp-tp": Case("examples", "distributed/tensor_parallelism/fsdp_tp_example.py"),
    "fsdp2": Case("examples", "distributed/FSDP2/example.py", "--mixed-precision --explicit-prefetching"),
    "ddp": Case("examples", "distributed/ddp/example.py"),
    "titan-8b": titan("llama3/train_configs/llama3_8b", 64),
    "titan-70b": titan("llama3/train_configs/llama3_70b", 64),
    "titan-8b-tp": titan("llama3/train_configs/llama3_8b", 16, "--parallelism.tensor_parallel_degree 4"),
    "titan-8b-pp": titan(
        "llama3/train_configs/llama3_8b",
        64,
        "--parallelism.pipeline_parallel_degree 8 --parallelism.pipeline_parallel_schedule 1F1B",
        "--training.local_batch_size 8",
        ranks=None,
    ),
    "titan-70b-3d": titan(
        "llama3/train_configs/llama3_70b", 256, "--parallelism.pipeline_parallel_degree 4", ranks=None
    ),
    "titan-8b-cp": titan("llama3/train_configs/llama3_8b", 16, "--parallelism.context_parallel_degree 2"),
    "titan-8b-ddp": titan(
        "llama3/train_configs/llama3_8b",
        8,
        "--parallelism.data_parallel_replicate_degree 8 --parallelism.data_parallel_shard_degree 1",
    ),
    "titan-8b-hsdp": titan("llama3/train_configs/llama3_8b", 16, "--parallelism.data_parallel_replicate_degree 2"),
    "titan-deepseek": titan(
        "deepseek_v3/train_configs/debug_model",
        8,
        "--parallelism.expert_parallel_degree 4 --activation_checkpoint.mode full",
    ),
    "titan-deepseek-16b": titan("deepseek_v3/train_configs/deepseek_v3_16b", 64, "--activation_checkpoint.mode full"),
    "titan-qwen3-moe": titan("qwen3/train_configs/qwen3_moe_debug", 8),
    "titan-llama4": titan(
        "llama4/train_configs/debug_model",
        8,
        "--parallelism.expert_parallel_degree 4 --activation_checkpoint.mode full",
    ),
}


class Ran(NamedTuple):
    """What came of a script."""

    found: dict[int, Counted]
    refused: str
    seconds: float
    cpu_seconds: float  # of all processes, on a machine that does other things too
    mib: int  # of the largest rank's process


def run(case: Case, folder: Path, loud: bool) -> Ran:
    """Counts a script; what it prints is dropped."""
    sizes, times = multiprocessing.Array("l", case.world), multiprocessing.Array("d", case.world)

    def step() -> None:
        with ExitStack() as stack:
            if not loud:
                stack.enter_context(redirect_stdout(StringIO()))
                stack.enter_context(redirect_stderr(StringIO()))
            try:
                case.run(folder)
            finally:
                rank, used = int(os.environ["RANK"]), resource.getrusage(resource.RUSAGE_SELF)
                sizes[rank], times[rank] = used.ru_maxrss, used.ru_utime + used.ru_stime

    def stop(*_: Any) -> None:
        raise Uncountable(f"is not counted within {LIMIT} seconds")

    started, found, refused = time.perf_counter(), dict[int, Counted](), ""
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT)
    try:
        found = count_ranks(step, case.world, case.ranks)
    except Uncountable as refusal:
        refused = str(refusal)
    finally:
        signal.alarm(0)
    return Ran(found, refused, time.perf_counter() - started, sum(times[:]), max(sizes[:]) // 1024)


def commit_of(checkout: Path) -> str:
    """As git has it, or what its folder is called by."""
    asked = ["git", "-C", str(checkout), "rev-parse", "--short=7", "HEAD"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return found or checkout.name.rpartition("-")[2]


def row(name: str, case: Case, ran: Ran, folder: Path) -> str:
    """Of the table."""
    commit = commit_of(folder / case.checkout) if isinstance(case.file, str) else f"PyTorch {torch.__version__}"
    start = f"| {name} | {commit} | {case.world} |"
    end = f"{ran.seconds:.0f} | {ran.cpu_seconds:.0f} | {ran.mib} |"
    if ran.refused:
        return f"{start} refused: {ran.refused} | | | | {end}"
    ranks = ", ".join(map(str, ran.found))
    peaks = ", ".join(f"{each.peak_bytes / 2**30:.2f}" for each in ran.found.values())
    flops = max(sum(each.flops.values()) for each in ran.found.values())
    sent: Counter[str] = Counter()
    for each in max(ran.found.values(), key=lambda each: sum(sent.sent_bytes for sent in each.sent)).sent:
        sent[each.collective] += each.sent_bytes
    told = ", ".join(f"{kind} {size / 2**30:.3g}" for kind, size in sent.most_common() if size)
    return f"{start} {ranks} | {peaks} | {flops:.4g} | {told} | {end}"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkouts", type=Path, required=True)
    parser.add_argument("--loud", action="store_true", help="prints what the scripts print, and what is counted")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    asked = parser.parse_args()
    print("| script | commit | ranks | counted | peak, GiB | FLOPs | sent, GiB | seconds | of CPUs | MiB |", flush=True)
    print(f"|{'---|' * 10}", flush=True)
    for name in asked.names or CASES:
        case, folder = CASES[name], asked.checkouts.resolve()
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(PICOTRON, file)
            file.flush()
            arguments = case.arguments.format(root=folder / case.checkout, picotron=file.name)
            ran = run(case._replace(arguments=arguments), folder, asked.loud)
        print(row(name, case, ran, folder), flush=True)
        if asked.loud:
            print(*(f"rank {rank}\n{found}\n{found.sharded}" for rank, found in ran.found.items()), sep="\n")


if __name__ == "__main__":
    main()
