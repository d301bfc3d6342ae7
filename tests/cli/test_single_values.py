"""Options that take one value are refused where they are given twice."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from pyquant.cli import app
from pyquant.cli.single_values import Command
from pyquant.errors import ConfigError
from tests.support.command import run


def every(command: object, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], TyperCommand]:
    if isinstance(command, TyperGroup):
        return {
            key: one
            for name, inner in command.commands.items()
            for key, one in every(inner, (*path, name)).items()
        }
    assert isinstance(command, TyperCommand)
    return {path: command}


COMMANDS = every(get_command(app))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_option_that_takes_one_value(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    assert isinstance(command, Command)
    for option in command.params:
        if isinstance(option, TyperOption) and not option.multiple and not option.is_flag:
            context = typer.Context(command)
            flag = max(option.opts, key=len)
            with pytest.raises(ConfigError, match=f"{flag}: is given twice, and takes one value"):
                command.parse_args(context, [option.opts[0], "1", flag, "1"])


def test_the_second_text_is_not_taken_in_silence(tmp_path: Path) -> None:
    done = run("perplexity", "m.gguf", "--chunks", "1", "--text", "a", "--chunks=2")
    assert (done.returncode, done.stderr) == (2, "pyquant: --chunks: is given twice, and takes one value\n")


def test_flags_and_repeatable_options_may_be_given_again() -> None:
    done = run(
        "quantize",
        "no.gguf",
        "out.gguf",
        "--mode",
        "q4_0",
        "--force",
        "--force",
        "--set",
        "pure=1",
        "--set",
        "x=1",
    )
    assert "twice" not in done.stderr
