"""Options that are numbers: within a range of `pyquant.limits`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import typer

from pyquant.limits import Limit


@dataclass(frozen=True)
class Number:
    """A parser for typer, which names the option where a number does not fit."""

    limit: Limit

    def __call__(self, text: str | float) -> int | float:
        try:
            return self.limit.parse(text)
        except ValueError as error:
            raise typer.BadParameter(f"{error}.") from None


def number_option(limit: Limit, metavar: str, help: str, *names: str, panel: str | None = None) -> Any:
    """An option within a limit, called as its parameter where no names are given."""
    return typer.Option(*names, metavar=metavar, parser=Number(limit), help=help, rich_help_panel=panel)
