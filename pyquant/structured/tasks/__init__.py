"""The tasks in the box: a file each, which defines TASK, found by being here."""

from __future__ import annotations

import shutil
from importlib import import_module
from pkgutil import iter_modules

from pyquant.errors import ConfigError
from pyquant.structured.task import Task

TASKS = tuple(sorted(module.name for module in iter_modules(__path__)))


def load_task(name: str) -> Task:
    """Load a task by its name.

    Raises
    ------
    ConfigError
        There is none of this name, or a program that its check runs is missing.
    """
    if name not in TASKS:
        raise ConfigError(f"task: expected one of {', '.join(TASKS)}, got {name!r}")
    task: Task = import_module(f"{__name__}.{name}").TASK
    for program in task.needs:
        if shutil.which(program) is None:
            raise ConfigError(f"task {name}: its check runs {program}, which is not there")
    return task
