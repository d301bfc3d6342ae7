"""`pyquant completion`."""

from __future__ import annotations

import os
from enum import Enum
from typing import Annotated

import typer

VARIABLE = "_PYQUANT_COMPLETE"  # set by the script when it asks for completions


class Shell(str, Enum):
    """The shells that typer has a script for."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell to print it for.")],
) -> None:
    """Print a script for shell completion.

    For bash, `eval "$(pyquant completion bash)"` in ~/.bashrc; for zsh the same in ~/.zshrc, after compinit;
    for fish, `pyquant completion fish >~/.config/fish/completions/pyquant.fish`.
    """
    from typer.completion import get_completion_script

    print(get_completion_script(prog_name="pyquant", complete_var=VARIABLE, shell=shell.value))


def asks() -> bool:
    """Say whether it is the script that asks, and let typer answer it."""
    if VARIABLE not in os.environ:
        return False
    from typer.completion import completion_init

    completion_init()
    return True
