"""Train factors of a quantized model's rows and norms on KLD, by Adam (Kingma, Ba 2015, arXiv 1412.6980)."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from pyquant.calibration.gradients.kept_sums import KeptSums
from pyquant.calibration.gradients.llama_graph import Array, LlamaGraph, to_shares
from pyquant.calibration.gradients.output_hessians import Progress
from pyquant.calibration.gradients.row_blocks import in_blocks
from pyquant.calibration.gradients.scaled_graph import ScaledGraph
from pyquant.models.model_file import ModelFile

RATE = 2e-3  # of the first step: logarithms of factors change by at most about as much
MEAN, SQUARE = 0.9, 0.99  # what is kept of means of gradients and of their squares, from step to step
TOGETHER = 16  # tokens whose predictions are compared at a time
SEED = 0  # of the order of chunks


def train(
    base: ModelFile,
    quantized: ModelFile,
    scaled: Collection[str],
    tokens: NDArray[np.int32],
    kept: KeptSums,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Array]:
    """Run both models over chunks, and change factors after each to where the KLD from the base falls.

    Parameters
    ----------
    base, quantized
        Of a family that `LlamaGraph` knows.
    scaled
        Tensors with factors, as `ScaledGraph` takes them.
    tokens
        (n_chunks, n_ctx) int32: each chunk is used once, in a random order.
    kept
        Where factors are kept against an interruption; those that are there are taken up.
    progress
        Called with chunks done and all chunks.

    Returns
    -------
    By tensor, (n,) float32: the factors.
    """
    teacher, student = LlamaGraph(base, threads=threads), ScaledGraph(quantized, scaled, threads=threads)
    logs, n_chunks = student.logs, len(tokens)
    means, squares = ({name: np.zeros_like(its) for name, its in logs.items()} for _ in range(2))
    state = {f"{what} {name}": its[name] for what, its in
             (("log", logs), ("mean", means), ("square", squares)) for name in its}  # fmt: skip
    n_done, known = kept.read({name: its.shape for name, its in state.items()})
    for name, its in known.items():
        state[name][:] = its
    order = np.random.default_rng(SEED).permutation(n_chunks)
    for step in range(n_done, n_chunks):
        chunk = tokens[order[step]]
        wanted = teacher.logits(teacher.streams(chunk)[-1])
        streams = student.streams(chunk)
        gradients = student.logits(streams[-1])
        towards(wanted, gradients, threads=threads)
        slopes = student.slopes(streams, gradients)
        rate = RATE * (1 + math.cos(math.pi * step / n_chunks)) / 2
        for name, slope in slopes.items():
            slope /= np.float32(len(chunk))
            means[name] += np.float32(1 - MEAN) * (slope - means[name])
            squares[name] += np.float32(1 - SQUARE) * (np.square(slope) - squares[name])
            mean, square = means[name] / (1 - MEAN ** (step + 1)), squares[name] / (1 - SQUARE ** (step + 1))
            logs[name] -= (rate * mean / (np.sqrt(square) + np.finfo(np.float32).tiny)).astype(np.float32)
        kept.keep(step + 1, state, last=step + 1 == n_chunks)
        if progress:
            progress(step + 1, n_chunks)
    return {name: np.exp(its) for name, its in logs.items()}


def towards(wanted: Array, logits: Array, *, threads: int | None = None) -> None:
    """Put the gradients of the KLD from `wanted` by `logits` in their place: the shares less those wanted.

    Both are logits, (n_tokens, n_vocab), and `wanted` is used up.
    """

    def compare(rows: slice) -> None:
        shares = to_shares(logits[rows])
        shares -= to_shares(wanted[rows])

    in_blocks(len(logits), TOGETHER, compare, threads=threads)
