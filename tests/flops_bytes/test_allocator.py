"""The allocator's rules give what follows by hand from PyTorch's source, and each address that was recorded."""

from __future__ import annotations

import gzip
import json
import pickle
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flops_bytes.memory.allocator import MIB, Allocator, OutOfMemory, Pool, Settings, reserved, segment_bytes
from flops_bytes.tools.snapshot import as_snapshot
from published.replay import (
    Replayed,
    closed_loop,
    history,
    main,
    one_ahead,
    packed,
    read_file,
    read_histories,
    unpacked,
)
from tests.conftest import ROOT

FILES = sorted((ROOT / "measurements" / "published" / "snapshots").glob("*.json.gz"))
HISTORIES = {f"{path.name} {name}": (path, name) for path in FILES for name in read_file(path)["paths"]}


@pytest.mark.parametrize(
    ("size", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 1, 10 * MIB, 10 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (11 * MIB, 11 * MIB, 12 * MIB),
    ],
)
def test_a_request_is_rounded_up_and_so_is_its_segment(size: int, block: int, segment: int) -> None:
    assert Settings().block_bytes(size) == block and segment_bytes(block) == segment


@pytest.mark.parametrize(
    ("size", "block"), [(1200, 1536), (2049, 2560), (4097, 5120), (5121, 6144), (8192, 8192), (2**30 + 1, 1280 * MIB)]
)
def test_with_four_divisions_it_is_rounded_up_between_powers_of_two(size: int, block: int) -> None:
    assert Settings(roundup_power2_divisions=4).block_bytes(size) == block


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"roundup_power2_divisions": 3}, "power of two"),
        ({"max_split_size_bytes": 20 * MIB}, "20 MiB"),
        ({"max_split_size_bytes": 64 * MIB, "expandable_segments": True}, "not stated"),
    ],
)
def test_what_pytorch_refuses_is_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Settings(**settings)


def test_a_rest_is_split_off_above_nothing_in_small_segments_and_above_a_mebibyte_in_large_ones() -> None:
    small, large, larger = Allocator(), Allocator(), Allocator()
    small.allocate(MIB - 512)
    small.allocate(512)
    assert (small.allocated_bytes, small.reserved_bytes) == (MIB, 2 * MIB)
    large.allocate(11 * MIB)
    assert (large.allocated_bytes, large.reserved_bytes) == (12 * MIB, 12 * MIB), "1 MiB is left: too little"
    larger.allocate(11 * MIB - 512)
    assert (larger.allocated_bytes, larger.reserved_bytes) == (11 * MIB - 512, 12 * MIB)


def test_the_smallest_block_that_is_large_enough_is_taken_and_of_equal_ones_that_at_the_lowest_address() -> None:
    places = iter([900 * MIB, 100 * MIB, 500 * MIB, 300 * MIB])
    allocator = Allocator(place=lambda size: next(places))
    first, second, third, fourth = (allocator.allocate(size * MIB) for size in (30, 30, 40, 12))
    for address in (first, second, third, fourth):
        allocator.free(address)
    assert [allocator.allocate(size * MIB) for size in (30, 30, 30, 12)] == [second, first, third, fourth]


def test_free_neighbours_become_one_and_a_pool_or_a_stream_shares_with_no_other() -> None:
    allocator = Allocator()
    blocks = [allocator.allocate(5 * MIB) for _ in range(4)]
    assert allocator.reserved_bytes == 20 * MIB
    for index in (0, 2, 1):
        allocator.free(blocks[index])
    assert allocator.allocate(15 * MIB) == blocks[0]
    allocator.free(blocks[0])
    allocator.allocate(512)
    assert allocator.reserved_bytes == 22 * MIB, "the small pool has a segment of its own"
    allocator.allocate(5 * MIB, stream=7)
    assert allocator.reserved_bytes == 42 * MIB, "a stream too"


def test_emptying_the_cache_gives_back_what_holds_nothing() -> None:
    allocator = Allocator()
    kept, gone, whole = allocator.allocate(5 * MIB), allocator.allocate(5 * MIB), allocator.allocate(30 * MIB)
    for address in (gone, whole):
        allocator.free(address)
    assert allocator.empty_cache() == [whole] and allocator.reserved_bytes == 20 * MIB
    assert [block.taken for block in allocator.blocks(kept)] == [True, False]
    behind = allocator.allocate(5 * MIB)
    allocator.free(kept)
    assert allocator.empty_cache() == [], "its first block is free, but not another one"
    assert allocator.allocate(5 * MIB) == kept
    allocator.free(behind)
    with pytest.raises(KeyError):
        allocator.release(kept)
    with pytest.raises(KeyError):
        allocator.free(gone)


def test_blocks_above_the_limit_are_not_split_and_serve_only_what_is_nearly_as_large() -> None:
    allocator = Allocator(Settings(max_split_size_bytes=64 * MIB))
    large = allocator.allocate(100 * MIB)
    allocator.free(large)
    allocator.allocate(30 * MIB)
    assert allocator.reserved_bytes == 130 * MIB, "below the limit: not from one above it"
    assert allocator.foresee(80 * MIB) is None, "20 MiB would be wasted"
    assert allocator.allocate(81 * MIB) == large and allocator.allocated_bytes == 130 * MIB


def test_a_full_card_gives_back_what_holds_nothing_before_it_fails() -> None:
    allocator = Allocator(capacity_bytes=100 * MIB)
    allocator.free(allocator.allocate(60 * MIB))
    kept = allocator.allocate(70 * MIB)
    assert allocator.reserved_bytes == 70 * MIB
    with pytest.raises(OutOfMemory, match="73400320 reserved, of 104857600"):
        allocator.allocate(60 * MIB)
    allocator.free(kept)
    allocator.allocate(60 * MIB)
    only = Allocator(Settings(max_split_size_bytes=30 * MIB), capacity_bytes=120 * MIB)
    for address in [only.allocate(size * MIB) for size in (40, 50, 10)]:
        only.free(address)
    only.allocate(28 * MIB)
    assert sorted(only.segments.values()) == [size * MIB for size in (10, 28, 50)], "the smallest above the limit went"


def test_a_segment_that_grows_has_no_holes_between_sizes() -> None:
    """The case of PyTorch's own note: a batch that is a little larger than before."""
    fixed, grows = Allocator(), Allocator(Settings(expandable_segments=True))
    for allocator in (fixed, grows):
        for address in [allocator.allocate(size * MIB) for size in (38, 38, 38)]:
            allocator.free(address)
        for size in (44, 44):
            allocator.allocate(size * MIB)
    assert fixed.reserved_bytes == 3 * 38 * MIB + 2 * 44 * MIB
    assert grows.reserved_bytes == 120 * MIB, "3 × 38 = 114 MiB, in pages of 20 MiB"


def test_pages_in_the_middle_are_given_back_and_filled_again() -> None:
    allocator = Allocator(Settings(expandable_segments=True))
    first, middle, last = (allocator.allocate(size * MIB) for size in (10, 70, 20))
    assert (allocator.reserved_bytes, len(allocator.segments)) == (100 * MIB, 1)
    allocator.free(middle)
    assert allocator.empty_cache() == [] and allocator.reserved_bytes == 40 * MIB, "three whole pages of 10 to 80 MiB"
    assert allocator.allocate(30 * MIB) == middle and allocator.reserved_bytes == 60 * MIB, "10 MiB were there"
    allocator.allocate(512)
    assert (allocator.reserved_bytes, len(allocator.segments)) == (62 * MIB, 2), "small pages have 2 MiB"
    for address in (first, middle, last):
        allocator.free(address)
    allocator.empty_cache()
    assert (allocator.reserved_bytes, len(allocator.segments)) == (2 * MIB, 1)


def test_blocks_that_were_found_lie_where_they_lay() -> None:
    allocator = Allocator()
    allocator.add_segment(
        4096 * MIB, 20 * MIB, Pool(False, 0), {4100 * MIB: (3 * MIB, 0), 4104 * MIB: (2 * MIB, 2 * MIB)}
    )
    sizes = [(block.nbytes // MIB, block.taken) for block in allocator.blocks(4096 * MIB)]
    assert sizes == [(4, False), (4, True), (2, True), (10, False)], "1 MiB before the next block belongs to the first"
    with pytest.raises(ValueError, match="over another"):
        allocator.add_segment(8192 * MIB, 20 * MIB, Pool(False, 0), {8192 * MIB: (3 * MIB, 0), 8193 * MIB: (MIB, 0)})


def test_storages_that_come_and_go_reserve_their_peak() -> None:
    found = reserved([(1, 30 * MIB), (2, 12 * MIB), (1, -30 * MIB), (3, 20 * MIB), (2, 12 * MIB)])
    assert (found.peak_allocated_bytes, found.peak_reserved_bytes) == (56 * MIB, 66 * MIB), "2 is copied when it grows"
    with pytest.raises(ValueError, match="gives back 2 bytes and has 1"):
        reserved([(1, 1), (1, -2)])


@pytest.mark.parametrize(("path", "name"), HISTORIES.values(), ids=HISTORIES)
def test_what_was_recorded_follows_from_sizes_and_order(path: Path, name: str) -> None:
    """With the addresses of new segments, which CUDA chooses. Without them ties fall otherwise, and reserve as much."""
    found = read_histories(path)[name]
    ahead, told, untold = one_ahead(found), closed_loop(found, True), closed_loop(found, False)
    for replayed in (ahead, told):
        assert (replayed.right, replayed.new_right) == (replayed.addresses, replayed.new_segments)
        assert replayed.given_back_right == replayed.given_back
    assert ahead == told, "the peaks too"
    assert untold.first_wrong == ("tie" if untold.right < untold.addresses else "")
    assert untold.peak_reserved_bytes == told.peak_reserved_bytes and untold.new_right == told.new_right
    assert unpacked(json.loads(json.dumps(packed(found)))) == found


def test_these_are_48384_requests_and_6300_segments() -> None:
    actions = Counter(step.action for path in FILES for found in read_histories(path).values() for step in found.steps)
    assert (actions["alloc"], actions["segment_alloc"]) == (48_384, 6_300)


def test_their_files_say_whose_they_are_and_stay_small() -> None:
    assert len(FILES) == 2 and sum(path.stat().st_size for path in FILES) < 300_000
    for told in map(read_file, FILES):
        assert "derived only" in told["licence"] and len(told["commit"]) == 40
        assert {*told["histories"]} == {*told["sha256"]} == {*told["paths"]}


def test_a_wrong_rule_is_noticed() -> None:
    """A made-up history in which PyTorch would have taken the other one of two equal blocks."""
    segments = [(at, 20 * MIB) for at in (100 * MIB, 200 * MIB)]
    found = {
        "segments": [
            {
                "address": at,
                "total_size": size,
                "segment_type": "large",
                "blocks": [{"size": size, "state": "inactive"}],
            }
            for at, size in segments
        ],
        "device_traces": [
            [
                {"action": "alloc", "addr": 200 * MIB, "size": 20 * MIB, "stream": 0},
                {"action": "free_requested", "addr": 200 * MIB, "size": 20 * MIB, "stream": 0},
                {"action": "free_completed", "addr": 200 * MIB, "size": 20 * MIB, "stream": 0},
            ]
        ],
    }
    told = history(as_snapshot(found, 1000))
    assert one_ahead(told) == Replayed(1, 0, "tie", 0, 0, 0, 0, 20 * MIB, 40 * MIB) == closed_loop(told, True)


def test_several_streams_and_segments_that_grow_are_refused() -> None:
    event = {"action": "alloc", "addr": 0, "size": 512, "stream": 1}
    streams = {"segments": [], "device_traces": [[event, {**event, "stream": 2}]]}
    grows = {"segments": [], "device_traces": [[{**event, "action": "segment_map", "size": 20 * MIB}]]}
    for found, why in ((streams, "streams"), (grows, "grow")):
        with pytest.raises(ValueError, match=why):
            history(as_snapshot(found, 1000))


def test_histories_are_derived_from_a_clone_at_the_commit_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clone, path = tmp_path / "clone", tmp_path / "made-up.json.gz"
    clone.mkdir()
    steps = [("segment_alloc", 0, 20 * MIB), ("alloc", 0, 5 * MIB), ("alloc", 5 * MIB, 6 * MIB)]
    steps += [("free_completed", 0, 5 * MIB), ("alloc", 0, 4 * MIB), ("free_completed", 0, 4 * MIB)]
    steps += [("free_completed", 5 * MIB, 6 * MIB), ("segment_free", 0, 20 * MIB), ("segment_alloc", 0, 30 * MIB)]
    steps += [("alloc", 0, 30 * MIB), ("segment_alloc", 64 * MIB, 40 * MIB), ("alloc", 64 * MIB, 40 * MIB)]
    events = [{"action": action, "addr": 64 * MIB + at, "size": size, "stream": 0} for action, at, size in steps]
    blocks = [{"size": 30 * MIB, "state": "active_allocated"}]
    last = {"address": 64 * MIB, "total_size": 30 * MIB, "segment_type": "large", "blocks": blocks}
    other = {**last, "address": 128 * MIB, "total_size": 40 * MIB, "blocks": [{**blocks[0], "size": 40 * MIB}]}
    (clone / "a.pickle").write_bytes(pickle.dumps({"segments": [last, other], "device_traces": [events]}))
    git = ["git", "-C", str(clone), "-c", "user.name=Some Body", "-c", "user.email=some@body"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "A snapshot"]):
        subprocess.run([*git, *arguments], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    source = {"repository": "some/body", "commit": commit, "licence": "MIT", "card": "not named", "paths": ["a.pickle"]}
    path.write_bytes(gzip.compress(json.dumps(source).encode()))
    assert main([str(path), str(clone)]) == 0
    assert capsys.readouterr().out == f"a.pickle 5 5  3 3 1 1 {70 * MIB} {70 * MIB}\n"
    (found,) = read_histories(path).values()
    assert [(step.action, step.address - 64 * MIB, step.size) for step in found.steps] == steps
    path.write_bytes(gzip.compress(json.dumps({**source, "paths": ["b.pickle"]}).encode()))
    assert main([str(path), str(clone)]) == 2 and "no b.pickle at" in capsys.readouterr().err
    path.write_bytes(gzip.compress(json.dumps({**source, "commit": None, "card": 1}).encode()))
    assert main([str(path)]) == 2 and "FILE CLONE" in capsys.readouterr().err
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="made-up"):
        read_file(path)
