"""Targets of mode ecsq: what a wanted size means, and what is refused."""

from __future__ import annotations

import math

import pytest

from pyquant.errors import ConfigError
from pyquant.fit.target import KEYS, Target, read_target
from pyquant.limits import parse_size

NONE = dict.fromkeys(KEYS)


@pytest.mark.parametrize(
    ("given", "target", "says"),
    [
        ({"step": 0.01}, Target("step", 0.01), "step 0.01"),
        ({"target_bpw": 4}, Target("target_bpw", 4), "4 bits per weight"),
        ({"target_size": "3.5GB"}, Target("target_size", 3_500_000_000), "3,500,000,000 bytes"),
        ({"target_size": 12345}, Target("target_size", 12345), "12,345 bytes"),
        ({"like": "Q4_K"}, Target("like", "Q4_K"), "as good as Q4_K"),
        ({"code_bits": 3.5}, Target("code_bits", 3.5), "3.5 bits per quantized weight"),
    ],
)
def test_targets(given, target: Target, says: str) -> None:
    read = read_target(NONE | given, mode="ecsq")
    assert read == target
    assert str(read) == says
    assert read.searched == (target.key != "step")


def test_nothing_is_given() -> None:
    assert read_target(NONE) is None
    assert read_target({}, mode="q4_0") is None


@pytest.mark.parametrize("key", ["step", "target_bpw", "code_bits"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "4"])
def test_numbers_that_are_none(key: str, value: object) -> None:
    with pytest.raises(
        ConfigError, match=rf"^--{key.replace('_', '-')}: expected a number (above 0|from 6e-08) to .*, got"
    ):
        read_target({key: value}, prefix="--")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"target_bpw": 4, "target_size": "1MB"},
            "^give one of step, target_bpw, target_size, like and code_bits",
        ),
        ({"step": 1, "like": "Q4_K"}, "^give one of step, target_bpw, target_size, like and code_bits"),
        ({"code_bits": 6.6}, r"^code_bits: expected a number above 0 to 6\.5, got 6\.6"),
        ({"like": "Q9"}, "^like: mode: 'ggml:Q9' is no type"),
        ({"target_size": "4 apples"}, "^target_size: '4 apples' is not a size such as 800MB"),
    ],
)
def test_mistakes(given, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_target(NONE | given)


def test_what_else_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"^--like needs --text FILE"):
        read_target({"like": "Q4_K"}, prefix="--", has_text=False)
    with pytest.raises(ConfigError, match=r"^--target-bpw: is for mode ecsq, not for q4_0; drop --mode q4_0"):
        read_target({"target_bpw": 4}, prefix="--", mode="q4_0")


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("800MB", 800_000_000),
        ("1KB", 1000),
        ("2mb", 2_000_000),
        ("3.5GB", 3_500_000_000),
        ("1.5 tb", 1_500_000_000_000),
        ("2GiB", 2 << 30),
        ("3kib", 3 << 10),
        (" 7 B ", 7),
        ("12345", 12345),
        (12345, 12345),
    ],
)
def test_sizes(text: str | int, n_bytes: int) -> None:
    assert parse_size("size", text) == n_bytes


@pytest.mark.parametrize(
    "text", ["", "much", "-1MB", "nan", "inf", "1e9", "1 PB", "MB", "1,5GB", "4i", True, -3, 1.5e300]
)
def test_texts_that_are_no_sizes(text: object) -> None:
    with pytest.raises(ConfigError, match=r"^--target-size: .* is not a size such as 800MB, 3.5GB or 2GiB"):
        parse_size("--target-size", text)


@pytest.mark.parametrize("text", ["0", "0.4", "0MB", 0, "9" * 400])
def test_sizes_of_nothing_or_too_much(text: object) -> None:
    with pytest.raises(ConfigError, match=r"^--target-size: expected a size of 1 byte or more"):
        parse_size("--target-size", text)
