"""Metrics, one file each. A file in this package that subclasses Metric is a metric."""

from __future__ import annotations

import importlib
import pkgutil
from typing import get_args

from pyquant.study.metrics.metric import Metric, Unit

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

_UNITS = get_args(Unit)
# The order is that in which they are best measured, and shown.
METRICS = sorted(Metric.registry.values(), key=lambda metric: (_UNITS.index(metric.unit), metric.name))
# Metrics that a study may be asked for; prerequisites are made where they are needed.
MEASURABLE = [metric for metric in METRICS if metric.unit != "prerequisite"]

__all__ = ["MEASURABLE", "METRICS", "Metric"]
