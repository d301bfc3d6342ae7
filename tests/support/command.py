"""The command line, run as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import typer

from pyquant.cli import app

ENVIRONMENT = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}


def run(
    *arguments: object, script: str | None = None, environment: dict[str, str] | None = None, **options
) -> subprocess.CompletedProcess[str]:
    """Runs pyquant, or a script of Python. options: of subprocess.run."""
    what = ["-m", "pyquant", *map(str, arguments)] if script is None else ["-c", script]
    return subprocess.run(
        [sys.executable, *what],
        capture_output=True,
        text=True,
        env=environment or ENVIRONMENT,
        timeout=120,
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
