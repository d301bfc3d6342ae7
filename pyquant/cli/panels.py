"""Panels of options in a command's help: those of a group whose dataclass has a `panel` stand together."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from typer.core import TyperArgument

from pyquant.cli.single_values import Command

GENERAL, EXPERT = "Options", "Expert options"


class CommandWithPanels(Command):
    """A command whose help lists arguments, general options, panels of options, and those for experts."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # types of a click that typer keeps to itself
        """Write the help of all parameters."""
        panels: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                panels[_panel(parameter)].append(record)
        first, last = ("Arguments", GENERAL), (EXPERT,)
        between = [name for name in panels if name not in (*first, *last)]
        for name in (*first, *between, *last):
            if name in panels:
                with formatter.section(name):
                    formatter.write_dl(panels[name])


def _panel(parameter: Any) -> str:
    if isinstance(parameter, TyperArgument):
        return "Arguments"
    return getattr(parameter, "rich_help_panel", None) or GENERAL
