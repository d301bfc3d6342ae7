"""Writes the reference of pyquant's Python API: python cmake/api_reference.py FOLDER. Warnings are errors."""

from __future__ import annotations

import importlib.metadata
import pkgutil
import sys
import warnings
from pathlib import Path

import pdoc

import pyquant
import pyquant.generation.grammar

# Commands, what rooms call in C++, and llama.cpp's bindings.
NOT_FOR_PYTHON = (
    "pyquant.cli",
    "pyquant.generation.commands",
    "pyquant.__main__",
    "pyquant._core",
    "pyquant._cpu",
    "pyquant.llama._llama_cpp",
)


def main() -> None:
    warnings.simplefilter("error")
    # Names load when they are used; pdoc looks at what is there.
    for module in (pyquant, pyquant.generation.grammar):
        for name in module.__all__:
            setattr(module, name, getattr(module, name))
    # Each by its name, as `__all__` of a room would hide its modules; pdoc finds the others twice.
    warnings.filterwarnings("ignore", "The module specification .* already been added")
    # Annotations are text; inherited fields and aliases name types that a module need not import itself.
    warnings.filterwarnings("ignore", "Error parsing type annotation")
    # Settings of metrics become fields of a study's settings as pyquant is imported: no class has them.
    warnings.filterwarnings("ignore", "Cannot determine where pyquant.study.config.")
    found = (module.name for module in pkgutil.walk_packages(pyquant.__path__, "pyquant."))
    modules = ["pyquant", *(name for name in found if not name.startswith(NOT_FOR_PYTHON))]
    pdoc.render.configure(docformat="numpy", footer_text=f"pyquant {importlib.metadata.version('pyquant')}")
    left_out = (f"!{name}" for name in NOT_FOR_PYTHON)  # as pdoc itself walks through packages
    pdoc.pdoc(*modules, *left_out, output_directory=Path(sys.argv[1]))


if __name__ == "__main__":
    main()
