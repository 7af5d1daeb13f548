"""A trace says what the GPU was doing, whatever wrote it; a file that is none ends in one sentence."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

from flops_bytes.tools import kernels as module
from flops_bytes.tools.kernels import (
    NAMES,
    Delay,
    Gap,
    Trace,
    TraceError,
    as_trace,
    by_shape,
    delays,
    entries,
    exposed,
    gaps,
    joined,
    kind_of,
    main,
    read,
    report,
    unit_of,
    work_of,
)
from tests.conftest import ROOT

Event = dict[str, Any]


def kernel(name: str, start: float, length: float, number: int = 0, stream: int = 7, device: int = 0) -> Event:
    args = {"device": device, "stream": stream, "correlation": number}
    return {"ph": "X", "cat": "kernel", "name": name, "ts": start, "dur": length, "pid": 0, "tid": 7, "args": args}


def copy(start: float, length: float, number: int = 0) -> Event:
    return kernel("Memcpy DtoD (Device -> Device)", start, length, number) | {"cat": "gpu_memcpy"}


def launch(start: float, length: float, number: int, thread: int = 1) -> Event:
    event = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": start, "dur": length}
    return event | {"pid": 9, "tid": thread, "args": {"correlation": number}}


def operation(name: str, start: float, length: float, *shapes: list[int], dtype: str = "float", **more: Any) -> Event:
    args = {"Input Dims": list(shapes), "Input type": [dtype] * len(shapes)} | more
    event = {"ph": "X", "cat": "cpu_op", "name": f"aten::{name}", "ts": start, "dur": length}
    return event | {"pid": 9, "tid": 1, "args": args}


def traced(*events: Event, **beside: Any) -> Trace:
    return as_trace([*beside.items(), ("traceEvents", {"ph": "M"}), *(("traceEvents", event) for event in events)])


A100 = [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}]
GEMM = "cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align4"
STEP = (  # µs; the second matmul is launched 5 µs after the first has ended, the all-reduce outlasts it by 10
    operation("linear", 0, 20, [64, 32], [16, 32]),
    operation("addmm", 1, 15, [16], [64, 32], [32, 16]),
    launch(2, 3, 1),
    kernel(GEMM, 10, 20, 1),
    operation("mm", 30, 10, [64, 32], [32, 16]),
    launch(31, 4, 2),
    kernel("ampere_sgemm_64x64_nn", 40, 20, 2),
    kernel("void splitKreduce_kernel<float>", 60, 5, 2),
    launch(33, 1, 3, thread=2),
    kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 45, 30, 3, stream=20),
)


def test_kernels_that_overlap_are_counted_once() -> None:
    found = report(traced(*STEP), 0)
    assert found["span_seconds"] == 65e-6  # from 10 to 75
    assert found["busy_seconds"] == 55e-6  # less 30 to 40
    assert found["kernels"] == 4 and found["copies"] == 0
    assert [(row["kind"], row["seconds"], row["count"]) for row in found["kinds"]] == [
        ("matmul", 45e-6, 3),
        ("collective", 30e-6, 1),
    ]
    assert [(row["stream"], row["busy_seconds"]) for row in found["streams"]] == [("7", 45e-6), ("20", 30e-6)]


def test_a_copy_keeps_the_gpu_busy_and_is_no_kernel() -> None:
    found = report(traced(*STEP, copy(75, 5)), 0)
    assert (found["kernels"], found["copies"], found["busy_seconds"]) == (4, 1, 60e-6)
    assert [(row["kind"], row["count"]) for row in found["kinds"] if row["kind"] == "copy"] == [("copy", 1)]


def test_communication_is_exposed_while_nothing_computes() -> None:
    found = report(traced(*STEP), 0)
    assert (found["communication_seconds"], found["exposed_communication_seconds"]) == (30e-6, 10e-6)
    hidden = traced(*STEP, kernel("elementwise_kernel", 60, 15, stream=21))
    assert exposed(hidden.kernels) == 0
    assert exposed(traced(*STEP, copy(60, 15)).kernels) == 10_000  # a copy is no arithmetic
    twice = traced(*STEP, kernel("ncclDevKernel_AllGather", 65, 10, stream=21))
    assert exposed(twice.kernels) == 10_000  # two at once are not twice as long


def test_a_gap_is_the_launchs_until_it_has_returned() -> None:
    found = traced(*STEP)
    assert list(gaps(found.kernels, found.launches)) == [Gap(30_000, 40_000, 5_000)]  # the launch returns at 35
    assert report(found, 0)["gaps"] == {
        "count": 1,
        "seconds": 10e-6,
        "launching_seconds": 5e-6,
        "unknown_seconds": 0.0,
    }
    late = traced(kernel("a", 0, 10), launch(0, 5, 1), kernel("b", 20, 10, 1), launch(33, 20, 2), kernel("c", 40, 5, 2))
    assert [gap.launching for gap in gaps(late.kernels, late.launches)] == [0, 10_000]  # queued; still launching
    unknown = traced(kernel("a", 0, 10), kernel("b", 20, 10, 7))
    assert report(unknown, 0)["gaps"]["unknown_seconds"] == 10e-6


def test_the_delay_of_a_launch_is_told_apart_where_the_gpu_was_idle() -> None:
    found = traced(*STEP)
    assert list(delays(found.kernels, found.launches)) == [
        Delay(8_000, True),
        Delay(9_000, True),  # the kernel before had ended at 30
        Delay(12_000, False),  # one that was launched before begins before it
    ]
    queued = traced(launch(0, 1, 1), kernel("a", 5, 20, 1), launch(10, 1, 2), kernel("b", 25, 5, 2))
    assert list(delays(queued.kernels, queued.launches)) == [Delay(5_000, True), Delay(15_000, False)]
    graph = traced(launch(0, 1, 1), kernel("a", 5, 20, 1), kernel("b", 30, 5, 1))
    assert [delay.nanoseconds for delay in delays(graph.kernels, graph.launches)] == [5_000]  # to the first of a graph
    told = report(queued, 0)["launches"]
    assert told == {
        "count": 2,
        "median_call_seconds": 1e-6,
        "median_delay_seconds": 10e-6,
        "idle_count": 1,
        "median_idle_delay_seconds": 5e-6,
    }


def test_two_devices_do_not_mix() -> None:
    found = traced(*STEP, *(kernel("elementwise_kernel", 0, 100, device=1) for _ in range(2)))
    assert report(found, 0)["busy_seconds"] == 55e-6
    other = report(found, 1)
    assert (other["span_seconds"], other["busy_seconds"], other["communication_seconds"]) == (100e-6, 100e-6, 0)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "collective"),
        ("void dpsk::ep::internode::combine<false, 8>", "collective"),
        ("void flash::compute_attn_ws<Flash_fwd_kernel_traits<192>>", "attention"),
        ("void cutlass::device_kernel<flash::FlashAttnBwd<flash::CollectiveMainloopBwd>>", "attention"),
        ("fmha_cutlassF_bf16_aligned_64x64_sm80", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128", "attention"),
        ("attn_fwd", "attention"),
        ("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>>", "optimizer"),
        ("void cuApplyLayerNorm<float>", "normalization"),
        ("void layer_norm::ln_fwd_kernel<layer_norm::Kernel_traits>", "normalization"),
        ("void (anonymous namespace)::softmax_warp_forward<float>", "normalization"),
        ("void cudnn::bn_bw_1C11_kernel_new<float>", "normalization"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4>", "matmul"),
        ("Cijk_Ailk_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT16x16x128", "matmul"),
        ("nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT", "matmul"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "matmul"),
        ("void splitKreduce_kernel<float, float, float, float>", "matmul"),
        ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized>", "matmul"),
        ("sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32", "matmul"),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float>", "copy"),
        ("void at::native::elementwise_kernel<128, 2, at::native::direct_copy_kernel_cuda>", "copy"),
        ("void at::native::vectorized_elementwise_kernel<4, FillFunctor<float>>", "copy"),
        ("void at::native::vectorized_elementwise_kernel<4, gelu::{lambda(float)#1}>", "element-wise"),
        ("void cuda::per_token_cast_to_fp8_with_channels<__nv_bfloat16>", "element-wise"),
        ("triton_poi_fused_add_mul_3", "element-wise"),
        ("triton_red_fused_native_layer_norm_2", "normalization"),
        ("void at::native::reduce_kernel<128, 4, ReduceOp<float>>", "element-wise"),
        ("void split_embedding_codegen_forward_unweighted_kernel<float>", "other"),
        ("void convert_to_fp8<float>", "other"),
        ("my_kernel", "other"),
    ],
)
def test_a_kernels_name_says_its_kind(name: str, kind: str) -> None:
    assert kind_of(name) == kind and kind in NAMES


def work(name: str, *shapes: list[int], types: str | list[str] = "float", **more: Any) -> Any:
    kinds = [types] * len(shapes) if isinstance(types, str) else types
    return work_of(f"aten::{name}", {"Input Dims": list(shapes), "Input type": kinds} | more)


def test_the_work_of_a_matmul_follows_from_its_shapes() -> None:
    found = work("mm", [64, 32], [32, 16])
    assert found == ("matmul", (1, 64, 16, 32), "float32", 2 * 64 * 32 * 16, 4 * (64 * 32 + 32 * 16 + 64 * 16))
    added = work("addmm", [16], [64, 32], [32, 16], [], [])  # the last two are factors
    assert (added.shape, added.flops, added.bytes) == (found.shape, found.flops, found.bytes + 4 * 16)
    batch = work("bmm", [8, 64, 32], [8, 32, 16], types="c10::BFloat16")
    assert (batch.shape, batch.dtype) == ((8, 64, 16, 32), "bfloat16")
    assert (batch.flops, batch.bytes) == (8 * found.flops, 8 * found.bytes // 2)
    assert work("baddbmm", [8, 64, 16], [8, 64, 32], [8, 32, 16]).bytes == 8 * (found.bytes + 4 * 64 * 16)
    scaled = work("_scaled_mm", [64, 32], [32, 16], [], types=["c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "float"])
    assert (scaled.dtype, scaled.bytes) == ("float8", 64 * 32 + 32 * 16 + 2 * 64 * 16)  # written in 16 bits
    for wrong in ([[64, 32], [31, 16]], [[64, 32]], [[64, 32], [32]], [[8, 64, 32], [8, 32, 16]]):
        assert work("mm", *wrong) is None
    assert work("bmm", [8, 64, 32], [7, 32, 16]) is None
    assert work("mm", [64, 0], [0, 16]) is None


def test_the_work_of_attention_follows_from_its_shapes() -> None:
    b, H, G, T, Q = 2, 8, 2, 128, 64
    shapes = [b, H, T, Q], [b, G, T, Q], [b, G, T, Q]
    forward = work("_scaled_dot_product_flash_attention", *shapes, types="c10::BFloat16")
    assert forward.shape == (b, H, G, T, T, Q)
    assert forward.flops == 2 * 2 * b * H * T * T * Q  # scores and values
    assert forward.bytes == 2 * 2 * b * (H + G) * T * Q  # q and o, k and v
    causal = work("_scaled_dot_product_flash_attention", *shapes, **{"Concrete Inputs": ["", "", "", "0.", "True"]})
    assert causal.flops == 2 * 2 * b * H * (T * (T + 1) // 2) * Q
    backward = work("_scaled_dot_product_flash_attention_backward", [b, H, T, Q], *shapes, types="c10::BFloat16")
    assert (backward.flops, backward.shape) == (5 * forward.flops // 2, forward.shape)
    assert backward.bytes == 2 * forward.bytes  # gradients too
    assert work("_scaled_dot_product_flash_attention", [b, H, T, Q]) is None


def test_the_work_of_an_element_wise_operation_is_its_bytes() -> None:
    assert work("add", [4, 8], [4, 8]) == ("element-wise", (64, 32), "float32", 32, 4 * 96)
    assert work("mul", [4, 1], [8]).bytes == 4 * (4 + 8 + 32)  # broadcast
    number = work("mul", [4, 8], [], types=["c10::BFloat16", "double"])  # which widens nothing
    assert number.bytes == 2 * 32 + 8 + 2 * 32
    assert work("add", [4, 8], [4, 8], types=["c10::BFloat16", "float"]).bytes == 2 * 32 + 4 * 32 + 4 * 32
    assert work("add_", [4, 8], [4, 8], types=["c10::BFloat16", "float"]).bytes == 2 * 32 + 4 * 32 + 2 * 32
    assert work("copy_", [4, 8], [8], types=["c10::BFloat16", "float"]).bytes == 4 * 8 + 2 * 32
    assert work("gelu", [4, 8]).bytes == 2 * 4 * 32
    assert work("linear", [4, 8], [4, 8]) is None  # it launches nothing itself
    for dims, types in ((None, None), ([[4]], []), ([["4"]], ["float"]), ([[-4]], ["float"]), ([[4]], ["int"])):
        assert work_of("aten::gelu", {"Input Dims": dims, "Input type": types}) is None


def test_tensor_cores_are_known_by_the_kernels_name() -> None:
    assert unit_of("float32", GEMM) == "tf32" and unit_of("float32", "ampere_sgemm_64x64_nn") == "float32"
    assert unit_of("bfloat16", "cutlass_75_tensorop_bf16_s1688gemm_bf16") == "bfloat16"


def test_a_kernel_belongs_to_the_innermost_operation_that_launched_it() -> None:
    found = traced(*STEP, deviceProperties=A100)
    rows = {row.operation: row for row in by_shape(joined(found, 0))}
    assert sorted(rows) == ["aten::addmm", "aten::mm"]
    assert (rows["aten::addmm"].unit, rows["aten::addmm"].median_seconds) == ("tf32", 20e-6)
    mm = rows["aten::mm"]
    assert (mm.unit, mm.median_seconds, mm.kernel) == ("float32", 25e-6, "ampere_sgemm_64x64_nn")  # both of its kernels
    nested = traced(
        operation("addmm", 0, 20, [16], [64, 32], [32, 16]),
        operation("copy_", 1, 5, [64, 16], [16]),
        launch(2, 1, 1),
        launch(8, 1, 2),
        launch(30, 1, 3),  # of nothing that is known
        kernel("direct_copy_kernel", 10, 3, 1),
        kernel(GEMM, 13, 7, 2),
        kernel("elementwise_kernel", 40, 9, 3),
    )
    times = {row.operation: row.seconds for row in by_shape(joined(nested, 0))}
    assert times == {"aten::copy_": 3e-6, "aten::addmm": 7e-6}
    elsewhere = traced(*STEP[1:2], launch(2, 3, 1, thread=5), STEP[3])
    assert joined(elsewhere, 0) == [] == joined(found, 1)


def test_calls_of_one_shape_make_a_row_with_their_median() -> None:
    events = []
    for index, length in enumerate((10, 12, 50)):
        at = 100 * index
        events += [operation("mm", at, 9, [64, 32], [32, 16]), launch(at + 1, 1, index + 1)]
        events.append(kernel(GEMM, at + 20, length, index + 1))
    (row,) = by_shape(joined(traced(*events), 0))
    assert (row.calls, row.median_seconds, row.seconds) == (3, 12e-6, 72e-6)
    assert row.flop_per_second == 2 * 64 * 32 * 16 / 12e-6


def test_the_share_of_the_peak_is_that_of_the_card_and_the_unit() -> None:
    flops = 2 * 64 * 32 * 16
    found = report(traced(*STEP, deviceProperties=A100), 0)
    assert (found["name"], found["gpu"], found["sms"]) == ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM", 108)
    shares = {row["unit"]: row["peak_share"] for row in found["operations"]}
    assert shares == {
        "tf32": pytest.approx(flops / 20e-6 / 156e12),
        "float32": pytest.approx(flops / 25e-6 / 19.5e12),
    }
    whole = found["with_shapes"]
    assert (whole["calls"], whole["flops"], whole["seconds"]) == (2, 2 * flops, 45e-6)
    assert whole["peak_share"] == pytest.approx((flops / 156e12 + flops / 19.5e12) / 65e-6)
    named = report(traced(*STEP, deviceProperties=A100), 0, gpu="V100 16GB SXM")  # without TF32
    assert [row["peak_share"] for row in named["operations"] if row["unit"] == "tf32"] == [None]
    assert named["with_shapes"]["peak_share"] is None
    unknown = report(traced(*STEP), 0)
    assert unknown["gpu"] is None and unknown["with_shapes"]["peak_share"] is None


def test_without_shapes_the_times_are_told_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = [event for event in STEP if event["cat"] != "cpu_op"]
    assert main([str(write(tmp_path / "bare.json", {"traceEvents": bare}))]) == 0
    said = capsys.readouterr().out
    assert "no shapes: record_shapes=True" in said and "0.055 ms" in said


def test_an_amd_trace_is_read_too() -> None:
    def hip(event: Event) -> Event:
        name = event["name"].replace("cudaLaunchKernel", "hipExtModuleLaunchKernel")
        args = {key: value for key, value in event["args"].items() if key not in ("device", "stream")}
        return event | {"name": name, "args": args}  # where it ran is its process and thread

    matmul = hip(kernel("Cijk_Ailk_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT16x16x128_MI16x16x1", 10, 20, 1))
    matmul |= {"pid": 2, "tid": 0}  # ROCm counts the processors before its cards
    cards = [{"id": 0, "name": "AMD Instinct MI300X", "numSms": 304}] * 2
    found = report(traced(STEP[1], hip(launch(2, 3, 1)), matmul, deviceProperties=cards), 2)
    assert (found["gpu"], found["sms"], found["streams"][0]["stream"]) == ("MI300X", 304, "0")
    (row,) = found["operations"]
    assert (row["operation"], row["unit"], row["kind"]) == ("aten::addmm", "float32", "matmul")


def write(path: Path, found: object) -> Path:
    data = found if isinstance(found, bytes) else json.dumps(found).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


FILE = {"schemaVersion": 12, "deviceProperties": A100, "traceEvents": list(STEP), "last": 34}


def test_a_file_is_read_packed_or_plain_and_in_the_older_form(tmp_path: Path) -> None:
    wanted = traced(*STEP, deviceProperties=A100)
    assert read(write(tmp_path / "a.json", FILE)) == wanted == read(write(tmp_path / "a.json.gz", FILE))
    assert read(write(tmp_path / "b.json", list(STEP))) == traced(*STEP)
    old = json.loads(json.dumps(STEP).replace('"kernel"', '"Kernel"').replace("cuda_runtime", "Runtime"))
    old = json.loads(json.dumps(old).replace("cpu_op", "Operator").replace("Input Dims", "Input dims"))
    assert read(write(tmp_path / "c.json", {"traceEvents": old})) == traced(*STEP)


@pytest.mark.parametrize("chunk", [1, 2, 7, 64])
def test_where_a_part_of_the_file_ends_does_not_matter(chunk: int, tmp_path: Path, monkeypatch: Any) -> None:
    path = write(tmp_path / "a.json", json.dumps(FILE, indent=1, ensure_ascii=False).replace("mm", "mm é").encode())
    whole = list(entries(io.BytesIO(path.read_bytes())))
    monkeypatch.setattr(module, "CHUNK", chunk)
    assert list(entries(io.BytesIO(path.read_bytes()))) == whole
    assert ("schemaVersion", 12) in whole and whole[-1] == ("last", 34)
    assert any(key == "traceEvents" and event["name"].endswith("mm é") for key, event in whole)


def test_a_part_of_the_file_is_held_at_a_time(tmp_path: Path) -> None:
    path = write(tmp_path / "long.json", [kernel("a" * 1000, at, 1) | {"ph": "i"} for at in range(20_000)])
    held = 0
    with path.open("rb") as file:
        source = module._Source(file)
        for _ in module._items(source):
            held = max(held, len(source.text))
    assert path.stat().st_size > 20 * module.MIB > 3 * module.MIB > held


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it ends too early"),
    "no JSON": (b"hello", "stands 'h'"),
    "a number": (b"7", "stands '7'"),
    "no events": (b"{}", "no list of traceEvents"),
    "events of text": (b'{"a": 1, "traceEvents": "b', "it ends too early"),
    "cut off": (json.dumps(FILE).encode()[:-200], "it ends too early"),
    "cut off between events": (b'[{"ph": "X"}', "it ends too early"),
    "no comma": (b'{"traceEvents": [{} {}]}', "stands '{'"),
    "no colon": (b'{"traceEvents" [{}]}', "stands '['"),
    "a key that is none": (b"{7: 1}", "stands '7'"),
    "nested deep": (b'{"traceEvents": [' + b"[" * 200_000, "nested too deep"),
    "a number of many digits": (b'{"traceEvents": [' + b"9" * 5000 + b"]}", "ends too early"),
    "an event without end": (b'{"traceEvents": ["' + b"x" * 40_000_000 + b'"]}', "over 16 MiB"),
    "a pickle": (b"\x80\x04N.", "stands"),
    "zeros": (bytes(1000), "stands"),
}


@pytest.mark.parametrize(("data", "why"), HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_trace_ends_in_a_sentence(
    data: bytes, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "hostile.json", data)
    began = time.process_time()
    assert main([str(path)]) == 2 and time.process_time() - began < 20
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert str(path) in said.err and why in said.err and "export_chrome_trace(FILE)" in said.err


def test_what_cannot_be_read_or_is_too_large_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = write(tmp_path / "a.json.gz", FILE)
    broken = tmp_path / "broken.json.gz"
    broken.write_bytes(packed.read_bytes()[:-30])
    spoilt = tmp_path / "spoilt.json.gz"
    spoilt.write_bytes(packed.read_bytes()[:40] + b"\xff" * 40 + packed.read_bytes()[80:])
    bomb = write(tmp_path / "bomb.json.gz", b'{"traceEvents": [' + b" " * 50_000_000)
    monkeypatch.setattr(module, "LARGEST_FILE_BYTES", 20 * module.MIB)
    for path, why in (
        (tmp_path / "none", "name a file of"),
        (tmp_path, "name a file of"),
        (broken, "copy it once more"),
        (spoilt, "copy it once more"),
        (bomb, "larger than 20 MiB; record fewer steps"),
    ):
        assert main([str(path)]) == 2
        said = capsys.readouterr().err
        assert str(path) in said and why in said and said.count("\n") == 1
    monkeypatch.setattr(module, "MOST_EVENTS", 3)
    assert main([str(packed)]) == 2
    assert "more than 3 kernels, launches and operations; record fewer steps" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        {"ts": None},
        {"ts": "1"},
        {"dur": -1},
        {"dur": True},
        {"ts": 1e300},
        {"ts": float("nan")},
        {"dur": float("inf")},
        {"name": 7},
        {"args": [1]},
    ],
)
def test_an_event_that_makes_no_sense_is_left_out_and_counted(change: Event) -> None:
    found = as_trace(("traceEvents", event) for event in json.loads(json.dumps([STEP[3] | change, STEP[6]])))
    assert (len(found.kernels), found.misfits) == (1, 1)


def test_entries_of_other_kinds_do_no_harm() -> None:
    odd: list[Any] = [None, 7, "x", [], {}, {"ph": "X"}, {"ph": "X", "cat": "kernel"}]
    odd += [operation("mm", 0, 1) | {"args": None}, launch(0, 1, 1) | {"args": {"correlation": 2**70}}]
    odd += [kernel("a\x1b[2J", 0, 1) | {"args": {"device": "x", "stream": ["y" * 100], "correlation": -1}}]
    odd += [operation("mm", 0, 1, [2**40, 2**70], [2**70, 2**40]), operation("gelu", 0, 1, [9] * 100_000)]
    found = as_trace([("deviceProperties", [7, {}, {"id": "a", "name": 7}]), *(("traceEvents", each) for each in odd)])
    (each,) = found.kernels
    assert (each.name, each.device, len(each.stream)) == ("a?[2J", 0, 30) and found.launches == {}
    assert report(found, 0)["kernels"] == 1 and found.operations == ()


def test_many_streams_and_devices_take_no_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = [kernel("a", at, 1, stream=at, device=at % 3) for at in range(30_000)]
    path = write(tmp_path / "many.json", [*many, *(kernel("a", at, 1, device=at) for at in range(5_000))])
    began = time.process_time()
    assert main([str(path), "--rows", "2"]) == 0 and time.process_time() - began < 20
    said = capsys.readouterr().out
    assert said.count("device ") == module.MOST_DEVICES and len(said.splitlines()) < 64 * 20


def test_every_byte_that_is_changed_ends_well(tmp_path: Path) -> None:
    """Either it is a trace still, or TraceError says why not: no other exception."""
    data = json.dumps(FILE).encode()
    refused = 0
    path = tmp_path / "changed.json"
    for at in range(0, len(data), 3):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x15]) + data[at + 1 :])
        try:
            found = read(path)
            for device in {each.device for each in found.kernels}:
                list(module.printed(report(found, device)))
        except TraceError:
            refused += 1
    assert 0 < refused < len(data) // 3


def test_the_command_prints_a_report(tmp_path: Path) -> None:
    path = write(tmp_path / "step.json.gz", FILE)
    command = [sys.executable, "-m", "flops_bytes", "trace", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    for line in (
        "device 0: NVIDIA A100-SXM4-80GB (A100 80GB SXM)",
        "  busy                            0.055 ms   84.6%",
        "    matmul                        0.045 ms   69.2%        3 ×",
        "  communication 0.030 ms, of which 0.010 ms while nothing computed",
        "  idle between kernels            0.010 ms   15.4%",
        "    not launched yet              0.005 ms    7.7%        1 gaps",
        "  3 launches: a call 3.0 µs, to the kernel 9.0 µs; on an idle GPU 8.5 µs (2 ×)",
        "            0.030 ms       1 × collective: ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    ):
        assert line in done.stdout.splitlines(), done.stdout
    assert "addmm 1 × 64 × 16 × 32 tf32" in done.stdout and "other" not in done.stdout
    loaded = (
        f"import sys; sys.modules['torch'] = None; from flops_bytes.tools.kernels import main; main([{str(path)!r}])"
    )
    assert subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, capture_output=True).returncode == 0


def test_the_command_answers_in_json_and_names_what_no_rule_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "step.json", [*STEP, kernel("mine", 80, 2), kernel("bad", 90, -1)])
    assert main([str(path), "--json", "--gpu", "A100 80GB SXM"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["misfits"] == 1 and found["devices"][0]["gpu"] == "A100 80GB SXM"
    assert [row["kernel"] for row in found["devices"][0]["other"]] == ["mine"]
    assert main([str(path)]) == 0
    said = capsys.readouterr().out
    assert "1 × mine" in said and "1 events make no sense" in said and "no card of the book's table" in said
    assert main([str(path), "--rows", "1"]) == 0
    assert "ampere_sgemm" not in capsys.readouterr().out
    assert main([str(path), "--gpu", "H1000"]) == 2
    assert "H1000: no such card" in capsys.readouterr().err
    empty = write(tmp_path / "cpu.json", {"traceEvents": [operation("mm", 0, 1, [2, 2], [2, 2])]})
    assert main([str(empty)]) == 0 and "ProfilerActivity.CUDA" in capsys.readouterr().out


def test_what_pytorch_writes_today_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "cpu.json.gz"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        torch.ones(64, 32) @ torch.ones(32, 16)
    profile.export_chrome_trace(str(path))
    (found,) = [each for each in read(path).operations if each.name == "aten::mm"]
    assert found.work == work("mm", [64, 32], [32, 16])
    assert main([str(path)]) == 0 and "no kernel of a GPU" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "said"), module.SIZES.items())
def test_a_number_of_a_trace_is_as_many_bytes_as_torchs(name: str, said: tuple[str, int]) -> None:
    """As PyTorch's own C++ calls them."""
    fp8 = {"c10::Float8_e4m3fn": torch.float8_e4m3fn, "c10::Float8_e5m2": torch.float8_e5m2}
    dtype: torch.dtype = fp8[name] if name in fp8 else getattr(torch, said[0])
    assert said[1] == dtype.itemsize and said[0] == str(dtype).removeprefix("torch.").partition("_")[0]


@pytest.mark.parametrize(("name", "said"), module.ATTENTIONS.items())
def test_attention_does_the_flops_of_its_matmuls(name: str, said: tuple[int, int, int]) -> None:
    """Two of them forward, and five backward, where a kernel makes its scores again: by PyTorch's formulas."""
    (flops, first, moved), shape = said, (2, 3, 64, 16)
    is_backward = name.endswith("_backward")
    counted = (
        sdpa_backward_flop_count(shape, shape, shape, shape) if is_backward else sdpa_flop_count(shape, shape, shape)
    )
    assert flops == counted / (2 * 3 * 64 * 64 * 16) and (first, moved) == ((1, 8) if is_backward else (0, 4))
