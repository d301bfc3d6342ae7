"""The compiled extension: of its variants in this installation the best that runs on this CPU.

A build from source has one, `native`. A wheel has one for each kind of CPU; `PYQUANT_CPU` names another than
the best.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from importlib.machinery import ModuleSpec

from pyquant.errors import RuntimeLibraryError

try:
    from pyquant import _cpu
except ImportError:
    if importlib.util.find_spec("pyquant._cpu"):
        raise
    folder = os.path.dirname(os.path.dirname(__file__))
    raise RuntimeLibraryError(
        f"{folder}: pyquant's source, not compiled: leave the folder, or run `make demo` and .venv/bin/python"
    ) from None


def _specs(names: list[str]) -> dict[str, ModuleSpec]:
    found = {name: importlib.util.find_spec(f"pyquant._core_{name}") for name in names}
    return {name: spec for name, spec in found.items() if spec}


def _choose() -> ModuleSpec:
    runs = _specs(["native", *_cpu.variants()])
    if not runs:
        raise RuntimeLibraryError(
            f"this CPU ({platform.machine()}) lacks instructions that pyquant was compiled for, on x86-64 "
            f"AVX2, FMA and F16C: build pyquant from source on this machine"
        )
    wanted = os.environ.get("PYQUANT_CPU") or next(iter(runs))
    if wanted not in runs:
        raise RuntimeLibraryError(f"PYQUANT_CPU={wanted}: here run {', '.join(runs)}")
    return runs[wanted]


def _load(path: str) -> None:
    # Under this module's name, in its place: whichever variant it is, classes and messages have one name.
    spec = importlib.util.spec_from_file_location(__name__, path)
    assert spec is not None
    assert spec.loader is not None
    try:
        module = importlib.util.module_from_spec(spec)
    except ImportError as error:
        raise RuntimeLibraryError(
            f"{path} does not load: {error}; pip install --force-reinstall pyquant scipy-openblas32"
        ) from None
    sys.modules[__name__] = module
    spec.loader.exec_module(module)


_load(str(_choose().origin))
