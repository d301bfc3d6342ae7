"""Describe pyquant and the machine, as a bug report needs it."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import Any

from pyquant import _core
from pyquant.machine.cpu import n_threads

PACKAGES = ("gguf", "numpy", "scipy-openblas32", "llama-cpp-python")


def environment() -> dict[str, Any]:
    """List versions, how the library was built and where it is, and the CPU.

    Returns: what `pyquant info --json` prints, schema pyquant.environment/2.
    """
    build = _core.build_info()
    features = [
        part.split("=")[0].split(":")[-1].strip()
        for part in build["system"].split("|")
        if part.strip().endswith("= 1")
    ]
    return {
        "schema": "pyquant.environment/2",
        "pyquant": build["pyquant"],
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": n_threads(None),
        "cpu_features": features,
        "ggml": build["ggml"],
        "built_for_llama_cpp_python": build["llama_cpp_python"],
        "compiler": build["compiler"],
        "build_type": build["build_type"],
        "variant": build["variant"],
        "extension": _core.__file__,
        "devices": _core.devices(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def build_and_cpu() -> str:
    """Name the build of pyquant and the CPU's features: the last bits of what is kept depend on both."""
    build = _core.build_info()
    return f"{build['pyquant']}, {build['system']}BF16_PRODUCTS = {int(_core.HAS_BF16_PRODUCTS)}"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
