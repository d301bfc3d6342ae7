"""Options that belong together, declared once as the fields of a dataclass and taken by several commands."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_args, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field of those of its parameters that are dataclasses.

    The command itself is called with the dataclasses. Fields are `Annotated` as typer wants options to be;
    a dataclass may name the `panel` of the help that they stand in.
    """
    flat: list[inspect.Parameter] = []
    groups: dict[str, tuple[type, list[str]]] = {}
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        hint = parameter.annotation
        if not (isinstance(hint, type) and is_dataclass(hint)):
            flat.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        options = _options(hint)
        groups[name] = hint, [option.name for option in options]
        flat += options

    def with_options(**given: Any) -> None:
        made = {
            name: group(**{field: given.pop(field) for field in names})
            for name, (group, names) in groups.items()
        }
        command(**given, **made)

    with_options.__name__, with_options.__doc__ = command.__name__, command.__doc__
    with_options.__module__ = command.__module__
    with_options.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return with_options


@functools.cache  # several commands take the same group: a third of what --help takes
def _options(group: type) -> list[inspect.Parameter]:
    """Return a parameter for each field of a group."""
    hints = get_type_hints(group, include_extras=True)
    panel = getattr(group, "panel", None)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=_in_panel(hints[field.name], panel),
        )
        for field in fields(group)
    ]


def _in_panel(annotation: Any, panel: str | None) -> Any:
    """Return the annotation of an option in a panel: its own, or the group's."""
    kind, option = get_args(annotation)
    option = copy.copy(option)
    option.rich_help_panel = option.rich_help_panel or panel
    return Annotated[kind, option]
