"""A value is printed as its name says: unit, digits, and whether it depends on the device."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.units import format_value, is_device_value, unit_of, unit_of_path


@pytest.mark.parametrize(
    ("value", "name", "style", "printed"),
    [
        (128, "x_bytes", "", "128 B"),
        (1023, "x_bytes", "", "1,023 B"),
        (1024, "x_bytes", "", "1 KiB"),
        (2_415_919_104, "x_bytes", "", "2.25 GiB"),
        (2_415_919_104, "x_bytes", "gb", "2.42 GB"),
        (2_415_919_104, "x_bytes", "full", "2,415,919,104 B"),
        (1_048_575.9, "x_bytes", "", "1.00 MiB"),
        (788.2e12, "x_flop_per_second", "", "788 TFLOP/s"),
        (4.3e12, "x_bytes_per_second", "", "4.30 TB/s"),
        (291_648_307_200, "x_flops", "", "292 GFLOPs"),
        (4.2e16, "x_flops", "", "42 PFLOPs"),
        (6.3e24, "x_flops", "", "6.30 × 10²⁴ FLOPs"),
        (1.2e18, "x_flop_per_second", "", "1.20 EFLOP/s"),
        (124_439_808, "x_parameters", "", "124M"),
        (124_439_808, "x_parameters", "full", "124,439,808"),
        (40e9, "x_parameters", "", "40B"),
        (0.0123, "x_seconds", "", "12.3 ms"),
        (1.5e-6, "x_seconds", "", "1.50 µs"),
        (0.99996, "x_seconds", "", "1.00 s"),
        (0.404, "mfu", "", "40.4 %"),
        (1.374, "x_ratio", "", "1.37×"),
        (1.374, "x", "times", "1.37×"),
        (143.94, "days", ".1f", "143.9"),
        (0.07689, "x", ".1f%", "7.7 %"),
        (1e-8, "x", "", "1.00 × 10⁻⁸"),
        (1234567, "x", "", "1,234,567"),
        (2.71828, "x", "", "2.718"),
        (2.71828, "x_seconds", "plain", "2.718"),
        (1234.6, "x_per_second", "", "1,235/s"),
        (788e12, "x_flop_per_second", "sci", "7.88 × 10¹⁴ FLOP/s"),
        (4.3e3, "x_bytes_per_second", "full", "4,300 B/s"),
        (0.404, "x", "percent", "40.4 %"),
        (None, "x_bytes", "", "—"),
        (None, "x_bytes", ".1f", "—"),
        (True, "x", "", "yes"),
        ("text", "x", "", "text"),
        (0.1 + 0.2, "x", "raw", "0.30000000000000004"),
    ],
)
def test_printed(value: Any, name: str, style: str, printed: str) -> None:
    assert format_value(value, unit_of(name), style) == printed


def test_yes_and_no_in_chinese() -> None:
    assert [format_value(value, "", "", "zh") for value in (True, False)] == ["是", "否"]


@pytest.mark.parametrize(
    ("value", "name", "style", "english", "chinese"),
    [
        (1.814, "x_ratio", "", "1.81×", "1.81 倍"),
        (12, "x", "times", "12.0×", "12.0 倍"),
        (0.404, "mfu", "", "40.4 %", "40.4%"),
        (0.404, "x", "percent", "40.4 %", "40.4%"),
        (0.404, "x", ".1f%", "40.4 %", "40.4%"),
        (6_400_000, "x", "wan", "6.40M", "640 万"),
        (124_439_808, "x_parameters", "wan", "124M", "1.24 亿"),
        (999_960_000, "x_parameters", "wan", "1.00B", "10.0 亿"),
        (99_999_000, "x", "wan", "100M", "1.00 亿"),
        (9_000, "x", "wan", "9K", "9000"),
        (8_192, "x", "full", "8,192", "8192"),
        (1_979.4, "x", ".1f", "1,979.4", "1979.4"),
        (1023, "x_bytes", "", "1,023 B", "1023 B"),
        (151_936, "x", "full", "151,936", "151,936"),
        (2_415_919_104, "x_bytes", "full", "2,415,919,104 B", "2,415,919,104 B"),
        (15e12, "x_flops", "wan", "15 TFLOPs", "15 万亿 FLOPs"),
        (2.5, "x", ".1f", "2.5", "2.5"),
    ],
)
def test_chinese_writes_it_its_own_way(value: Any, name: str, style: str, english: str, chinese: str) -> None:
    assert [format_value(value, unit_of(name), style, language) for language in ("en", "zh")] == [english, chinese]


@pytest.mark.parametrize(("value", "style"), [("text", "short"), (True, "percent"), ([1], ""), ({"a": 1}, "full")])
def test_a_style_that_does_not_fit_is_refused(value: Any, style: str) -> None:
    with pytest.raises(ValueError, match=r"format|single values"):
        format_value(value, "", style)


def test_the_last_unit_of_a_path_decides() -> None:
    assert unit_of_path(["sweep_flop_per_second", "bf16", "8192"]) == "flop_per_second"
    assert unit_of_path(["copies", "plain", "median_seconds"]) == "seconds"
    assert unit_of_path(["copied_bytes", "median_seconds"]) == "seconds"
    assert unit_of_path(["step_seconds", "loss_share", "0"]) == "share"
    assert unit_of_path(["measured_rungs", "bf16", "seconds"]) == "seconds"
    assert unit_of_path(["seconds"]) == "", "a value is published by its suffix"


@pytest.mark.parametrize(
    ("path", "device"),
    [
        ("x_bytes", False),
        ("x_seconds", True),
        ("copy_timing.median_seconds", True),
        ("copy_timing.spread", True),
        ("copy_timing.trials", True),
        ("sweep_mfu.bf16", True),
        ("measured_bytes", True),
        ("predicted_bytes.a", True),
        ("PEAKS.H100.flop_per_second", False),
    ],
)
def test_exact_or_device(path: str, device: bool) -> None:
    assert is_device_value(path.split(".")) is device
