"""Modes that several tests quantize by."""

from __future__ import annotations

from pathlib import Path

from pyquant.schemes.settings import make_mode

STEP = 0.02


def ecsq(stats: Path, step: float = STEP, **settings: object):
    return make_mode({"mode": "ecsq", "hessian": str(stats), "step": step, **settings})
