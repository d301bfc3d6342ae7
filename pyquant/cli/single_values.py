"""Commands that refuse an option given twice where it takes one value; typer takes the last in silence."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperOption

from pyquant.errors import ConfigError


class Command(TyperCommand):
    """A command whose options are given once, but for those that are repeatable and for flags."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given: set[str] = set()
        _, _, parameters = self.make_parser(ctx).parse_args(list(args))
        for parameter in parameters:
            if not isinstance(parameter, TyperOption) or parameter.multiple or parameter.is_flag:
                continue
            flag = max(parameter.opts, key=len)
            if flag in given:
                raise ConfigError(f"{flag}: is given twice, and takes one value")
            given.add(flag)
        return super().parse_args(ctx, args)


class Commands(typer.Typer):
    """A group of such commands."""

    def command(self, *arguments: Any, **settings: Any) -> Any:
        return super().command(*arguments, **{"cls": Command, **settings})
