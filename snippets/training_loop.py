# /// script
# requires-python = ">=3.11"
# dependencies = ["torch>=2.11"]
# ///
"""A training loop whose best loss and largest learning rate are known in advance, and that survives being killed."""

# --8<-- [start:setup]
import contextlib
import importlib.util
import io
import math
import os
import pickle
import random
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

# accounting.py, the book's toolkit, lies beside this file
from accounting import get_device
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils._pytree import tree_leaves

torch.set_num_threads(1)  # tensors are tiny; and sums keep their order
Pair = tuple[Tensor, Tensor]
temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)


def message_of(call: Callable[[], object]) -> str:
    """What the error of a call says that has to fail."""
    try:
        call()
    except Exception as error:  # what torch.load raises differs by version
        text = str(error).replace(f"{folder}/", "")
        return textwrap.fill(f"{type(error).__name__}: {text}", width=80)
    raise AssertionError("the call was expected to fail")


def ratios(measured: dict[str, Any], predicted: dict[str, Any]) -> dict[str, float]:
    """Measured over predicted, by name."""
    return {name: measured[name] / predicted[name] for name in measured}


# --8<-- [end:setup]


# --8<-- [start:data]
D_MODEL, BATCH, SIGMA = 16, 4, 1.0


def draw_rows(
    num_rows: int,
    generator: torch.Generator,
    sigma: float = SIGMA,
    d_model: int = D_MODEL,
) -> Pair:
    """x of unit normals, (num_rows, d_model); y = x·(0, 1, 2, …) plus noise."""
    x = torch.randn(num_rows, d_model, generator=generator)
    noise = sigma * torch.randn(num_rows, generator=generator) if sigma else 0
    return x, x @ torch.arange(d_model, dtype=torch.float32) + noise


best_loss = SIGMA**2  # what even the true weights leave
start_loss = sum(i**2 for i in range(D_MODEL)) + SIGMA**2  # of weights 0
print("best loss", best_loss, " loss of weights 0:", start_loss)
# --8<-- [end:data]


# --8<-- [start:model]
def make_model(
    num_layers: int,
    generator: torch.Generator,
    d_model: int = D_MODEL,
) -> nn.Module:
    """Square linear layers, then a head with one output: (batch, d) → (batch,)."""
    widths = [d_model] * num_layers + [1]
    layers = [nn.Linear(d_model, width, bias=False) for width in widths]
    for layer in layers:
        nn.init.normal_(layer.weight, std=d_model**-0.5, generator=generator)
    return nn.Sequential(*layers, nn.Flatten(0))


# --8<-- [end:model]


# --8<-- [start:loop]
def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    next_batch: Callable[[], Pair],
    num_steps: int,
    first_step: int = 1,
) -> list[float]:
    """Takes num_steps steps; returns the loss of each, read from the device once.

    Raises FloatingPointError, naming the step, if a loss is NaN or infinite.
    """
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
            mend = "lower the learning rate, or look at this batch"
            raise FloatingPointError(f"the loss of step {step} is {value}: {mend}")
    return values


# --8<-- [end:loop]


# --8<-- [start:batches]
class Batches:
    """Rows in random order, each once an epoch; a last, short batch is left out."""

    def __init__(self, x: Tensor, y: Tensor, size: int, seed: int) -> None:
        if not 0 < size <= len(x):
            choose = f"choose 1 to {len(x)}"
            raise ValueError(f"batches of {size} from {len(x)} rows: {choose}")
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


# --8<-- [end:batches]


# --8<-- [start:read]
FORMAT = 1  # raised whenever the contents of a checkpoint change


def read_checkpoint(path: Path) -> dict[str, Any]:
    """What a checkpoint holds. Raises ValueError for a file that cannot be used."""
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()  # compares every checksum
    except zipfile.BadZipFile:
        damaged = "no valid end"
    if damaged:
        raise ValueError(f"{path} is damaged ({damaged}): resume from an older one")
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    found = state.get("format") if isinstance(state, dict) else None
    if found != FORMAT:
        raise ValueError(
            f"{path} has format {found}, this program reads {FORMAT}: "
            "load it with the version of the program that wrote it"
        )
    return state


# --8<-- [end:read]


# --8<-- [start:run]
class Config(NamedTuple):
    """What has to be the same when a run is resumed."""

    num_layers: int = 2
    d_model: int = D_MODEL
    num_rows: int = 1024
    batch_size: int = 32
    seed: int = 0


class Run:
    """All that the next step depends on."""

    def __init__(self, config: Config, lr: float = 1e-2) -> None:
        self.config, self.step = config, 0
        weights = torch.Generator().manual_seed(config.seed)
        rows = torch.Generator().manual_seed(config.seed + 1)
        self.model = make_model(config.num_layers, weights, config.d_model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        x, y = draw_rows(config.num_rows, rows, d_model=config.d_model)
        self.batches = Batches(x, y, config.batch_size, seed=config.seed + 2)

    def state_dict(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "config": self.config._asdict(),
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "batches": self.batches.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.batches.load_state_dict(state["batches"])
        self.step = state["step"]


# --8<-- [end:run]


# --8<-- [start:save]
def save(run: Run, path: Path) -> None:
    """Writes a checkpoint: afterwards path holds the new one, or still the old."""
    state = run.state_dict()
    tensors = [leaf for leaf in tree_leaves(state) if isinstance(leaf, Tensor)]
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
def load(run: Run, path: Path) -> None:
    """Goes on from a checkpoint; changes nothing if it does not fit."""
    state = read_checkpoint(path)
    for name, value in run.config._asdict().items():
        if (found := state["config"].get(name)) != value:
            raise ValueError(f"{path} has {name} {found}, this run {value}")
    run.load_state_dict(state)


# --8<-- [end:load]


# --8<-- [start:train_run]
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


# --8<-- [end:train_run]


# --8<-- [start:program]
def main(path: Path, last_step: int) -> None:
    """Begins a run, or resumes it if there is a checkpoint."""
    run = Run(Config())
    if path.exists():
        load(run, path)
    train_run(run, last_step, path)


if sys.argv[1:2] == ["--train"]:  # python training_loop.py --train PATH LAST_STEP
    main(Path(sys.argv[2]), int(sys.argv[3]))
    sys.exit()
# --8<-- [end:program]


# --8<-- [start:ignored]
def make_fresh(generator: torch.Generator) -> Callable[[], Pair]:
    """A source of batches that never repeats a row; no noise, as in the lecture."""
    return lambda: draw_rows(BATCH, generator, sigma=0)


def lecture_train(num_layers: int, lr: float) -> float:
    """The loss of the tenth step. Two of these lines are wrong."""
    generator = torch.Generator().manual_seed(0)
    model = make_model(0, generator)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return train(model, optimizer, make_fresh(generator), num_steps=10)[-1]


TWO_RATES = 0.01, 0.1

measured_ignored = [round(lecture_train(0, lr), 2) for lr in TWO_RATES]
for lr, last_loss in zip(TWO_RATES, measured_ignored, strict=True):
    print(f"lr={lr:<5} loss {last_loss}")
assert lecture_train(num_layers=0, lr=0.01) == lecture_train(num_layers=2, lr=0.1)
# --8<-- [end:ignored]


# --8<-- [start:honoured]
def train_sgd(num_layers: int, lr: float, num_steps: int = 10) -> list[float]:
    """The same with both arguments used."""
    generator = torch.Generator().manual_seed(0)
    model = make_model(num_layers, generator)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return train(model, optimizer, make_fresh(generator), num_steps)


measured_honoured = [round(train_sgd(0, lr)[-1], 2) for lr in TWO_RATES]
for lr, last_loss in zip(TWO_RATES, measured_honoured, strict=True):
    print(f"num_layers=0, lr={lr:<5} loss {last_loss}")
print("num_layers=2, lr=0.01:")
print(message_of(lambda: train_sgd(num_layers=2, lr=0.01)))
assert measured_honoured[1] < measured_honoured[0] == measured_ignored[0]
# --8<-- [end:honoured]


# --8<-- [start:expected]
batch_limit_lr = BATCH / (BATCH + D_MODEL + 1)


def expect_losses(lr: float, num_steps: int) -> list[float]:
    """The expected loss of each step, from weights 0, on fresh batches."""
    distance, losses = start_loss - best_loss, []  # squared, to the true weights
    for _ in range(num_steps):
        losses.append(best_loss + distance)
        distance *= 1 - 4 * lr + 4 * lr**2 / batch_limit_lr
        distance += 4 * lr**2 * SIGMA**2 * D_MODEL / BATCH
    return losses


def expect_floor(lr: float) -> float:
    """Where the expected loss comes to rest."""
    return best_loss * (1 + lr * D_MODEL / BATCH / (1 - lr / batch_limit_lr))


print(f"limit for batches of {BATCH}: {batch_limit_lr:.4f}")
assert abs(expect_losses(0.1, 300)[-1] / expect_floor(0.1) - 1) < 1e-6
# --8<-- [end:expected]


# --8<-- [start:many]
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
measured_tenth = dict(zip(RATES, many[9].mean(-1).tolist(), strict=True))
predicted_tenth = {name: expect_losses(lr, 10)[-1] for name, lr in RATES.items()}
measured_tenth_ratio = ratios(measured_tenth, predicted_tenth)
tenth_errors = many[9].std(-1) / math.sqrt(RUNS)
for (name, lr), error in zip(RATES.items(), tenth_errors, strict=True):
    print(f"lr={lr:<5} step 10: predicted {predicted_tenth[name]:8.1f}", end="")
    print(f"  mean of {RUNS} runs {measured_tenth[name]:8.1f} ± {error:.1f}")
    away = abs(measured_tenth[name] - predicted_tenth[name])
    assert away < 6 * error or lr > batch_limit_lr
# --8<-- [end:many]


# --8<-- [start:floors]
predicted_floor, measured_floor = {}, {}
for index, name in ((1, "low"), (2, "middle"), (3, "high")):  # those at rest by now
    of_run = many[-TAIL:, index].mean(0)  # each run's mean over the last steps
    error = float(of_run.std()) / math.sqrt(RUNS)
    predicted_floor[name] = expect_floor(RATES[name])
    measured_floor[name] = float(of_run.mean())
    print(f"lr={RATES[name]:<5} predicted {predicted_floor[name]:.3f}", end="")
    print(f"  measured {measured_floor[name]:.3f} ± {error:.3f}")
    assert abs(measured_floor[name] - predicted_floor[name]) < 6 * error
measured_floor_ratio = ratios(measured_floor, predicted_floor)
assert not float(many[-1, -1].mean()) < 1e9  # beyond the limit: huge, or NaN
# --8<-- [end:floors]


# --8<-- [start:curves]
def thin(losses: list[float], every: int) -> list[float]:
    """Some of the losses, while they are finite."""
    return [round(loss, 3) for loss in losses[::every] if math.isfinite(loss)]


predicted_curves = {name: thin(expect_losses(RATES[name], STEPS), 4) for name in RATES}
means = zip(RATES, many.mean(-1).T, strict=True)
measured_curves = {name: thin(losses.tolist(), 8) for name, losses in means}
# --8<-- [end:curves]


# --8<-- [start:curvature]
NUM_ROWS = 1024
x, y = draw_rows(NUM_ROWS, torch.Generator().manual_seed(1))

measured_steepest = float(torch.linalg.eigvalsh(2 / NUM_ROWS * x.T @ x)[-1])
predicted_steepest = 2 * (1 + math.sqrt(D_MODEL / NUM_ROWS)) ** 2
predicted_limit_lr, measured_limit_lr = 2 / predicted_steepest, 2 / measured_steepest
measured_limit_ratio = measured_limit_lr / predicted_limit_lr
print(f"limit: napkin {predicted_limit_lr:.3f}, these rows {measured_limit_lr:.3f}")


def train_full(lr: float) -> list[float]:
    """The last two losses of 200 steps, each on the gradient of all rows."""
    model = make_model(0, torch.Generator().manual_seed(0))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return train(model, optimizer, lambda: (x, y), num_steps=200)[-2:]


fitted = torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
measured_least = float(mse_loss(x @ fitted, y))
measured_below = train_full(0.95 * measured_limit_lr)
measured_above = train_full(1.05 * measured_limit_lr)
predicted_growth_ratio = (1 - 1.05 * 2) ** 2
measured_growth_ratio = measured_above[1] / measured_above[0]
print(f"below: loss {measured_below[1]:.4f}, the least is {measured_least:.4f}")
print(f"above: loss {measured_above[1]:.1e}, × {measured_growth_ratio:.3f} a step")
assert abs(measured_below[1] / measured_least - 1) < 1e-3
assert abs(measured_growth_ratio / predicted_growth_ratio - 1) < 0.01
# --8<-- [end:curvature]


# --8<-- [start:waiting]
def time_step(read_every: int, num_steps: int = 50) -> float:
    """Seconds of a step if the loss is read every so many: the best of three."""
    device, generator = get_device(), torch.Generator().manual_seed(0)
    model = make_model(4, generator).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    x, y = (tensor.to(device) for tensor in draw_rows(BATCH, generator))
    train(model, optimizer, lambda: (x, y), num_steps=10)  # warm-up
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        for _ in range(num_steps // read_every):
            train(model, optimizer, lambda: (x, y), read_every)
        seconds.append((time.perf_counter() - began) / num_steps)
    return min(seconds)


measured_step_seconds = {every: time_step(every) for every in (1, 50)}
measured_waiting_ratio = measured_step_seconds[1] / measured_step_seconds[50]
for every, took in measured_step_seconds.items():
    print(f"read every {every:2}: {took * 1e6:7.1f} µs a step")
# --8<-- [end:waiting]


# --8<-- [start:empty]
def quietly(run: Run, last_step: int, name: str = "run.pt") -> list[float]:
    """train_run without its report; the checkpoint goes to our folder."""
    with contextlib.redirect_stdout(io.StringIO()):
        return train_run(run, last_step, folder / name)


def count_state(run: Run) -> int:
    """Tensors that a checkpoint of this run holds of its optimizer."""
    return len(tree_leaves(run.optimizer.state_dict()["state"]))


run = Run(Config())
state_tensors = {"before the first step": count_state(run)}
quietly(run, last_step=1)
state_tensors["after it"] = count_state(run)
print(state_tensors)
assert list(state_tensors.values()) == [0, 9]  # two moments and a step for 3 tensors
# --8<-- [end:empty]


# --8<-- [start:size]
RANDOM_STATE_BYTES = 5056  # of a torch.Generator on the CPU


def predict_file(config: Config) -> int:
    """Bytes of a checkpoint without its container."""
    parameters = config.num_layers * config.d_model**2 + config.d_model
    counters = 4 * (config.num_layers + 1)
    return 12 * parameters + counters + RANDOM_STATE_BYTES + 8 * config.num_rows


def measure_file(config: Config) -> int:
    """Bytes of a checkpoint after one step."""
    quietly(Run(config), last_step=1)
    return (folder / "run.pt").stat().st_size


CONFIGS = {"narrow": Config(), "wide": Config(d_model=512)}
predicted_file_bytes = {name: predict_file(made) for name, made in CONFIGS.items()}
measured_file_bytes = {name: measure_file(made) for name, made in CONFIGS.items()}
measured_file_ratio = ratios(measured_file_bytes, predicted_file_bytes)
measured_overhead_bytes = {
    name: measured - predicted_file_bytes[name]  # the container
    for name, measured in measured_file_bytes.items()
}
for name in CONFIGS:
    print(f"{name:7} predicted {predicted_file_bytes[name]:9,} B", end="")
    print(f"  measured {measured_file_bytes[name]:9,} B")
assert run.batches.generator.get_state().nbytes == RANDOM_STATE_BYTES
assert 0 < measured_overhead_bytes["wide"] < 2**14
# --8<-- [end:size]


# --8<-- [start:kill]
def find_program() -> str:
    """Where this chapter's snippet is saved: the child runs it."""
    found = importlib.util.find_spec("training_loop")
    if found is None or found.origin is None:
        raise FileNotFoundError("save training_loop.py beside your code")
    return found.origin


def train_and_kill(path: Path, kill_step: int) -> int:
    """Trains in another process, kills it from kill_step on; its exit code."""
    command = [sys.executable, find_program(), "--train", str(path), "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout or ():
                if line.startswith("step") and int(line.split()[1]) >= kill_step:
                    break
        finally:
            process.kill()  # SIGKILL: no handler runs, nothing is flushed
    return process.returncode


killed = folder / "killed.pt"
measured_exit_code = train_and_kill(killed, kill_step=random.randint(100, 300))
measured_saved_step = read_checkpoint(killed)["step"]
print("exit code", measured_exit_code, " last checkpoint: step", measured_saved_step)
assert measured_exit_code != 0 and measured_saved_step >= 100
# --8<-- [end:kill]


# --8<-- [start:resume]
measured_last_step = measured_saved_step + 100
resumed = Run(Config())
load(resumed, killed)
resumed_losses = torch.tensor(quietly(resumed, measured_last_step))

unbroken = Run(Config())  # from the first step to the last in this process
unbroken_losses = torch.tensor(quietly(unbroken, measured_last_step, "unbroken.pt"))

same_losses = torch.equal(resumed_losses, unbroken_losses[-100:])
pairs = zip(resumed.model.parameters(), unbroken.model.parameters(), strict=True)
same_parameters = all(torch.equal(a, b) for a, b in pairs)
print("same losses:", same_losses, " same parameters, bit for bit:", same_parameters)
assert same_losses and same_parameters
# --8<-- [end:resume]


# --8<-- [start:parts]
def resume_without(part: str) -> dict[str, bool | float]:
    """Resumes as above with one part as in a new run; compares the losses."""
    resumed, new = Run(Config()), Run(Config())
    load(resumed, killed)
    if part == "optimizer":
        resumed.optimizer.load_state_dict(new.optimizer.state_dict())
    elif part == "batches":
        resumed.batches.load_state_dict(new.batches.state_dict())
    elif part == "random":
        random_state = new.batches.generator.get_state()
        resumed.batches.generator.set_state(random_state)
    losses = torch.tensor(quietly(resumed, measured_last_step))
    difference = float((losses - unbroken_losses[-100:]).abs().max())
    return {"same": difference == 0, "measured_difference": round(difference, 3)}


PARTS = "none", "optimizer", "batches", "random"
parts = {part: resume_without(part) for part in PARTS}
for part, outcome in parts.items():
    print(f"without {part:10} same losses: {outcome['same']}", end="")
    print(f", largest difference {outcome['measured_difference']}")
assert [outcome["same"] for outcome in parts.values()] == [True, False, False, False]
# --8<-- [end:parts]


# --8<-- [start:obscure]
whole = (folder / "unbroken.pt").read_bytes()
flipped = bytearray(whole)
with zipfile.ZipFile(folder / "unbroken.pt") as archive:
    largest = max(archive.infolist(), key=lambda info: info.file_size)
    flipped[whole.index(archive.read(largest)) + 100] ^= 1  # one bit of a tensor

BROKEN = {"cut.pt": whole[:-100], "text.pt": b"hello\n", "flipped.pt": bytes(flipped)}
for name, content in BROKEN.items():
    (folder / name).write_bytes(content)


def outcome_of(read: Callable[[Path], object], name: str) -> str:
    """What comes of reading a file."""
    try:
        return message_of(lambda: read(folder / name))
    except AssertionError:
        return "read without an error"


for name in BROKEN:
    came = outcome_of(lambda path: torch.load(path, weights_only=True), name)
    print(f"{name:10}", came)
# --8<-- [end:obscure]


# --8<-- [start:refused]
def rewrite(name: str, **changes: Any) -> str:
    """A whole checkpoint with some entries changed."""
    torch.save(read_checkpoint(folder / "unbroken.pt") | changes, folder / name)
    return name


survivor = Run(Config(num_layers=1))
before = [weight.clone() for weight in survivor.model.parameters()]
for name in [*BROKEN, rewrite("new.pt", format=2), "unbroken.pt", "absent.pt"]:
    print(outcome_of(lambda path: load(survivor, path), name))
print(message_of(lambda: Run(Config(batch_size=2000))))
assert all(map(torch.equal, before, survivor.model.parameters()))  # nothing lost
# --8<-- [end:refused]


# --8<-- [start:half]
narrow = make_model(1, torch.Generator().manual_seed(0))
layer = nn.Linear(D_MODEL, D_MODEL, bias=False)
other = nn.Sequential(layer, nn.Linear(D_MODEL, 2, bias=False))
first = layer.weight.clone()
try:
    other.load_state_dict(narrow.state_dict())
except RuntimeError as error:
    print(str(error).splitlines()[0])
half_loaded = not torch.equal(first, layer.weight)
print("the first layer was replaced all the same:", half_loaded)
assert half_loaded
# --8<-- [end:half]


# --8<-- [start:nan]
poisoned = Run(Config())
poisoned.batches.y[poisoned.batches.order[1000]] = math.nan  # one row of the data
complaint = message_of(lambda: quietly(poisoned, last_step=100, name="poisoned.pt"))
print(complaint)
last_good_step = read_checkpoint(folder / "poisoned.pt")["step"]
print("the checkpoint is of step", last_good_step)
print(message_of(lambda: save(poisoned, folder / "poisoned.pt")))
assert read_checkpoint(folder / "poisoned.pt")["step"] == last_good_step
assert f"step {1000 // 32 + 1} " in complaint and last_good_step == 25
# --8<-- [end:nan]


# --8<-- [start:exercise_1]
FEW_ROWS, SETS = 32, 2000

few = draw_rows(SETS * FEW_ROWS, torch.Generator().manual_seed(2))
few_x, few_y = few[0].view(SETS, FEW_ROWS, D_MODEL), few[1].view(SETS, FEW_ROWS, 1)
fit = torch.linalg.solve(few_x.mT @ few_x, few_x.mT @ few_y)
on_these = (few_x @ fit - few_y).square().mean((1, 2))
on_new = best_loss + (fit[..., 0] - torch.arange(D_MODEL)).square().sum(1)

best_on_these = best_loss * (1 - D_MODEL / FEW_ROWS)
best_on_new = best_loss * (1 + D_MODEL / (FEW_ROWS - D_MODEL - 1))
for predicted, losses in ((best_on_these, on_these), (best_on_new, on_new)):
    print(f"predicted {predicted:.3f}, mean of {SETS} fits {losses.mean():.3f}")
    assert abs(losses.mean() - predicted) < 6 * losses.std() / math.sqrt(SETS)
# --8<-- [end:exercise_1]


# --8<-- [start:exercise_2]
def limit_of(batch: int) -> float:
    """The largest rate for batches of this size; 1 for endless ones."""
    return batch / (batch + D_MODEL + 1)


half_batch = D_MODEL + 1
print({batch: round(limit_of(batch), 3) for batch in (1, 4, half_batch, 64, 1024)})
assert limit_of(half_batch) == 0.5
# --8<-- [end:exercise_2]


# --8<-- [start:exercise_3]
def late_loss(forget: bool) -> float:
    """The mean of the last 100 of 200 losses, gradients of all rows."""
    model = make_model(0, torch.Generator().manual_seed(0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if forget:
        optimizer.zero_grad = lambda set_to_none=True: None  # type: ignore[method-assign]
    return statistics.fmean(train(model, optimizer, lambda: (x, y), 200)[-100:])


measured_late = {forget: late_loss(forget) for forget in (False, True)}
print("with zero_grad:   ", round(measured_late[False], 2))
print("without zero_grad:", round(measured_late[True]))
assert measured_late[False] < 1.01 * measured_least and measured_late[True] > 100
# --8<-- [end:exercise_3]


# --8<-- [start:exercise_4]
faster = Run(Config(), lr=0.5)
load(faster, killed)
loaded_lr = faster.optimizer.param_groups[0]["lr"]
print("asked for 0.5, got", loaded_lr)
assert loaded_lr == 0.01
# --8<-- [end:exercise_4]


# --8<-- [start:exercise_5]
class Trap:
    """Pickles as a call: whoever unpickles it makes a folder."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(folder / "trapped"),)


def is_trapped(weights_only: bool) -> bool:
    """Whether loading the file has made the folder."""
    with contextlib.suppress(pickle.UnpicklingError):
        torch.load(folder / "trap.pt", weights_only=weights_only)
    return (folder / "trapped").exists()


torch.save({"format": FORMAT, "model": Trap()}, folder / "trap.pt")
trapped = {weights_only: is_trapped(weights_only) for weights_only in (True, False)}
print(trapped)
assert trapped == {True: False, False: True}
temporary.cleanup()
# --8<-- [end:exercise_5]
