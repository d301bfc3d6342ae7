"""Every number at its bounds and beyond: on the command line, in TOML and in functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from pyquant import (
    ConfigError,
    calibrate_model,
    compare_models,
    count_codes,
    limits,
    make_mode,
    measure_perplexity,
    measure_speed,
    pack_model,
    quantize_model,
)
from pyquant.limits import Limit
from tests.support.command import numeric_options, run
from tests.support.models import ODD_ROWS

LIMITS = {name: value for name, value in vars(limits).items() if isinstance(value, Limit)}


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_what_fits(limit: Limit) -> None:
    assert limit.parse(str(limit.high if not limit.below_high else limit.high / 2)) > limit.low
    assert limit.above_low or limit.parse(str(limit.low)) == limit.low
    low = [str(limit.low)] if limit.above_low else []
    high = [str(limit.high)] if limit.below_high else []
    beyond = [str(limit.high + 1), str(limit.low - 1), "99999999999", "-99999999999", "9" * 5000]
    for text in [*low, *high, *beyond, "nan", "inf", "-inf", "1e999", "", "x", "0x1", "--"]:
        with pytest.raises(ValueError, match=r"is not a (whole )?number (from|above)"):
            limit.parse(text)
    for value in (math.nan, math.inf, -math.inf, limit.high + 1, limit.low - 1):
        with pytest.raises(ConfigError, match=r"^name: expected a (whole )?number (from|above)"):
            limit.check("name", value)


def test_every_number_of_every_command_has_a_limit() -> None:
    options = numeric_options()
    assert len(options) > 30
    assert [option for option in options if option.limit not in LIMITS.values()] == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["perplexity", "M", "--text", "T", "--threads", "100000"],
            "'--threads': 100000 is not a whole number",
        ),
        (["error", "M", "M", "--threads", "99999999999"], "'--threads': 99999999999 is not a whole number"),
        (["speed", "M", "--prompt", "99999999999"], "'--prompt': 99999999999 is not a whole number"),
        (
            ["quantize", "M", "out.gguf", "--mode", "ecsq", "--target-bpw", "nan"],
            "nan is not a number above 0",
        ),
        (
            ["quantize", "M", "out.gguf", "--mode", "ecsq", "--target-bpw", "inf"],
            "inf is not a number above 0",
        ),
        (["compare", "M", "M", "--text", "T", "--chunks", "0"], "'--chunks': 0 is not a whole number from 1"),
    ],
)
def test_a_number_that_does_not_fit(arguments, says, small_model: Path, text: Path, tmp_path: Path) -> None:
    words = {"M": small_model, "T": text}
    refused = run(*(words.get(word, word) for word in arguments), cwd=tmp_path)
    assert refused.returncode == 2
    assert says in " ".join(refused.stderr.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("threads", [0, -1, 513, 100_000, 99_999_999_999])
def test_functions_refuse_threads(threads: int, generated: Callable, text: Path, tmp_path: Path) -> None:
    model, output = generated("f32, rows of 64 and 96"), tmp_path / "out"
    other, q4_0 = generated(ODD_ROWS), make_mode({"mode": "q4_0"})
    for call in (
        lambda: quantize_model(model, output, q4_0, threads=threads),
        lambda: count_codes(model, q4_0, threads=threads),
        lambda: pack_model(model, output, threads=threads),
        lambda: calibrate_model(model, [text], output, n_ctx=64, threads=threads),
        lambda: measure_perplexity(model, text, n_ctx=64, n_chunks=1, threads=threads),
        lambda: compare_models(model, [other], text, n_ctx=64, n_chunks=1, threads=threads),
        lambda: measure_speed([model], n_prompt=1, n_generate=1, rounds=1, threads=threads),
    ):
        with pytest.raises(
            ConfigError, match=f"threads: expected a whole number from 1 to 512, got {threads}"
        ):
            call()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"mode": "ecsq", "hessian": "x", "step": math.nan}, "step"),
        ({"mode": "ecsq", "hessian": "x", "step": math.inf}, "step"),
        ({"mode": "q8_0", "hessian": "x", "dampening": math.nan}, "dampening"),
        ({"mode": "q8_0", "hessian": "x", "error_propagation": 10**12}, "error_propagation"),
        ({"mode": "q4_0_multizero", "radius": 10**30}, "radius"),
    ],
)
def test_settings_refuse_numbers(settings: dict, key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: input should be"):
        make_mode(settings)
