"""Guess how much errors count in each row of a matrix, from what the model does with what the row gives.

Nothing is run for it: Hessians of inputs and the model's weights say how large what a row gives is,
and how much of it goes on.

| rows of | count by |
|---|---|
| `ffn_up`, `ffn_gate` | what their neuron adds to the residual stream, over the power of what the row gives |
| `attn_q` | the power of the keys that they meet |
| `attn_k` | the power of the queries that they meet |
| `token_embd`, `output` | how often the token came |

Beside its rows, a whole matrix has a guess, for where no sensitivity was measured: an error counts relative
to the residual stream that it enters, as a norm divides by it, or to what the matrix gives.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pyquant import limits
from pyquant.calibration.calibration import Calibration
from pyquant.machine.cpu import n_threads
from pyquant.machine.memory import require_memory
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_name import kind_of
from pyquant.rounding.factors import Matrix, matrices

# A guess is trusted in part: its logarithms are scaled by this.
TRUST = 0.5
MOST = 16.0  # how much more or less than most others a row may count

# Weights of an error that is a certain share of the residual stream that it enters, and of one that is a
# share of what a matrix of some kind gives, relative to one another. Geometric means over layers, on
# SmolLM2-135M-Instruct and on the bundled model: attn_output 6.4 and 7.1; ffn_down 6.3, 3.5; attn_q .18,
# .30; attn_k .51, .48; attn_v .98, .53; ffn_gate .65, .88; ffn_up .43, .60.
# token_embd as a tied output: 70, on SmolLM2 alone.
OF_STREAM = 6.0
OF_OUTPUTS = {"attn_q": 0.25, "attn_v": 0.7, "ffn_gate": 0.75, "token_embd": 70.0, "output": 70.0}
OF_OTHERS = 0.5
TOGETHER = 1, 32, 32  # columns of a group, of a scale and of a block, of ecsq's codes
UNIT = 1.3e-5  # for each weight of the model's matrices: a step of 0.005 then makes codes of about 4 bits
PER_DOUBLE = 2  # weights told apart within a factor of 2: equal scales take little room in a .pqz file


class RowWeights:
    """Guesses of the rows of one model's matrices."""

    def __init__(self, model: ModelFile, calibration: Calibration | None) -> None:
        self._model = model
        self._tensors = {tensor.name: tensor for tensor in model.tensors}
        self._calibration = calibration
        self._last: Matrix | None = None
        self._power_of_last: NDArray[np.float64] | None = None

    def of(self, matrix: Matrix) -> NDArray[np.float64] | None:
        """Guess how much a squared error counts in each row of a matrix.

        Returns (n_rows,) float64: relative to one another, of geometric mean about 1. None where nothing is
        known.
        """
        guess = self._guess(matrix)
        if guess is None or not (guess > 0).any():
            return None
        guess = TRUST * np.log2(np.maximum(guess, np.finfo(np.float32).tiny))
        guess = np.clip(guess - np.median(guess), -np.log2(MOST), np.log2(MOST))
        return np.exp2(np.round(guess * PER_DOUBLE) / PER_DOUBLE)

    def whole(self, matrix: Matrix) -> float:
        """Guess how much a squared error in a matrix's outputs counts; 1 without the residual stream."""
        known, name = self._calibration, matrix.tensor.name
        if known is None or not known.has_streams or name not in known.matrices:
            return 1.0
        stream = known.enters_stream(name)
        if stream is not None:
            return self._unit * OF_STREAM / stream
        power = self._power(matrix)
        total = 0.0 if power is None else float(power.sum())
        return self._unit * OF_OUTPUTS.get(kind_of(name), OF_OTHERS) / total if total > 0 else 1.0

    @cached_property
    def _unit(self) -> float:
        assert self._calibration is not None
        names = self._calibration.matrices
        return UNIT * sum(self._tensors[name].n_weights for name in names if name in self._tensors)

    def _guess(self, matrix: Matrix) -> NDArray[np.float64] | None:
        name = matrix.tensor.name
        kind = kind_of(name)
        if kind in ("token_embd", "output"):
            return self._token_counts(matrix.tensor.n_rows)
        for entering in ("ffn_up", "ffn_gate"):
            if kind.startswith(entering):
                return self._of_neurons(matrix, name.replace(entering, "ffn_down"))
        if kind == "attn_q":
            return self._of_partners(matrix, name.replace("attn_q", "attn_k"))
        if kind == "attn_k":
            return self._of_partners(matrix, name.replace("attn_k", "attn_q"))
        return None

    def _token_counts(self, n_rows: int) -> NDArray[np.float64] | None:
        if self._calibration is None or not self._calibration.kept.are_there:
            return None
        tokens = self._calibration.kept.tokens(int(limits.CHUNKS.high)).ravel()
        if tokens.max() >= n_rows:
            return None
        return np.bincount(tokens, minlength=n_rows).astype(np.float64) + 1

    def _of_neurons(self, matrix: Matrix, down: str) -> NDArray[np.float64] | None:
        after, power = self._matrix(down, matrix.expert), self._power(matrix)
        if after is None or power is None or after.tensor.n_per_row != matrix.tensor.n_rows:
            return None
        assert self._calibration is not None
        enters = self._calibration.diagonal(down)
        enters = enters[min(matrix.expert, len(enters) - 1)].astype(np.float64)
        adds = enters * np.square(after.tensor.weights(), dtype=np.float64).sum(axis=0)
        return adds / np.maximum(power, np.finfo(np.float32).tiny)

    def _of_partners(self, matrix: Matrix, partner: str) -> NDArray[np.float64] | None:
        """Powers of the partner's rows: heads of queries in groups share a head of keys."""
        heads = self._model.hyperparameter("attention.head_count")
        normed = matrix.tensor.name.replace(".weight", "_norm.weight") in self._tensors
        other = self._matrix(partner, matrix.expert)
        if other is None or normed or heads < 1:
            return None
        n_queries = max(matrix.tensor.n_rows, other.tensor.n_rows)
        n_keys = min(matrix.tensor.n_rows, other.tensor.n_rows)
        power = self._power(other)
        if power is None or n_queries % heads or n_keys % (n_queries // heads):
            return None
        width = n_queries // heads
        of_heads = power.reshape(-1, width)
        n_groups = n_keys // width
        if heads % n_groups:
            return None
        if matrix.tensor.n_rows == n_queries:
            return np.repeat(of_heads, heads // len(of_heads), axis=0).ravel()
        return of_heads.reshape(n_groups, -1, width).sum(axis=1).ravel()

    def _matrix(self, name: str, expert: int) -> Matrix | None:
        if name not in self._tensors or self._calibration is None or name not in self._calibration.matrices:
            return None
        return [*matrices(self._tensors[name], TOGETHER)][expert]

    def _power(self, matrix: Matrix) -> NDArray[np.float64] | None:
        """(n_rows,) float64: the mean square of what each row gives."""
        if self._calibration is None or matrix.tensor.name not in self._calibration.matrices:
            return None
        if matrix != self._last:
            hessian, power = self._calibration.hessian(matrix.tensor.name, matrix.expert), None
            if hessian is not None:
                weights = matrix.tensor.weights()
                # Hessian statistics are factorized meanwhile.
                what = f"the product of {matrix.tensor.name}"
                require_memory(2 * weights.nbytes, what, blas=1 + n_threads(None))
                power = np.einsum("ij,ij->i", weights @ hessian, weights, dtype=np.float64)
            self._last, self._power_of_last = matrix, power
        return self._power_of_last
