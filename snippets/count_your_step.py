# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""A step of one's own is counted without a GPU: by kind, by line of code, and on a card; then watched as it runs."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from linecache import getline
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor import parallel as tp
from torch.utils.checkpoint import checkpoint

from flops_bytes.counting.count import count, fit
from flops_bytes.counting.counted import Counted
from flops_bytes.counting.ranks import count_ranks
from flops_bytes.parallel.sharding import fsdp_payload, ring_bytes
from flops_bytes.tools import compare
from flops_bytes.tools.snapshot import Life, follow, line_of, read
from flops_bytes.tools.watch import watch
from flops_bytes_data import step_memory


# --8<-- [start:make]
def heads(x: Tensor) -> Tensor:
    return x.view(*x.shape[:2], -1, 64).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.q, self.k, self.v, self.out = (nn.Linear(d, d) for _ in range(4))
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        q, k, v = heads(self.q(y)), heads(self.k(y)), heads(self.v(y))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        hidden = F.gelu(self.up(self.norm2(x)))
        x = x + self.down(hidden)
        return x


def make(
    change: Callable[[nn.Sequential], object] = lambda model: None,
) -> Callable[[], None]:
    V, d = 50_304, 768  # vocabulary, width
    layers = [nn.Embedding(V, d), *(Block(d) for _ in range(12)), nn.Linear(d, V)]
    model = nn.Sequential(*layers).cuda()
    change(model)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        tokens = torch.randint(V, (8, 1024), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(tokens)
            loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


# --8<-- [end:make]


# --8<-- [start:count]
found = count(make)
print(found)
# --8<-- [end:count]
needed_bytes = found.peak_bytes
state_bytes = sum(found.kinds[kind] for kind in ("weights", "optimizer state"))

LINES = {  # what each of the listed lines of this file has in it, for the figure
    "loss": "loss = F.cross_entropy(",
    "backward": "loss.backward(",
    "hidden": "hidden = F.gelu(",
    "logits": "logits = model(",
    "qkv": "q, k, v = heads(",
    "down": "x = x + self.down(",
    "out": "x = x + self.out(",
    "seen": "seen = F.scaled_dot_product_attention(",
}


def bytes_at(start: str) -> int:
    """What the line that begins so made, of what lives at the peak."""
    places = {line: int(line.rpartition(":")[2]) for line in found.lines}
    return next(
        size for line, size in found.lines.items() if getline(__file__, places[line]).lstrip().startswith(start)
    )


line_bytes = {name: bytes_at(start) for name, start in LINES.items()}


# --8<-- [start:card]
for card in ("RTX 4090", "RTX 5090"):
    answer = fit(found, card)
    left = f"{answer.left_bytes / 2**30:.1f} GiB left"
    print(f"{card}: {'fits' if answer.fits else 'does not fit'}, {left}")
# --8<-- [end:card]


# --8<-- [start:ranks]
CUT: dict[str, tp.ParallelStyle] = {
    **dict.fromkeys(("q", "k", "v", "up"), tp.ColwiseParallel()),
    **dict.fromkeys(("out", "down"), tp.RowwiseParallel()),
}


def shard(model: nn.Sequential) -> None:
    sizes = dist.get_world_size() // 2, 2
    mesh = init_device_mesh("cuda", sizes, mesh_dim_names=("data", "tensor"))
    for layer in model[1:-1].children():
        tp.parallelize_module(layer, mesh["tensor"], CUT)
        fully_shard(layer, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])


def on_ranks() -> Callable[[], None]:
    dist.init_process_group("nccl")
    return make(shard)


rank = count_ranks(on_ranks, world=8)[0]
print(rank)
# --8<-- [end:ranks]
rank_bytes = rank.peak_bytes
rank_state_bytes = sum(rank.kinds[kind] for kind in ("weights", "optimizer state"))


def sent(of_rank: Counted) -> dict[str, int]:
    """Bytes by collective."""
    total = Counter[str]()
    for each in of_rank.sent:
        total[each.collective.replace("-", "_")] += each.sent_bytes
    return dict(total)


_d, _V, _L, _tokens = 768, 50_304, 12, 8 * 1024
_layer = (12 * _d**2 + 7 * _d) // 2 + 6 * _d  # numbers: two ranks divide the matrices, and the biases of q, k, v, up
_handed = fsdp_payload(_L * _layer, 2 * _V * _d + _V)
formula_sent_bytes = {
    "all_gather": ring_bytes(_handed["allgather"], 4, "allgather"),
    "reduce_scatter": ring_bytes(_handed["reduce_scatter"], 4, "reduce_scatter"),
    "all_reduce": ring_bytes(4 * _L * 2 * _tokens * _d, 2, "allreduce"),  # four a layer, in bf16
}
sent_bytes = sent(rank)
sent_ratio = {collective: sent_bytes[collective] / size for collective, size in formula_sent_bytes.items()}


# --8<-- [start:compare]
folder = TemporaryDirectory()
counted = Path(folder.name) / "counted.pickle"
recorded = Path(folder.name) / "recorded.pickle"

count(lambda: step_memory.trainer(step_memory.RUNS["chunks"]), snapshot=counted)
step_memory.write_snapshot("mended", recorded)
compare.main([str(counted), str(recorded)])
# --8<-- [end:compare]


def kind_of(block: Life) -> str:
    """What a block of the snapshot holds; activations by whether a line of the step itself made them."""
    kind = {"optimizer state": "state"}.get(block.said.split(",")[0], block.said.split(",")[0])
    if kind == "activations":
        return "loss" if line_of(block.frames).endswith(" step") else "layers"
    return kind if kind in KINDS else "temporaries"


KINDS = ("weights", "state", "gradients", "layers", "loss", "temporaries")
PIECES = 90


def picture(path: Path) -> tuple[dict[str, list[int]], int]:
    """Bytes by kind at the top of each piece of a snapshot's events, and the piece in which its second step begins."""
    device = follow(read(path), 0)
    changes: dict[int, list[tuple[str, int]]] = {}
    for block in device.blocks:
        changes.setdefault(block.born, []).append((kind_of(block), block.requested))
        if block.unused < device.events:
            changes.setdefault(int(block.unused), []).append((kind_of(block), -block.requested))
    stacks, held = [], dict.fromkeys(KINDS, 0)
    for event in range(1, device.events + 1):
        for kind, change in changes.get(event, ()):
            held[kind] += change
        stacks.append(dict(held))
    cuts = [n * device.events // PIECES for n in range(PIECES + 1)]
    pieces = [max(stacks[start:end], key=lambda stack: sum(stack.values())) for start, end in pairwise(cuts)]
    second = min(block.born for block in device.blocks if block.said.endswith("step 2"))
    by_kind = {kind: [piece[kind] for piece in pieces] for kind in KINDS}
    return by_kind, next(n for n, end in enumerate(cuts[1:]) if end >= second)


count(make, snapshot=Path(folder.name) / "step.pickle")
picture_bytes, second_piece = picture(Path(folder.name) / "step.pickle")
assert max(map(sum, zip(*picture_bytes.values(), strict=True))) == needed_bytes


# --8<-- [start:watch]
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64)).to(device)
optimizer = torch.optim.AdamW(model.parameters())

with watch() as seen:
    for _ in range(8):
        x = torch.randn(512, 64, device=device)
        F.mse_loss(model(x), x).backward()
        optimizer.step()
        optimizer.zero_grad()
# --8<-- [end:watch]


COUNTED_BYTES = {  # peaks of steps of other people's code, none of whose files was changed, with torch 2.13
    "nanogpt": 13_300_377_176,  # karpathy/nanoGPT at 3adf61e
    "nanochat": 16_944_714_740,  # karpathy/nanochat at 92d63d4
    "trainer": 3_151_303_096,  # transformers 5.23.0
    "torchtune": 27_890_660_454,  # pytorch/torchtune at bd2a0fc
    "torchtitan": 2_715_393_312,  # pytorch/torchtitan at b5bcd76
    "lora": 4_550_890_072,  # huggingface/peft at 5d602fd
    "vit": 8_874_275_016,  # lucidrains/vit-pytorch at 69d24fe
    "unet": 7_841_780_036,  # milesial/Pytorch-UNet at 21d7850
}
# The same step with CUDA's own allocator of torch 2.11, over a driver that computes nothing: counted there, the most
# that it had allocated in steps that were not watched, and the workspaces of cuBLAS in it.
ALLOCATED = {
    "nanogpt": (13_300_377_176, 13_378_023_424, 67_108_864),
    "gpt2": (13_425_385_992, 13_522_917_888, 68_157_440),
    "lora": (4_550_889_832, 4_620_101_632, 67_108_864),
    "trainer": (3_155_399_100, 3_247_697_920, 67_108_864),
    "vit": (8_874_274_440, 9_032_862_208, 68_157_440),
}
allocated = {
    key: {
        "counted_bytes": counted,
        "allocated_bytes": most,
        "workspace_bytes": beside,
        "counted_share": counted / most,
        "with_workspaces_share": (counted + beside) / most,
    }
    for key, (counted, most, beside) in ALLOCATED.items()
}


# --8<-- [start:exercise_1]
def lighten(model: nn.Sequential) -> None:
    for layer in model[1:-1].children():
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)


light = count(lambda: make(lighten))
print(light)
# --8<-- [end:exercise_1]
light_bytes = light.peak_bytes


# --8<-- [start:exercise_2]
CUT["norm1"] = tp.PrepareModuleOutput(
    output_layouts=Replicate(),
    desired_output_layouts=Replicate(),
    use_local_output=False,
)
of_64 = count_ranks(on_ranks, world=64)[0]
print(f"peak {of_64.peak_bytes / 2**30:.2f} GiB")
for each in of_64.sent:
    if each.collective == "all-reduce":
        print(f"{each.sent_bytes / 2**20:5.0f} MiB  {each.calls} × {each.line}")
# --8<-- [end:exercise_2]
of_64_bytes = of_64.peak_bytes
of_64_ratio = sent(of_64)["all_reduce"] / formula_sent_bytes["all_reduce"]
