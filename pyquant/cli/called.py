"""Make the options of the commands that are called, and not of the others.

Typer makes those of all commands at every start, which would be a third of what --help takes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import typer
from typer.main import get_command_name


def with_options_of(app: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """Return an application whose commands have options where their name is among the words."""
    made = copy.copy(app)
    made.registered_commands = [copy.copy(command) for command in app.registered_commands]
    for command in made.registered_commands:
        assert command.callback
        if (command.name or get_command_name(command.callback.__name__)) not in words:
            command.callback = _without_options(command.callback)
    made.registered_groups = [copy.copy(group) for group in app.registered_groups]
    for group in made.registered_groups:
        assert group.typer_instance
        group.typer_instance = with_options_of(group.typer_instance, words if group.name in words else ())
    return made


def _without_options(command: Callable[..., Any]) -> Callable[[], None]:
    def listed() -> None: ...

    listed.__name__, listed.__doc__ = command.__name__, command.__doc__
    return listed
