"""A Trace counts each byte that operations make, resize and let go, once, wherever tensors lie."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from flops_bytes.lessons.trace import Trace

DEVICES = ["cpu", "meta", "fake", *(["cuda"] if torch.cuda.is_available() else [])]
RESIZE = torch.UntypedStorage.resize_


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    mode: AbstractContextManager[object] = FakeTensorMode() if request.param == "fake" else nullcontext()
    with mode:
        yield "cpu" if request.param == "fake" else request.param


def test_what_an_operation_makes_is_counted_once(device: str) -> None:
    x = torch.zeros(10, device=device)
    with Trace() as trace:
        y = x + 1
        _view = y.view(2, 5).t()
        y.add_(x)
        torch.mul(x, 2, out=y)
    assert [(o.name, o.moved_bytes, o.taken_bytes, o.live_bytes) for o in trace.operations] == [
        ("add.Tensor", 80, 40, 40),
        ("view.default", 80, 0, 40),
        ("t.default", 80, 0, 40),
        ("add_.Tensor", 80, 0, 40),
        ("mul.out", 80, 0, 40),
    ]


def test_what_dies_is_subtracted_at_once(device: str) -> None:
    with Trace() as trace:
        x = torch.zeros(10, device=device)
        view = x[:5]
        del x
        assert trace.live_bytes == 40, "its view holds the whole storage"
        del view
        assert trace.live_bytes == 0
        _y = torch.zeros(5, device=device)
    assert [change for _, change in trace.changes] == [40, -40, 20]
    assert (trace.live_bytes, trace.peak_bytes) == (20, 40)


def test_what_was_there_before_is_not_counted(device: str) -> None:
    x = torch.zeros(10, device=device)
    with Trace() as trace:
        x.add_(1)
        x = x[:5]
        del x
    assert trace.changes == []


def test_what_a_literal_makes_is_counted() -> None:
    with Trace() as trace:
        _x = torch.tensor([1.0, 2.0])
    assert trace.live_bytes == 8


def resize_tensor(x: Tensor, elements: int) -> None:
    x.resize_(elements)


def resize_storage(x: Tensor, elements: int) -> None:
    x.untyped_storage().resize_(4 * elements)


@pytest.mark.parametrize("resize", [resize_tensor, resize_storage])
def test_a_storage_is_counted_at_its_new_size(device: str, resize: Callable[[Tensor, int], None]) -> None:
    outside = torch.zeros(10, device=device)
    with Trace() as trace:
        x = torch.zeros(10, device=device)
        resize(x, 100)
        assert trace.live_bytes == 400
        resize(outside, 20)  # in memory, it is made anew
        assert trace.live_bytes == 480
        del x
        assert trace.live_bytes == 80
    assert trace.peak_bytes == 480


def test_a_storage_that_is_emptied_and_filled_again_dies_once() -> None:
    with Trace() as trace:
        x = torch.zeros(10)
        for elements in (0, 10, 0, 10):
            resize_storage(x, elements)
        del x
    assert [change for _, change in trace.changes] == [40, -40, 40, -40, 40, -40]


def test_resize_is_itself_again_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), Trace(), Trace():
        assert torch.UntypedStorage.resize_ is not RESIZE
        _ = 1 / 0
    assert torch.UntypedStorage.resize_ is RESIZE


def test_a_trace_keeps_no_tensor_alive() -> None:
    with Trace() as trace:
        x = torch.zeros(10)
        gone = weakref.ref(x)
        del x
    gc.collect()
    assert trace.operations and gone() is None


def test_a_training_step_has_the_peak_that_pytorchs_tracker_finds() -> None:
    x, layer = torch.zeros(64, 32, device="meta"), nn.Linear(32, 128, device="meta")
    with Trace() as trace:
        layer(x).relu().sum().backward()
    layer.zero_grad()
    with MemTracker() as tracker:
        layer(x).relu().sum().backward()
    total = tracker.get_tracker_snapshot("peak")[torch.device("meta")]["Total"]
    assert total == trace.peak_bytes + sum(p.nbytes for p in layer.parameters())


def test_sharded_parameters_are_gathered_by_resizing() -> None:
    """As under FSDP; PyTorch's tracker for it counts parameters and input too."""
    import torch.distributed as dist
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def peak(make_tracker: Callable[..., Any]) -> tuple[Any, int]:
        """The tracker, after two training steps; bytes that a rank held before."""
        with FakeTensorMode():
            model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)))
            for module in (*model, model):
                fully_shard(module, mesh=mesh)
            optimizer, x = torch.optim.SGD(model.parameters(), momentum=0.9), torch.zeros(8, 256)
            held = sum(p.to_local().nbytes for p in model.parameters() if isinstance(p, DTensor)) + x.nbytes
            with make_tracker(model, optimizer, x) as tracker:
                for _ in range(2):
                    model(x).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
        return tracker, held

    def theirs(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> FSDPMemTracker:
        tracker = FSDPMemTracker(model, optimizer)
        tracker.track_inputs((x,))
        return tracker

    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (8,))
        (trace, held), (tracker, _) = peak(lambda *_: Trace()), peak(theirs)
    finally:
        dist.destroy_process_group()
    total = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    assert total == trace.peak_bytes + held
