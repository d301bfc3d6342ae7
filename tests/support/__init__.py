"""Helpers that tests share: models, readers, twins, the stock tools. No test imports another."""

from pathlib import Path

ROOT = Path(__file__).parents[2]  # of the repository
