"""Schemes, one small file each. A file in this package that subclasses Mode is a mode."""

from __future__ import annotations

import importlib
import pkgutil

from pyquant.schemes.base import Scheme
from pyquant.schemes.mode import Mode

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["Mode", "Scheme"]
