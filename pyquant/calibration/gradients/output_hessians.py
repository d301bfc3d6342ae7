"""Output-side Hessians (YAQA, arXiv 2505.22988): what errors in a matrix's outputs do to predictions.

For each position a token is drawn from the model's own distribution, and the negative logarithm of its
probability is differentiated by what every matrix gives for every token. Their second moments G say how
much KLD an error e causes: e G e^T / 2, to second order, as G is the Fisher information of the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.gradients.kept_sums import KeptSums
from pyquant.calibration.gradients.llama_graph import Array, LlamaGraph, to_shares
from pyquant.calibration.gradients.row_blocks import in_blocks
from pyquant.calibration.products import add_squares
from pyquant.errors import ConfigError, NotEnoughMemory
from pyquant.llama.chunks import Chunks, forward, make_context
from pyquant.llama.model import Model
from pyquant.machine.memory import available_memory, require_memory

SEED = 0
TOGETHER = 16  # tokens whose predictions are drawn at a time
CHECKED = 64  # tokens that a graph's logits are compared with llama.cpp's on
SAME = 0.01  # nats: F16 and F32 differ by some 1e-5, another rotation by more than 1

SQUARES = "squared gradients"  # what their sums are kept as

# (chunks done, all chunks)
Progress = Callable[[int, int], None]


class OtherGraph(ConfigError):
    """A model computes something else than the graph of its architecture that is known."""


@dataclass(frozen=True)
class Gradients:
    """What is known of the gradients of a drawn token's negative log-probability.

    hessians: by matrix: (n_out, n_out) float32, the weighted mean of g g^T over tokens.
    squares: by tensor, embeddings and output among them: the mean of g^2 over tokens and outputs, without
    chunks' first tokens, as GPTQ's errors are small there. Empty where one is not finite.
    """

    hessians: dict[str, NDArray[np.float32]]
    squares: dict[str, float]


def output_hessians(
    model: Model,
    chunks: Chunks,
    kept: KeptSums,
    *,
    wanted: Collection[str] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Gradients:
    """Run a model forwards and backwards over chunks of tokens.

    A few tokens have gradients a thousand times as large as the others. So each token counts by 1 / (its
    squared length + the median of these in its chunk) in the Hessians.

    Parameters
    ----------
    model
        Of a family that `LlamaGraph` knows.
    chunks
        The tokens.
    kept
        Where sums are kept against an interruption; those that are there are taken up.
    wanted
        Names of the matrices that Hessians are made of; None: all of layers.
    progress
        Called with chunks done and all chunks.

    Raises
    ------
    OtherGraph
        The model computes something else than its architecture.
    ConfigError
        It is of another architecture.
    NotEnoughMemory
    """
    if why := why_other(model, chunks, threads):
        raise OtherGraph(why)
    graph = LlamaGraph(model.file, threads=threads)
    n_out = {name: n for name, n in graph.n_out.items() if wanted is None or name in wanted}
    floats = sum(n * n for n in n_out.values())
    needed = 4 * (floats + 4 * chunks.n_ctx * model.n_vocab)
    require_memory(needed, "the output-side Hessian", blas=1)
    if (free := available_memory()) is not None and free < 4 * floats:
        raise NotEnoughMemory(
            f"output-side Hessians of {model.path} take {4 * floats / 1e9:.2f} GB of memory, and "
            f"{free / 1e9:.2f} GB are available; `pyquant quantize --method best` without --hessian makes "
            "those of the narrowest matrices alone"
        )
    rng = np.random.default_rng(SEED)
    places = {name: place for place, name in enumerate(graph.names)}
    n_done, hessian = kept.read({SQUARES: (len(places),)} | {name: (n, n) for name, n in n_out.items()})
    sums_of_squares = hessian.pop(SQUARES, np.zeros(len(places), np.float32))

    def take(name: str, gradients: Array, given: Callable[[], Array] | None) -> None:
        if name not in places:  # a norm
            return
        behind = gradients[1:]
        sums_of_squares[places[name]] += np.vdot(behind, behind) / gradients.shape[1]
        if name not in n_out:
            return
        squares = np.square(gradients).sum(axis=1, keepdims=True)
        level = np.median(squares)
        if level > 0:
            weighted = gradients / np.sqrt(squares + level)
            if name not in hessian:
                hessian[name] = np.zeros((n_out[name],) * 2, np.float32)
            add_squares(weighted, hessian[name], threads=threads)

    tokens = chunks.given_to(model)
    for number, sequence in enumerate(tokens):
        if number < n_done:
            _numbers(rng, len(sequence))  # for the next ones to be those of a whole run
            continue
        streams = graph.streams(sequence)
        graph.backwards(streams, drawn(graph.logits(streams[-1]), rng, threads=threads), take)
        kept.keep(number + 1, {**hessian, SQUARES: sums_of_squares}, last=number + 1 == len(tokens))
        if progress:
            progress(number + 1, chunks.n_chunks)
    for its in hessian.values():
        its /= np.float32(tokens.size)
        its[:] = np.tril(its) + np.tril(its, -1).T
    means = sums_of_squares / max(1, len(tokens) * (chunks.n_ctx - 1))
    return Gradients(hessian, dict(zip(places, means.tolist())) if np.isfinite(means).all() else {})


def drawn(logits: Array, rng: np.random.Generator, *, threads: int | None = None) -> Array:
    """Draw a token for each position; give the gradients of its negative logarithm in the place of logits."""
    numbers = _numbers(rng, len(logits))

    def draw(rows: slice) -> None:
        shares = to_shares(logits[rows])
        sums = np.cumsum(shares, axis=1)
        drawn = (sums < numbers[rows] * sums[:, -1:]).sum(axis=1)
        shares[np.arange(len(shares)), np.minimum(drawn, shares.shape[1] - 1)] -= 1

    in_blocks(len(logits), TOGETHER, draw, threads=threads)
    return logits


def _numbers(rng: np.random.Generator, n: int) -> NDArray[np.float32]:
    return rng.random((n, 1), np.float32)


def why_other(model: Model, chunks: Chunks, threads: int | None) -> str | None:
    """Say how far a model's logits are from those of the graph that is known, on some tokens; None: not far.

    They are far where a model scales its rotations, say. Raises ConfigError: see `LlamaGraph`.
    """
    begin = Chunks(chunks.tokens[:1, :CHECKED])
    graph = LlamaGraph(model.file, exact=True, threads=threads)
    logits = graph.logits(graph.streams(begin.given_to(model)[0])[-1])
    with make_context(model, begin.n_ctx, threads=threads) as context:
        piece = next(forward(context, begin))  # so few tokens are one
        ours = logits[begin.n_ctx // 2 :][: len(piece.targets)]
        _, klds, _, _ = _core.compare_logits(piece.logits, ours, piece.targets, context.n_threads)
    kld = float(klds.mean())
    if kld < SAME:
        return None
    return (
        f"gradients: {model.path}: computes something else than the graph of {model.file.architecture} "
        f"that is known here (a KLD of {kld:.3g})"
    )
