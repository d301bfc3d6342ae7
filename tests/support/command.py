"""The command line, run as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import typer

from pyquant.cli import app
from pyquant.limits import Limit

ENVIRONMENT = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
ENVIRONMENT.pop("PYTHONUNBUFFERED", None)  # what is left in a stream at the end is lost sight of with it


def run(
    *arguments: object,
    script: str | None = None,
    environment: dict[str, str] | None = None,
    timeout: float = 120,
    **options,
) -> subprocess.CompletedProcess[str]:
    """Runs pyquant, or a script of Python. options: of subprocess.run."""
    what = ["-m", "pyquant", *map(str, arguments)] if script is None else ["-c", script]
    return subprocess.run(
        [sys.executable, *what],
        capture_output=True,
        text=True,
        env=environment or ENVIRONMENT,
        timeout=timeout,
        check=False,
        **options,
    )


def commands() -> dict[str, Callable[..., None]]:
    """The function of every command, by its name on the command line."""

    def of(group: typer.Typer, prefix: str = "") -> Iterator[tuple[str, Callable[..., None]]]:
        for command in group.registered_commands:
            yield prefix + (command.name or command.callback.__name__), command.callback
        for inner in group.registered_groups:
            yield from of(inner.typer_instance, f"{prefix}{inner.name} ")

    return dict(of(app))


@dataclass(frozen=True)
class NumericOption:
    """A number that a command takes. flag: how it is given. limit: its range, or None."""

    command: str
    name: str
    flag: str
    limit: Limit | None


def numeric_options() -> list[NumericOption]:
    """All numbers of all commands."""
    listed = []
    for command, function in commands().items():
        for name, hint in typing.get_type_hints(function, include_extras=True).items():
            if name == "return":
                continue
            kind, marker = typing.get_args(hint)[:2]
            kinds = {kind, *typing.get_args(kind)}
            kinds |= {inner for outer in kinds for inner in typing.get_args(outer)}
            if kinds & {int, float}:
                flag = next(iter(marker.param_decls or ()), f"--{name.replace('_', '-')}")
                listed.append(NumericOption(command, name, flag, getattr(marker.parser, "limit", None)))
    return listed
