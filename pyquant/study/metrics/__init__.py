"""Metrics, one file each. A file in this package that subclasses Metric is a metric; wings have more."""

from __future__ import annotations

import importlib
import pkgutil
from typing import get_args

from pyquant.study.metric import Metric, Unit
from pyquant.wings import wings

_modules = [f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)]
for _name in [*_modules, *(name for wing in wings() for name in wing.METRICS)]:
    importlib.import_module(_name)

_UNITS = get_args(Unit)
# The order is that in which they are best measured, and shown.
METRICS = sorted(Metric.registry.values(), key=lambda metric: (_UNITS.index(metric.unit), metric.name))
# Metrics that a study may be asked for; prerequisites are made where they are needed.
MEASURABLE = [metric for metric in METRICS if metric.unit != "prerequisite"]

__all__ = ["MEASURABLE", "METRICS", "Metric"]
