"""The tasks in the box: a file each, which defines TASK."""

from __future__ import annotations

from importlib import import_module

from pyquant.errors import ConfigError
from pyquant.structured.task import Task

TASKS = ("arithmetic", "function_call")


def load_task(name: str) -> Task:
    """Load a task by its name.

    Raises
    ------
    ConfigError
        There is none of this name.
    """
    if name not in TASKS:
        raise ConfigError(f"task: expected one of {', '.join(TASKS)}, got {name!r}")
    task: Task = import_module(f"{__name__}.{name}").TASK
    return task
