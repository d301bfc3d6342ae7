"""Say what GPTQ can leave of the error of rounding to nearest: from Hessian statistics, before any rounding.

    python -m analysis.gptq_bound HESSIAN [--dampening 0.03]

Where errors of all columns are as large, rounding to nearest errs by the trace of H, and GPTQ by that of D,
H = U D U^T (docs/methods/gptq.md); columns with small diagonals absorb the errors of the others. Whatever
steps columns have, if the product of all stays, error feedback leaves n det(H)^(1/n) at the least. A line
gives a kind of matrices, and in the mean over layers both as shares of the trace of H; then the same of
output-side Hessians G, if the file has them. Shares of both multiply where inputs and gradients are
independent.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant.calibration.calibration import open_calibration
from pyquant.models.tensor_name import kind_of
from pyquant.schemes.dampening import ON_ITS_OWN


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("calibration", type=Path, metavar="HESSIAN")
    parser.add_argument("--dampening", type=float, default=ON_ITS_OWN)
    arguments = parser.parse_args()

    known = open_calibration(arguments.calibration)
    of_inputs: dict[str, tuple[float, float]] = {}
    by_kind: dict[str, list[list[float]]] = {}
    for name in known.matrices:
        if not known.has_hessian(name):
            continue
        key, output_side = known.input_of(name), (np.nan, np.nan)
        if key not in of_inputs:
            of_inputs[key] = shares(known.hessian(name), arguments.dampening)
        if known.has_output_hessian(name):
            output_side = shares(known.output_hessian(name), arguments.dampening)
        by_kind.setdefault(kind_of(name), []).append([*of_inputs[key], *output_side])
    print(f"{'':<14}     D  any steps   G: D  any steps")
    for kind, rows in by_kind.items():
        print(f"{kind:<14}" + "".join(f"{share:>8.3f}" for share in np.mean(rows, axis=0)))


def shares(hessian: NDArray[np.float32] | None, dampening: float) -> tuple[float, float]:
    """Give what error feedback leaves of the trace of a Hessian, (n, n): with equal steps, and with any."""
    assert hessian is not None
    trace, matrix = hessian.trace(dtype=np.float64), dampened(hessian, dampening)
    order = np.argsort(np.diagonal(matrix))[::-1]  # the largest is rounded first, and the others absorb
    left = diagonal_of(matrix[np.ix_(order, order)])
    return float(left.sum() / trace), float(len(matrix) * np.exp(np.log(left).mean()) / trace)


def dampened(hessian: NDArray[np.float32], dampening: float) -> NDArray[np.float64]:
    """Add to the diagonal of (n, n) what GPTQ adds: directions that few tokens leave out are not free."""
    matrix = hessian.astype(np.float64)
    matrix[np.diag_indices_from(matrix)] += dampening * matrix.trace() / len(matrix)
    return matrix


def diagonal_of(hessian: NDArray[np.floating]) -> NDArray[np.float64]:
    """Give D of H = U D U^T, (n, n), whose columns are rounded in their order; the last one comes first."""
    return np.square(np.diagonal(np.linalg.cholesky(hessian[::-1, ::-1].astype(np.float64))))


if __name__ == "__main__":
    main()
