"""Options are made of the commands that are called; all are listed, and each is found."""

from __future__ import annotations

import typer

from pyquant.cli import app
from pyquant.cli.called import with_options_of


def n_options(words: list[str]) -> dict[str, int]:
    """Count what each command takes, of an application that is started with these words."""
    found = {}

    def count(command: typer.core.TyperCommand, name: str) -> None:
        for below, own in getattr(command, "commands", {}).items():
            count(own, f"{name} {below}".strip())
        found[name] = len(command.params)

    count(typer.main.get_command(with_options_of(app, words)), "")
    return found


def test_only_commands_that_are_called_have_options() -> None:
    everything = n_options([name for names in n_options([]) for name in names.split()])
    for words in ([], ["compare", "study"], ["study", "run", "x.toml"], ["draft", "costs"]):
        made = n_options(words)
        assert made.keys() == everything.keys()
        for name, taken in made.items():
            called = set(name.split()) <= set(words)
            assert taken == (everything[name] if called else 0), name
    assert everything["compare"] > 10
    assert everything["study run"] > 5
