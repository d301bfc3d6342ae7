"""Numpy twins of csrc/gptq/formats, one small file each.

A file in this package that subclasses Format and sets `type` is the format of that type.
"""

from __future__ import annotations

import importlib
import pkgutil

from tests.twins.formats.base import BY_TYPE, Format

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

FORMATS = {type_: form() for type_, form in sorted(BY_TYPE.items())}

__all__ = ["FORMATS", "Format"]
