"""Rough costs of making what a study measures, in tokens of a forward pass that take about as long."""

from __future__ import annotations

COLLECTING = 1.3  # for each token of a calibration
LEARNING, MIXING = 300, 100_000
TENSORS = 200  # models have some hundred, each tried
# Passes over the tokens that a method calibrates on.
PASSES = {"imatrix": 2, "gptq": 2, "best": 5}
QUANTIZING = 50
TRIED = 16  # steps, each quantized and measured, until one is found
