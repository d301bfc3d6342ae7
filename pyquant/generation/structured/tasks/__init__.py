"""The bundled tasks: a file each, which defines TASK, found by being here."""

from __future__ import annotations

import hashlib
import shutil
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from pyquant.errors import ConfigError, said_by_system
from pyquant.generation.grammar.packages import needed_packages
from pyquant.generation.structured.outside import SUFFIX, load_task_file
from pyquant.generation.structured.task import Task

TASKS = tuple(sorted(module.name for module in iter_modules(__path__)))


def label_of(name: str) -> str:
    """Return what results call a task: one of one's own by the name of its file, without folders."""
    return Path(name).name if name.endswith(SUFFIX) else name


def key_of(name: str) -> str:
    """Return what a task's completions are kept as: of one's own with the hash of its file, which may change.

    Raises
    ------
    ConfigError
        The file cannot be read.
    """
    if not name.endswith(SUFFIX):
        return name
    try:
        return f"{label_of(name)} {hashlib.sha256(Path(name).read_bytes()).hexdigest()}"
    except OSError as error:
        raise ConfigError(said_by_system(error, name)) from None


def load_task(name: str) -> Task:
    """Load a bundled task by its name, or one of one's own by its file, FILE.py, which is run.

    Raises
    ------
    ConfigError
        There is none of this name, the file is no task, or a program that its check runs is missing.
    GrammarError
        A package that its check needs is not installed.
    """
    if name.endswith(SUFFIX):
        task = load_task_file(name)
    elif name in TASKS:
        with needed_packages():
            task = import_module(f"{__name__}.{name}").TASK
    else:
        raise ConfigError(f"task: expected one of {', '.join(TASKS)}, or a file FILE{SUFFIX}, got {name!r}")
    for program in task.needs:
        if shutil.which(program) is None:
            raise ConfigError(f"task {name}: its check runs {program}, which is not there")
    return task
