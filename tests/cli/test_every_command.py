"""Promises of every command: help for each option, a schema for each result, old names that still work."""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import commands, run
from tests.support.costs import write_costs

TABLE = "values = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]\n"


def test_every_option_has_a_help_text() -> None:
    n_options = 0
    for command, function in commands().items():
        assert function.__doc__, command
        for name, hint in typing.get_type_hints(function, include_extras=True).items():
            if name != "return":
                n_options += 1
                text = typing.get_args(hint)[1].help
                assert text, (command, name)
                assert text.endswith("."), (command, name, text)
    assert n_options > 100


@pytest.fixture(scope="module")
def folder(generated: Callable[[str], Path], stats_of, text: Path, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    for name in ("model.gguf", "other.gguf"):
        (folder / name).symlink_to(generated("f32, rows of 64 and 96"))
    (folder / "stats.gguf").symlink_to(stats_of("f32, rows of 64 and 96"))
    (folder / "text.txt").symlink_to(text)
    (folder / "table.toml").write_text(TABLE)
    (folder / "types.txt").write_text("attn_v=q8_0")
    (folder / "prompts.jsonl").write_text('{"prompt": "the"}\n')
    write_costs(folder / "costs.json", (folder / "model.gguf", folder / "other.gguf"))
    made = run("pack", "model.gguf", "model.pqz", cwd=folder)
    assert made.returncode == 0, made.stderr
    return folder


PROMPTS = ["--prompts", "prompts.jsonl", "--max-tokens", "4"]
EVALUATION = ["--text", "text.txt", "--ctx", "64", "--chunks", "2"]
RESULTS = {
    "quantize": ["model.gguf", "q4_0.gguf", "--mode", "q4_0"],
    "histogram": ["model.gguf", "--mode", "q4_0"],
    "calibrate": ["model.gguf", *EVALUATION, "-o", "new.gguf"],
    "equalize": ["model.gguf", "equalized.gguf", "--calibration", "stats.gguf"],
    "sensitivity": ["model.gguf", "--calibration", "stats.gguf", *EVALUATION, "-o", "sensitivity.toml"],
    "mix": ["model.gguf", "--calibration", "stats.gguf", *EVALUATION, "--bits", "6", "-o", "mix.toml"],
    "recipe": ["model.gguf", "types.txt"],
    "perplexity": ["model.gguf", *EVALUATION],
    "compare": ["model.gguf", "other.gguf", *EVALUATION],
    "error": ["model.gguf", "other.gguf"],
    "speed": ["model.gguf", "--prompt", "8", "--generate", "2", "--rounds", "1"],
    "generate": ["model.gguf", "-p", "the", "--max-tokens", "4"],
    "draft costs": ["model.gguf", "other.gguf", "--rounds", "1"],
    "draft run": [
        "model.gguf",
        "other.gguf",
        "--prompts",
        "prompts.jsonl",
        "--max-tokens",
        "4",
        "--turns",
        "1",
    ],
    "structured": ["model.gguf", "-n", "1", "--length", "2", "--technique", "free"],
    "draft search": ["model.gguf", "other.gguf", *PROMPTS, "--costs", "costs.json", "--policy", "static"],
    "pack": ["model.gguf", "again.pqz"],
    "unpack": ["model.pqz", "again.gguf"],
    "dequantize": ["model.gguf", "f16.gguf"],
    "info": ["model.gguf"],
    "tables list": [],
    "tables show": ["basic"],
    "tables check": ["table.toml"],
    "tables build": ["model.gguf", "-o", "balanced.toml"],
    "tables learn": ["model.gguf", "-o", "learned.toml"],
}


def test_every_command_with_json_is_tried() -> None:
    with_json = {
        command for command, function in commands().items() if "json" in typing.get_type_hints(function)
    }
    assert {command for command in with_json if not command.startswith("study ")} == set(RESULTS)
    without = {command for command in commands() if not command.startswith("study ")} - with_json
    assert without == {"completion"}  # its result is a script


@pytest.mark.parametrize("command", RESULTS)
def test_a_result_is_one_object_with_a_schema(command: str, folder: Path) -> None:
    done = run(*command.split(), *RESULTS[command], "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert re.fullmatch(rf"pyquant\.{command.replace(' ', '.')}/\d+", result["schema"])


def test_the_version_is_said() -> None:
    from importlib.metadata import version

    assert run("--version").stdout == f"pyquant {version('pyquant')}\n"


def test_the_old_name_of_q4_t_works(folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "mode.toml"
    config.write_text('mode = "q4_0"\nstore = "packed"\nthreads = 1\n')
    outputs = [tmp_path / name for name in ("new.gguf", "old.gguf", "config.gguf")]
    options = [
        ["--mode", "q4_0", "--store", "q4_t"],
        ["--mode", "q4_0", "--store", "packed"],
        ["--config", config],
    ]
    remarks = []
    for output, arguments in zip(outputs, options):
        made = run("quantize", "model.gguf", output, *arguments, cwd=folder)
        assert made.returncode == 0, made.stderr
        remarks.append([line for line in made.stderr.splitlines() if line.startswith("pyquant: ")])
    renamed = "pyquant: store: 'packed' is called 'q4_t' now; the old name goes in 0.3"
    no_key = f"pyquant: {config}: threads: is no part of a mode now; give --threads"
    assert remarks == [[], [renamed], [no_key, renamed]]
    assert outputs[0].read_bytes() == outputs[1].read_bytes() == outputs[2].read_bytes()


def test_threads_of_a_configuration_are_checked(folder: Path, tmp_path: Path) -> None:
    for threads in ("0", "100000", "true", '"many"', "1.5"):
        config = tmp_path / "mode.toml"
        config.write_text(f'mode = "q4_0"\nthreads = {threads}\n')
        refused = run("quantize", "model.gguf", tmp_path / "out.gguf", "--config", config, cwd=folder)
        assert refused.returncode == 2
        assert f"{config}: threads: expected a whole number from 1 to 512" in refused.stderr
