"""Tokens per second by a clock of the test's own, so that every figure is known beforehand."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from pyquant.cli import app
from pyquant.errors import ConfigError
from pyquant.evaluate import speed
from pyquant.evaluate.speed import measure_speed
from pyquant.llama.context import Context

# Seconds that each round takes, by a model's name and whether its tokens are given at once. The first round
# is not counted: its seconds would change every figure.
SECONDS = {
    ("first", True): [1000, 1, 2, 4],
    ("first", False): [1000, 1, 0.5, 0.25],
    ("second", True): [0.001, 2, 0.5, 1],
    ("second", False): [0.001, 0.25, 1, 1],
}
PROMPT, GENERATE, ROUNDS, THREADS = 8, 4, 3, 1
OPTIONS = {"n_prompt": PROMPT, "n_generate": GENERATE, "rounds": ROUNDS, "threads": THREADS}
COMMAND = ["speed", "--prompt", "8", "--generate", "4", "--rounds", "3", "--threads", "1"]

# Tokens per second, and ratios of the second model's to the first's in the same round.
PROMPTS, GENERATIONS = {"first": [8, 4, 2], "second": [4, 16, 8]}, {"first": [4, 8, 16], "second": [16, 4, 4]}
RATIOS = {"prompt": [0.5, 4, 4], "generation": [4, 0.5, 0.25]}


@pytest.fixture
def models(small_model: Path, tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "first.gguf", tmp_path / "second.gguf"]
    for path in paths:
        path.symlink_to(small_model)
    return paths


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """List what is called, in order, while a clock goes on by what SECONDS says."""
    left = {key: iter(seconds) for key, seconds in SECONDS.items()}
    now = [5.0]
    called: list[tuple] = []

    def feed(context: Context, tokens: np.ndarray, *, at_once: bool) -> None:
        name = context.model.path.stem
        called.append((name, len(tokens), at_once))
        now[0] += next(left[name, at_once])

    def clear(context: Context) -> None:
        called.append((context.model.path.stem, "clear"))
        now[0] += 100  # what it takes is no part of a measurement

    monkeypatch.setattr(speed, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(Context, "feed", feed)
    monkeypatch.setattr(Context, "clear", clear)
    return called


def test_models_take_turns_each_test_from_an_empty_context(models: list[Path], calls: list) -> None:
    told: list[tuple[int, int]] = []
    measure_speed(models, **OPTIONS, progress=lambda done, total: told.append((done, total)))
    turn = [
        call
        for name in ("first", "second")
        for call in ((name, "clear"), (name, PROMPT, True), (name, "clear"), (name, GENERATE, False))
    ]
    assert calls == (ROUNDS + 1) * turn
    n_tests = len(calls) // 2
    assert told == [(done, n_tests) for done in range(1, n_tests + 1)]


def test_a_prompt_is_one_batch_and_each_generated_token_another(
    models: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    monkeypatch.setattr(Context, "_decode", lambda context, batch: batches.append(batch.n_tokens))
    measure_speed(models[:1], **{**OPTIONS, "rounds": 1})
    assert batches == 2 * [PROMPT, *GENERATE * [1]]


def test_rates_are_of_counted_rounds_and_ratios_of_the_same_round(models: list[Path], calls: list) -> None:
    report = measure_speed(models, **OPTIONS)
    assert (report.n_prompt, report.n_generate, report.n_threads) == (PROMPT, GENERATE, THREADS)
    first, second = report.models
    assert [first.model, second.model] == [str(path) for path in models]
    assert first.n_bytes == second.n_bytes == models[0].stat().st_size
    assert [first.prompt.rounds, second.prompt.rounds] == list(PROMPTS.values())
    assert [first.generation.rounds, second.generation.rounds] == list(GENERATIONS.values())
    assert first.prompt.ratios == first.generation.ratios == [1, 1, 1]
    assert (second.prompt.ratios, second.generation.ratios) == (RATIOS["prompt"], RATIOS["generation"])
    # The ratio is the median of ratios, not a ratio of medians, which would be 2 for prompts.
    assert second.prompt.to_json() == {
        "tokens_per_second": 8, "low": 4, "high": 16, "ratio": 4, "ratio_low": 0.5, "ratio_high": 4,
        "rounds": [4, 16, 8],
    }  # fmt: skip
    assert second.generation.to_json() == {
        "tokens_per_second": 4, "low": 4, "high": 16, "ratio": 0.5, "ratio_low": 0.25, "ratio_high": 4,
        "rounds": [16, 4, 4],
    }  # fmt: skip


def test_the_command_prints_what_was_measured(models: list[Path], calls: list) -> None:
    shown = CliRunner().invoke(app, [*COMMAND, *map(str, models), "--json"])
    assert shown.exit_code == 0, shown.output
    said = json.loads(shown.stdout)
    assert (said["n_prompt"], said["n_generate"], said["n_threads"]) == (PROMPT, GENERATE, THREADS)
    assert [model["prompt"]["rounds"] for model in said["models"]] == list(PROMPTS.values())
    assert [model["generation"]["rounds"] for model in said["models"]] == list(GENERATIONS.values())


def test_the_table_has_medians_with_low_and_high(
    models: list[Path], calls: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = CliRunner().invoke(app, [*COMMAND, *map(str, models)])
    (line,) = (line for line in shown.stdout.splitlines() if "second.gguf" in line)
    figures = "8.0 (4.0..16.0) 4.00 (0.50..4.00) 4.0 (4.0..16.0) 0.50 (0.25..4.00)"
    assert " ".join(line.replace("│", " ").split()).endswith(figures)


def test_a_model_that_is_given_twice_is_refused(models: list[Path]) -> None:
    with pytest.raises(ConfigError, match="a model is given twice"):
        measure_speed([*models, models[0]], **OPTIONS)
