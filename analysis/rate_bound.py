"""Say what rounding leaves of an imatrix's error, and what no choice of codes, and no code, goes below.

    python -m analysis.rate_bound MODEL HESSIAN [--type Q4_K] [--every N]

An error e of a matrix of m rows and n columns costs tr(G e H e^T): H is the mean x x^T of its inputs, G of
its gradients (1 without them), both dampened as GPTQ dampens H. A line gives a kind of matrices, as shares of
the cost with GGML's search by H's diagonal: what GPTQ leaves; what it leaves with G; the least of any codes
with these steps; the least of any code with as many bits. The last line is of all: their costs add up.

Both bounds are m n det(G)^(1/m) det(H)^(1/n) v. Codes with given steps are points of a lattice: the nearest
one errs by no less than a ball of its cells' volume does, v = 12 s / (2 pi e) for many columns, where s is
the mean over blocks (geometric) of the squared error of plain rounding, a twelfth of the squared step. With R
bits for each weight, v = V 2^(-2 R) (Shannon), V the geometric mean of the variances of blocks, in which
weights are Gaussian.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analysis.few_tokens import gptq_encoder, moved
from analysis.gptq_bound import diagonal_of
from pyquant import _core
from pyquant.calibration.calibration import Calibration, open_calibration
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_name import kind_of
from pyquant.models.tensor_type import TensorType
from pyquant.rounding.output_side import round_rows, row_factor
from pyquant.schemes.dampening import ON_ITS_OWN, ROWS

BLOCK = 32  # weights of one variance, and one step


@dataclass
class Costs:
    """tr(G e H e^T), summed over matrices: with an imatrix, by GPTQ, by GPTQ and G, and both bounds."""

    of: NDArray[np.float64] = field(default_factory=lambda: np.zeros(5))

    def __str__(self) -> str:
        return "".join(f"{share:>9.2f}" for share in self.of[1:] / self.of[0])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("calibration", type=Path, metavar="HESSIAN")
    parser.add_argument("--type", default="Q4_K")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every Nth layer")
    arguments = parser.parse_args()

    model, known = ModelFile(arguments.model), open_calibration(arguments.calibration)
    by_kind: dict[str, Costs] = {}
    for tensor in model.tensors:
        if tensor.layer >= 0 and tensor.layer % arguments.every == 0 and known.has_hessian(tensor.name):
            costs = np.array([*costs_of(tensor, known, TensorType[arguments.type])])
            for kind in (kind_of(tensor.name), "all"):
                by_kind.setdefault(kind, Costs()).of += costs
    print(f"{'':<14}     GPTQ  with G  its steps  any code")
    for kind in sorted(by_kind, key=lambda kind: kind == "all"):
        print(f"{kind:<14}{by_kind[kind]}")


def costs_of(tensor: Tensor, known: Calibration, type_: TensorType) -> Iterator[float]:
    """Round a matrix, (m, n), in each way; give what its errors cost, and the bound."""
    weights, hessian = tensor.weights(), known.hessian(tensor.name)
    assert hessian is not None
    rows = known.output_hessian(tensor.name) if known.has_output_hessian(tensor.name) else None
    if rows is None:
        rows = np.eye(len(weights), dtype=np.float32)
    metric, of_rows = dampened(hessian), dampened(rows)
    ggml, gptq = _core.ggml_encoder(int(type_)), gptq_encoder(hessian, type_)
    plain = moved(weights, ggml, np.diagonal(hessian)[None].copy())
    yield cost(plain, metric, of_rows)
    yield cost(moved(weights, gptq), metric, of_rows)
    yield cost(weights - round_rows(weights, row_factor(rows, ROWS), gptq)[1], metric, of_rows)
    least = sum(np.log(diagonal_of(each)).mean() for each in (metric, of_rows))
    bits = 8 * _core.row_bytes(int(type_), weights.shape[1]) / weights.shape[1]
    of_steps, of_code = np.log(12 / (2 * np.pi * np.e)), -2 * np.log(2) * bits
    yield weights.size * float(np.exp(least + log_power(plain) + of_steps))
    yield weights.size * float(np.exp(least + log_power(weights) + of_code))


def dampened(hessian: NDArray[np.float32]) -> NDArray[np.float64]:
    """Add to the diagonal what GPTQ adds: directions that few tokens leave out are not free."""
    matrix = hessian.astype(np.float64)
    matrix[np.diag_indices_from(matrix)] += ON_ITS_OWN * matrix.trace() / len(matrix)
    return matrix


def cost(error: NDArray[np.float32], hessian: NDArray[np.float64], of_rows: NDArray[np.float64]) -> float:
    """Compute tr(G e H e^T)."""
    return float(((of_rows @ error) * (error @ hessian)).sum())


def log_power(values: NDArray[np.float32]) -> float:
    """Compute the mean logarithm of the mean squares of blocks."""
    power = np.square(values.reshape(-1, BLOCK), dtype=np.float64).mean(axis=1)
    return float(np.log(np.maximum(power, np.finfo(np.float64).tiny)).mean())


if __name__ == "__main__":
    main()
