"""Tasks of one's own: a Python file that defines TASK (docs/generation/structured_output.md)."""

from __future__ import annotations

import copyreg
import os
from pathlib import Path

from pyquant.errors import ConfigError
from pyquant.files.python_file import find_python_file, run_python_file
from pyquant.generation.structured.task import Item, Task

SUFFIX = ".py"
EXAMPLES = 3  # technique `grammar and few shots` shows them
_loaded: dict[Path, Task] = {}


def load_task_file(path: str | os.PathLike[str]) -> Task:
    """Run a Python file and return the task that it defines.

    A file that has been loaded is not run again. The process that checks answers runs it too.

    Raises
    ------
    ConfigError
        The file cannot be read or run (its line is named), or its TASK lacks something.
    """
    resolved = find_python_file(path, "a task of one's own is a Python file that defines TASK")
    if resolved in _loaded:
        return _loaded[resolved]
    module = run_python_file(path)
    task: Task | None = getattr(module, "TASK", None)
    if task is None or type(task).__module__ != module.__name__:
        raise ConfigError(f"{path}: defines no TASK: an object of a class of its own")
    asked = [*Task.__annotations__, "check"]
    if missing := [name for name in asked if not hasattr(task, name)]:
        raise ConfigError(f"{path}: its TASK has no {', '.join(missing)}")
    if not task.items or not all(isinstance(item, Item) for item in task.items):
        raise ConfigError(f"{path}: its TASK has no questions: items are of class Item, at least one")
    if len(task.examples) < EXAMPLES:
        raise ConfigError(f"{path}: its TASK has {len(task.examples)} examples; {EXAMPLES} are shown")
    # Another process has to run the file first.
    copyreg.pickle(type(task), lambda _: (load_task_file, (resolved,)))
    _loaded[resolved] = task
    return task
