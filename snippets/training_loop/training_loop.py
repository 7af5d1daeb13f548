# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy", "torch>=2.11"]
# ///
"""A training loop on data whose best loss is known, which survives being killed."""

import contextlib
import importlib.util
import io
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

torch.set_num_threads(1)  # tensors are tiny; and sums keep their order
Pair = tuple[Tensor, Tensor]
temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)


# --8<-- [start:rows]
D_MODEL, NUM_ROWS, BATCH, SIGMA = 16, 1024, 4, 1.0


def draw_rows(rows: int, generator: torch.Generator, d_model: int = D_MODEL) -> Pair:
    """x of unit normals, (rows, d_model); y = x·(0, 1, 2, …) plus noise."""
    x = torch.randn(rows, d_model, generator=generator)
    noise = SIGMA * torch.randn(rows, generator=generator)
    return x, x @ torch.arange(d_model, dtype=torch.float32) + noise


def make_model(layers: int, generator: torch.Generator, d_model: int) -> nn.Module:
    """Square linear layers, then a head with one output: (batch, d) → (batch,)."""
    widths = [d_model] * layers + [1]
    modules = [nn.Linear(d_model, width, bias=False) for width in widths]
    for module in modules:
        nn.init.normal_(module.weight, std=d_model**-0.5, generator=generator)
    return nn.Sequential(*modules, nn.Flatten(0))


class Batches:
    """Rows in random order, each once an epoch; a last, short batch is left out."""

    def __init__(self, x: Tensor, y: Tensor, size: int, seed: int) -> None:
        self.x, self.y, self.size = x, y, size
        self.generator = torch.Generator().manual_seed(seed)
        self.order = torch.randperm(len(x), generator=self.generator)
        self.position = 0

    def __call__(self) -> Pair:
        if self.position + self.size > len(self.order):
            self.order = torch.randperm(len(self.x), generator=self.generator)
            self.position = 0
        rows = self.order[self.position : self.position + self.size]
        self.position += self.size
        return self.x[rows], self.y[rows]

    def state_dict(self) -> dict[str, Any]:
        random = self.generator.get_state()
        return {"random": random, "order": self.order, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["random"])
        self.order, self.position = state["order"], state["position"]


# --8<-- [end:rows]


# --8<-- [start:loop]
def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    next_batch: Callable[[], Pair],
    num_steps: int,
    first_step: int = 1,
) -> list[float]:
    """Takes num_steps steps; the loss of each, read from the device once."""
    losses = []
    for _ in range(num_steps):
        x, y = next_batch()
        loss = mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())  # stays on the device
    values: list[float] = torch.stack(losses).tolist()  # here the CPU waits
    for step, value in enumerate(values, first_step):
        if not math.isfinite(value):
            raise FloatingPointError(f"the loss of step {step} is {value}")
    return values


# --8<-- [end:loop]


# --8<-- [start:run]
FORMAT, NUM_LAYERS = 1, 2  # the format of a checkpoint has a number


class Run:
    """All that the next step depends on."""

    def __init__(self, d_model: int = D_MODEL, lr: float = 1e-2) -> None:
        weights, rows = (torch.Generator().manual_seed(seed) for seed in (0, 1))
        self.model = make_model(NUM_LAYERS, weights, d_model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.batches = Batches(*draw_rows(NUM_ROWS, rows, d_model), size=32, seed=2)
        self.step = 0
        named = ("model", "optimizer", "batches")
        self.parts: dict[str, Any] = {name: getattr(self, name) for name in named}

    def state_dict(self) -> dict[str, Any]:
        states = {name: part.state_dict() for name, part in self.parts.items()}
        return {"format": FORMAT, "step": self.step} | states

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, part in self.parts.items():
            part.load_state_dict(state[name])
        self.step = state["step"]


# --8<-- [end:run]


# --8<-- [start:save]
def save(run: Run, path: Path) -> None:
    """Writes a checkpoint: afterwards path holds the new one, or still the old."""
    state = run.state_dict()
    values = list(state["model"].values())
    for kept in state["optimizer"]["state"].values():
        values += kept.values()
    tensors = [value for value in values if isinstance(value, Tensor)]
    if not all(tensor.isfinite().all() for tensor in tensors):
        raise FloatingPointError(f"not finite, so not saved; {path} stays as it was")
    temporary = path.with_suffix(".tmp")  # in the same folder, so on the same disk
    with open(temporary, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())  # on the disk before it gets its name
    os.replace(temporary, path)


# --8<-- [end:save]


# --8<-- [start:load]
def read_checkpoint(path: Path) -> dict[str, Any]:
    """What a checkpoint holds, once its checksums and its format are found right."""
    with zipfile.ZipFile(path) as archive:
        if damaged := archive.testzip():  # compares every checksum
            raise ValueError(f"{path} is damaged: {damaged}")
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    if state.get("format") != FORMAT:
        raise ValueError(f"{path} has another format than {FORMAT}")
    return state


def load(run: Run, path: Path) -> None:
    """Goes on from a checkpoint."""
    run.load_state_dict(read_checkpoint(path))


# --8<-- [end:load]


# --8<-- [start:program]
def train_run(run: Run, last_step: int, path: Path, every: int = 25) -> list[float]:
    """Trains up to last_step; reports and saves every so many steps."""
    losses: list[float] = []
    while run.step < last_step:
        steps = min(every, last_step - run.step)
        losses += train(run.model, run.optimizer, run.batches, steps, run.step + 1)
        run.step += steps
        mean = statistics.fmean(losses[-steps:])
        print(f"step {run.step:5}  mean loss {mean:9.3f}", flush=True)
        save(run, path)
    return losses


def main(path: Path, last_step: int) -> None:
    """Begins a run, or resumes it if there is a checkpoint."""
    run = Run()
    if path.exists():
        load(run, path)
    train_run(run, last_step, path)


# --8<-- [end:program]


if sys.argv[1:2] == ["--train"]:  # python training_loop.py --train PATH LAST_STEP
    main(Path(sys.argv[2]), int(sys.argv[3]))
    sys.exit()


# --8<-- [start:forgotten]
def start() -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Linear(16, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return {"model": model, "optimizer": optimizer}


def take_steps(run: dict[str, Any], steps: range) -> Tensor:
    losses = []
    for step in steps:
        x = torch.randn(32, 16, generator=torch.Generator().manual_seed(step))
        loss = (run["model"](x) - x.sum(1, keepdim=True)).square().mean()
        run["optimizer"].zero_grad()
        loss.backward()
        run["optimizer"].step()
        losses.append(loss.detach())
    return torch.stack(losses)


run = start()
take_steps(run, range(100))
torch.save({name: part.state_dict() for name, part in run.items()}, "run.pt")
never_killed = take_steps(run, range(100, 200))

for names in (["model", "optimizer"], ["model"]):
    run, saved = start(), torch.load("run.pt")  # as after a restart
    for name in names:
        run[name].load_state_dict(saved[name])
    resumed = take_steps(run, range(100, 200))
    print("resumed with", *names, " same losses:", resumed.equal(never_killed))
# --8<-- [end:forgotten]
Path("run.pt").unlink()


RATES = {"lowest": 0.01, "low": 0.03, "middle": 0.1, "high": 0.15, "beyond": 0.25}
RUNS, STEPS, TAIL = 500, 240, 40


def train_many() -> Tensor:
    """Losses (step, rate, run) of SGD from weights 0; all rates see the same rows."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.zeros(len(RATES), RUNS, D_MODEL)
    rates, losses = torch.tensor([*RATES.values()])[:, None, None], []
    for _ in range(STEPS):
        x, y = draw_rows(RUNS * BATCH, generator)
        x, y = x.view(RUNS, BATCH, D_MODEL), y.view(RUNS, BATCH)
        error = (x @ weights[..., None])[..., 0] - y  # (rate, run, row)
        losses.append(error.square().mean(-1))
        gradient = 2 / BATCH * (error[..., None, :] @ x)[..., 0, :]
        weights = weights - rates * gradient
    return torch.stack(losses)


many = train_many()


measured_floor = {}
for index, name in ((1, "low"), (2, "middle"), (3, "high")):  # those at rest by now
    of_run = many[-TAIL:, index].mean(0)  # each run's mean over the last steps
    error = float(of_run.std()) / math.sqrt(RUNS)
    measured_floor[name] = float(of_run.mean())
    assert measured_floor[name] > SIGMA**2 + 6 * error
assert many[-1, 4].mean() > many[0, 4].mean()  # the last rate's losses grow


def train_and_kill(path: Path, kill_step: int) -> int:
    """Trains in another process, kills it from kill_step on; its exit code."""
    spec = importlib.util.find_spec("training_loop")  # saved beside your code
    program = str(spec.origin if spec else "training_loop.py")
    command = [sys.executable, program, "--train", str(path), "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            if line.startswith("step") and int(line.split()[1]) >= kill_step:
                break
        process.kill()  # SIGKILL: no handler runs, nothing is flushed
    return process.returncode


killed = folder / "killed.pt"  # a step is reported before it is saved
measured_exit_code = train_and_kill(killed, kill_step=random.randint(101, 300))
measured_saved_step = read_checkpoint(killed)["step"]
assert measured_exit_code != 0 and measured_saved_step >= 100


def quietly(run: Run, last_step: int, name: str = "run.pt") -> list[float]:
    """train_run without its report; the checkpoint goes to our folder."""
    with contextlib.redirect_stdout(io.StringIO()):
        return train_run(run, last_step, folder / name)


measured_last_step = measured_saved_step + 100
revived = Run()
load(revived, killed)
revived_losses = torch.tensor(quietly(revived, measured_last_step))

unbroken = Run()  # from the first step to the last in this process
unbroken_losses = torch.tensor(quietly(unbroken, measured_last_step, "unbroken.pt"))

same_losses = torch.equal(revived_losses, unbroken_losses[-100:])
pairs = zip(revived.model.parameters(), unbroken.model.parameters(), strict=True)
same_parameters = all(torch.equal(a, b) for a, b in pairs)
assert same_losses and same_parameters


def resume_without(part: str) -> dict[str, bool | float]:
    """Resumes as above with one part as in a new run; compares the losses."""
    rerun, new = Run(), Run()
    load(rerun, killed)
    if part in rerun.parts:
        rerun.parts[part].load_state_dict(new.parts[part].state_dict())
    elif part == "random":
        rerun.batches.generator.set_state(new.batches.generator.get_state())
    losses = torch.tensor(quietly(rerun, measured_last_step))
    difference = float((losses - unbroken_losses[-100:]).abs().max())
    return {"same": difference == 0, "measured_difference": round(difference, 3)}


parts = {p: resume_without(p) for p in ("none", "optimizer", "batches", "random")}
assert [outcome["same"] for outcome in parts.values()] == [True, False, False, False]


# --8<-- [start:size]
RANDOM_STATE_BYTES = 5056  # of a torch.Generator on the CPU


def predict_file(d_model: int) -> int:
    """Bytes of a checkpoint without its container."""
    parameters = NUM_LAYERS * d_model**2 + d_model
    counters = 4 * (NUM_LAYERS + 1)
    return 12 * parameters + counters + RANDOM_STATE_BYTES + 8 * NUM_ROWS


adamw_parameter_bytes = 4 + 2 * 4  # itself and two moments
MODELS = {"gpt2": 124_439_808, "llama": 8_030_261_248}  # GPT-2 small; Llama 3 8B
adamw_checkpoint_bytes = {name: adamw_parameter_bytes * n for name, n in MODELS.items()}
WIDTH = 512
quietly(Run(WIDTH), last_step=1)
predicted_checkpoint_bytes = predict_file(WIDTH)
measured_checkpoint_bytes = (folder / "run.pt").stat().st_size
measured_checkpoint_ratio = measured_checkpoint_bytes / predicted_checkpoint_bytes
assert 1 < measured_checkpoint_ratio < 1.001  # the container: names, headers, alignment
# --8<-- [end:size]


# --8<-- [start:states]
def get_random_states(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "python": random.getstate(),
        "numpy": rng.bit_generator.state,  # plain numbers: weights_only=True reads them
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all(),  # one of each GPU
    }


def set_random_states(states: dict[str, Any], rng: np.random.Generator) -> None:
    random.setstate(states["python"])
    rng.bit_generator.state = states["numpy"]
    torch.set_rng_state(states["torch"])
    torch.cuda.set_rng_state_all(states["cuda"])


def draw(rng: np.random.Generator) -> Tensor:
    return torch.tensor([random.random(), rng.random(), torch.rand(()).item()])


rng = np.random.default_rng(0)
torch.save(get_random_states(rng), "random.pt")
drawn = draw(rng)
set_random_states(torch.load("random.pt"), rng)
print("the same numbers again:", draw(rng).equal(drawn))
# --8<-- [end:states]
Path("random.pt").unlink()


# --8<-- [start:exercise_rate]
weight = nn.Parameter(torch.zeros(1))
slow, fast = (torch.optim.AdamW([weight], lr=lr) for lr in (0.01, 0.5))
fast.load_state_dict(slow.state_dict())
print("asked for 0.5, got", fast.param_groups[0]["lr"])
# --8<-- [end:exercise_rate]


temporary.cleanup()
