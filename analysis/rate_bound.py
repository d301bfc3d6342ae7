"""Say what GPTQ leaves of an imatrix's error, and about the least that is possible.

    python -m analysis.rate_bound MODEL HESSIAN [--type Q4_K] [--every N]

An error e of a matrix of m rows and n columns costs tr(G e H e^T): H is the mean x x^T of its inputs, G of
its gradients (1 without them), both dampened as GPTQ dampens H. A line gives a kind of matrices, as shares of
the cost with GGML's search by H's diagonal: what GPTQ leaves; what it leaves with G; about the least of any
codes with the steps of that search; the least of any code of Gaussian weights with as many bits in each
matrix. The last line is of all: their costs add up.

Both are m n det(G)^(1/m) det(H)^(1/n) v. Codes with given steps are points of a lattice: the nearest one errs
by no less than a ball of its cells' volume does, v = 12 s / (2 pi e) for many columns, where s is the mean
over blocks (geometric) of the squared error of plain rounding, a twelfth of the squared step. Clipped weights
and uneven steps (IQ4_NL) make that an estimate. Shannon's bound for R bits a weight is v = V 2^(-2 R), V the
geometric mean of the variances of blocks, in which weights are Gaussian.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analysis.few_tokens import gptq_encoder, moved
from analysis.gptq_bound import dampened, diagonal_of
from pyquant import _core
from pyquant.calibration.calibration import Calibration, open_calibration
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_name import kind_of
from pyquant.models.tensor_type import TensorType
from pyquant.rounding.factors import GRID_TYPES
from pyquant.rounding.output_side import round_rows, row_factor
from pyquant.schemes.dampening import ON_ITS_OWN, ROWS

BLOCK = 16  # weights of one variance, and one step


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("calibration", type=Path, metavar="HESSIAN")
    parser.add_argument("--type", default="Q4_K")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every Nth layer")
    arguments = parser.parse_args()

    type_ = TensorType[arguments.type]
    if type_ in GRID_TYPES:
        parser.error(
            f"{arguments.type}: its codes stand for several weights, which have no step of their own"
        )
    model, known = ModelFile(arguments.model), open_calibration(arguments.calibration)
    by_kind: dict[str, NDArray[np.float64]] = {}
    for tensor in model.tensors:
        in_part = tensor.layer >= 0 and tensor.layer % arguments.every == 0
        if in_part and tensor.n_experts == 1 and known.has_hessian(tensor.name):
            costs = costs_of(tensor, known, type_)
            for kind in (kind_of(tensor.name), "all"):
                by_kind[kind] = by_kind.get(kind, 0) + costs
    print(f"{'':<14}     GPTQ  with G  its steps  any code")
    for kind in sorted(by_kind, key=lambda kind: kind == "all"):
        print(f"{kind:<14}" + "".join(f"{share:>9.2f}" for share in by_kind[kind][1:] / by_kind[kind][0]))


def costs_of(tensor: Tensor, known: Calibration, type_: TensorType) -> NDArray[np.float64]:
    """Round a matrix, (m, n), in each way.

    Returns: (5,): costs with an imatrix, by GPTQ, by GPTQ and G; the least with its steps, and by any code.
    """
    weights, hessian = tensor.weights(), known.hessian(tensor.name)
    assert hessian is not None
    rows = known.output_hessian(tensor.name) if known.has_output_hessian(tensor.name) else None
    if rows is None:
        rows = np.eye(len(weights), dtype=np.float32)
    metric, of_rows = (dampened(each, ON_ITS_OWN) for each in (hessian, rows))
    ggml, gptq = _core.ggml_encoder(int(type_)), gptq_encoder(hessian, type_)
    plain = moved(weights, ggml, np.diagonal(hessian)[None].copy())
    errors = plain, moved(weights, gptq), weights - round_rows(weights, row_factor(rows, ROWS), gptq)[1]
    least = sum(np.log(diagonal_of(each)).mean() for each in (metric, of_rows))
    bits = 8 * _core.row_bytes(int(type_), weights.shape[1]) / weights.shape[1]
    by_steps = log_power(plain) + np.log(12 / (2 * np.pi * np.e))
    by_bits = log_power(weights) - 2 * np.log(2) * bits
    bounds = (weights.size * float(np.exp(least + each)) for each in (by_steps, by_bits))
    return np.array([*(cost(error, metric, of_rows) for error in errors), *bounds])


def cost(error: NDArray[np.float32], hessian: NDArray[np.float64], of_rows: NDArray[np.float64]) -> float:
    """Compute tr(G e H e^T); error: (m, n), hessian: (n, n), of_rows: (m, m)."""
    return float(((of_rows @ error) * (error @ hessian)).sum())


def log_power(values: NDArray[np.float32]) -> float:
    """Compute the mean logarithm of the mean squares of blocks, but for blocks of zeros."""
    power = np.square(values.reshape(-1, BLOCK), dtype=np.float64).mean(axis=1)
    return float(np.log(power[power > 0]).mean())


if __name__ == "__main__":
    main()
