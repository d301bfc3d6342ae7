"""Promises of every command: help for each option, a schema for each result."""

from __future__ import annotations

import json
import re
import typing
from pathlib import Path

import pytest

from tests.support.command import commands, run
from tests.support.every_command import RESULTS


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


def test_every_command_with_json_is_tried() -> None:
    with_json = {
        command for command, function in commands().items() if "json" in typing.get_type_hints(function)
    }
    assert {command for command in with_json if not command.startswith("study ")} == set(RESULTS)
    without = {command for command in commands() if not command.startswith("study ")} - with_json
    assert without == {"completion"}  # its result is a script


def test_every_command_that_runs_a_model_takes_a_gpu() -> None:
    without = {
        command
        for command, function in commands().items()
        if "gpu_layers" not in typing.get_type_hints(function)
    }
    assert without == {
        *("card", "completion", "dequantize", "error", "histogram", "info", "pack", "recipe", "unpack"),
        *("study export", "study ls", "study show", "study validate"),
        *("tables build", "tables check", "tables learn", "tables list", "tables show"),
    }


@pytest.mark.parametrize("command", RESULTS)
def test_a_result_is_one_object_with_a_schema(command: str, command_folder: Path) -> None:
    done = run(*command.split(), *RESULTS[command], "--json", cwd=command_folder)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert re.fullmatch(rf"pyquant\.{command.replace(' ', '.')}/\d+", result["schema"])


def test_the_version_is_said() -> None:
    from importlib.metadata import version

    assert run("--version").stdout == f"pyquant {version('pyquant')}\n"
