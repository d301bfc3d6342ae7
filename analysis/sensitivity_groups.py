"""Say what is lost where tensors of neighboring layers are measured together: fewer runs over the text.

    python -m analysis.sensitivity_groups MODEL HESSIAN SENSITIVITY.toml [--together 2 3 4] [--text FILE]

SENSITIVITY.toml is what `pyquant sensitivity` measured, one tensor after the other. Tensors of a kind that
are rounded together tell one number: what all their errors cause. It is shared among them in equal parts, or
as one over the power of their outputs. Each bit less makes a tensor's part of the KLD four times as
large. So bits that are given by what comes out of this make a KLD that is greater by the mean of s/s'
over its geometric mean, weighted by numbers of weights; s was measured of each tensor, and s' is used.

`--text` adds s' of gradients: an error e costs E[(g e x)^2] / 2, to second order, so a tensor's sensitivity
goes as the mean of |g|^2 over its outputs. Chunks' first tokens are left out, as GPTQ's errors are small
there (`FIRST_TOKEN`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant.calibration.calibration import open_calibration
from pyquant.calibration.gradients.llama_graph import Array, LlamaGraph
from pyquant.calibration.gradients.output_hessians import SEED, drawn
from pyquant.calibration.sensitivity_file import Sensitivity
from pyquant.files.text import read_texts
from pyquant.fit.measure_sensitivity import output_power
from pyquant.llama.chunks import cut
from pyquant.llama.model import Model
from pyquant.models.model_file import ModelFile, open_model
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_name import kind_of
from pyquant.rounding.factors import matrices
from pyquant.rounding.row_weights import TOGETHER, RowWeights

Numbers = NDArray[np.float64]

CTX, CHUNKS = 512, 8  # of gradients


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("calibration", type=Path, metavar="HESSIAN")
    parser.add_argument("sensitivity", type=Path)
    parser.add_argument("--together", type=int, nargs="*", default=[2, 3, 4])
    parser.add_argument("--text", type=Path)
    arguments = parser.parse_args()

    model, known = open_model(arguments.model), open_calibration(arguments.calibration)
    by_tensor = Sensitivity.read(arguments.sensitivity).by_tensor
    tensors = [tensor for tensor in model.tensors if tensor.name in by_tensor]
    measured = np.array([by_tensor[tensor.name].sensitivity for tensor in tensors])
    power = np.array([output_power(tensor, tensor.weights(), known) for tensor in tensors])
    n_weights = np.array([tensor.n_weights for tensor in tensors], np.float64)
    rows = RowWeights(model, known)

    def show(runs: int, how: str, used: Numbers) -> None:
        told = ~np.isnan(used)
        ratio, weights = measured[told] / used[told], n_weights[told]
        lost = np.average(ratio, weights=weights) / np.exp(np.average(np.log(ratio), weights=weights))
        print(f"{runs:>4} {how:<40} {lost:.3f}")

    print("runs what is used                             KLD, times")
    alone = np.array([by_tensor[tensor.name].measured for tensor in tensors])
    show(len(tensors), "each tensor, not drawn to its neighbors", alone)
    for together in arguments.together:
        groups = list(neighbors(tensors, together))
        for how, share in (("equal parts", np.ones(len(tensors))), ("by outputs' power", 1 / power)):
            used = np.empty(len(tensors))
            for group in groups:
                caused, error = np.sum((measured * power)[group]), np.sum((share * power)[group])
                used[group] = share[group] * caused / error
            show(len(groups), f"{together} layers together, {how}", used)
    show(
        0,
        "a guess by the residual stream",
        np.array([rows.whole(next(matrices(t, TOGETHER))) for t in tensors]),
    )
    show(0, "one for all", np.ones(len(tensors)))
    if arguments.text:
        squares = squared_gradients(model, arguments.text)
        used = np.array([squares.get(tensor.name, np.nan) for tensor in tensors])
        show(0, f"gradients of {CHUNKS} chunks, of {len(squares)} tensors", used)


def squared_gradients(model: ModelFile, text: Path) -> dict[str, float]:
    """Give the mean of g^2 by matrix, g the gradient of a drawn token's log-probability by its outputs."""
    graph, rng = LlamaGraph(model), np.random.default_rng(SEED)
    squares: dict[str, float] = {}

    def take(name: str, gradients: Array) -> None:
        squares[name] = squares.get(name, 0.0) + float(np.square(gradients[1:]).mean()) / CHUNKS

    with Model(model) as running:
        sequences = cut(running, read_texts([text])[0], n_ctx=CTX, n_chunks=CHUNKS).given_to(running)
    for sequence in sequences:
        streams = graph.streams(sequence)
        graph.backwards(streams, drawn(graph.logits(streams[-1]), rng), take)
    return squares


def neighbors(tensors: list[Tensor], together: int) -> Iterator[list[int]]:
    """Yield places of tensors of one kind in neighboring layers."""
    places: dict[str, list[int]] = {}
    for place, tensor in sorted(enumerate(tensors), key=lambda pair: pair[1].layer):
        places.setdefault(kind_of(tensor.name), []).append(place)
    for of_kind in places.values():
        for begin in range(0, len(of_kind), together):
            yield of_kind[begin : begin + together]


if __name__ == "__main__":
    main()
