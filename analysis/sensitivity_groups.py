"""Say what is lost where tensors of neighboring layers are measured together: fewer runs over the text.

    python -m analysis.sensitivity_groups MODEL HESSIAN SENSITIVITY.toml [--together 2 3 4]

SENSITIVITY.toml is what `pyquant sensitivity` measured, one tensor after the other. Tensors of a kind that
are rounded together tell one number: what all their errors cause. It is shared among them in equal parts, or
as one over the power of their outputs. Each bit less makes a tensor's part of the KLD four times as
large. So bits that are given by what comes out of this make a KLD that is greater by the mean of s/s'
over its geometric mean, weighted by numbers of weights; s was measured of each tensor, and s' is used.

Where the statistics have gradients, s' of these is shown too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant.calibration.calibration import open_calibration
from pyquant.calibration.sensitivity_file import Sensitivity
from pyquant.fit.measure_sensitivity import output_power
from pyquant.fit.mix_model import by_gradients
from pyquant.models.model_file import open_model
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_name import kind_of
from pyquant.rounding.factors import matrices
from pyquant.rounding.row_weights import TOGETHER, RowWeights

Numbers = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("calibration", type=Path, metavar="HESSIAN")
    parser.add_argument("sensitivity", type=Path)
    parser.add_argument("--together", type=int, nargs="*", default=[2, 3, 4])
    arguments = parser.parse_args()

    model, known = open_model(arguments.model), open_calibration(arguments.calibration)
    by_tensor = Sensitivity.read(arguments.sensitivity).by_tensor
    tensors = [tensor for tensor in model.tensors if tensor.name in by_tensor]
    measured = np.array([by_tensor[tensor.name].sensitivity for tensor in tensors])
    power = np.array([output_power(tensor, tensor.weights(), known) for tensor in tensors])
    n_weights = np.array([tensor.n_weights for tensor in tensors], np.float64)
    rows = RowWeights(model, known)

    def show(runs: int, how: str, used: Numbers) -> None:
        ratio = measured / used
        lost = np.average(ratio, weights=n_weights) / np.exp(np.average(np.log(ratio), weights=n_weights))
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
    if found := by_gradients(model, known):
        show(0, "gradients", np.array([found[tensor.name] for tensor in tensors]))


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
