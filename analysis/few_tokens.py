"""Say what is lost where a matrix is rounded by few tokens: the error of GPTQ on new text, beside imatrix's.

    python -m analysis.few_tokens MODEL TEXT NEW_TEXT --tensors blk.4.ffn_down.weight blk.4.attn_q.weight

Chunks of TEXT are taken at even distances; Hessians are shrunk as `pyquant quantize --method gptq` shrinks
them. A line says by how much e H e' on NEW_TEXT exceeds that of the most chunks; the last one of a matrix
what part that has of the error with an imatrix of as many chunks, and what part it would have if errors of
all columns were as large: the trace of D, H = L D L', over that of H.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analysis.gptq_bound import diagonal_of
from pyquant import _core
from pyquant.calibration.collected import OfAllTokens
from pyquant.calibration.sample import spread
from pyquant.files.text import read_text
from pyquant.llama.chunks import cut
from pyquant.llama.model import Model
from pyquant.machine.cpu import n_threads
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_type import TensorType
from pyquant.rounding.staged_context import StagedContext, pieces_of
from pyquant.schemes.dampening import ON_ITS_OWN

N_CTX, N_NEW, N_ROWS = 512, 32, 512  # tokens of a chunk, chunks of the new text, rows that are rounded


def main() -> None:
    parser = parser_of(__doc__, type_="IQ4_NL")
    parser.add_argument("text", type=Path)
    parser.add_argument("new_text", type=Path)
    parser.add_argument("--chunks", type=int, nargs="+", default=[8, 16, 32, 64, 128])
    arguments = parser.parse_args()

    by_name = {tensor.name: tensor for tensor in ModelFile(arguments.model).tensors}
    type_ = TensorType[arguments.type]
    with Model(arguments.model, staged=True) as model:
        known = spread(cut(model, read_text(arguments.text), n_ctx=N_CTX).tokens, max(arguments.chunks))
        new = spread(cut(model, read_text(arguments.new_text), n_ctx=N_CTX).tokens, N_NEW)
        for name in arguments.tensors:
            inputs = inputs_of(model, name, np.concatenate([known, new])).reshape(
                len(known) + len(new), N_CTX, -1
            )
            weights = by_name[name].weights()[:N_ROWS]
            new_hessian = mean_product(inputs[len(known) :])
            errors, diagonal = [], np.square(inputs[: len(known)]).mean(axis=(0, 1))
            for n_chunks in arguments.chunks:
                sums = OfAllTokens(weights.shape[1], N_CTX)
                for chunk in spread(np.arange(len(known))[:, None], n_chunks)[:, 0]:
                    sums.add(inputs[chunk])
                errors.append(error_of(weights, sums, type_, new_hessian))
            for n_chunks, error in zip(arguments.chunks, errors):
                per_column = n_chunks * N_CTX / weights.shape[1]
                more = error / errors[-1] - 1
                print(f"{name} {n_chunks:>4} chunks, {per_column:5.1f} tokens a column: {more:+.1%}")
            plain = cost(weights, _core.ggml_encoder(int(type_)), new_hessian, diagonal[None])
            share = share_of(sums.hessian(0))
            print(f"{name} of imatrix's error {errors[-1] / plain:.1%}, D of H {share:.1%}")


def parser_of(what: str | None, *, type_: str) -> argparse.ArgumentParser:
    """Make what reads the arguments of a script that rounds matrices of a model; type_: if none is given."""
    parser = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tensors", nargs="+", required=True)
    parser.add_argument("--type", default=type_)
    return parser


def inputs_of(model: Model, name: str, tokens: NDArray[np.int32]) -> NDArray[np.float32]:
    """Run a model as far as a matrix; what enters it, (n_tokens, n_in)."""
    with StagedContext(model, {name}, pieces_of(tokens), None) as passing, tempfile.TemporaryFile() as file:
        n_bytes = passing.stages[0].n_bytes
        states = _core.PassStates(1, n_bytes=n_bytes, memory=n_bytes, file=file.fileno())
        return np.concatenate([passing.run(i, None, 0, states, 0).copy() for i in range(passing.n_pieces)])


def mean_product(inputs: NDArray[np.float32]) -> NDArray[np.float32]:
    """Compute the mean of x x^T over all tokens, (n_in, n_in)."""
    rows = inputs.reshape(-1, inputs.shape[-1])
    return rows.T @ rows / np.float32(len(rows))


def error_of(
    weights: NDArray[np.float32], sums: OfAllTokens, type_: TensorType, new_hessian: NDArray[np.float32]
) -> float:
    """Round some rows by GPTQ; e H e' by what other tokens tell of H."""
    return cost(weights, gptq_encoder(sums.hessian(0), type_), new_hessian)


def gptq_encoder(
    hessian: NDArray[np.float32], type_: TensorType, dampening: float = ON_ITS_OWN
) -> _core.Encoder:
    """Make what rounds rows as `pyquant quantize --method gptq` does, with its dampening or another."""
    together = _core.columns_together(int(type_))
    factor = _core.factorize(hessian, dampening=dampening, together=together, n_threads=n_threads(None))
    return _core.gptq_encoder(int(type_), factor)


def moved(
    weights: NDArray[np.float32], encoder: _core.Encoder, importance: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """Round; say how far each weight moves."""
    return weights - encoder.decode(encoder.encode(weights, importance), weights.shape[1])


def cost(
    weights: NDArray[np.float32],
    encoder: _core.Encoder,
    hessian: NDArray[np.float32],
    importance: NDArray[np.float32] | None = None,
) -> float:
    """Round; compute the trace of e H e'."""
    error = moved(weights, encoder, importance)
    return float(((error @ hessian) * error).sum())


def share_of(hessian: NDArray[np.float32]) -> float:
    """Compute the trace of D over that of H, (n_in, n_in), where H = L D L' from the last column on."""
    return float(diagonal_of(hessian).sum() / np.trace(hessian))


if __name__ == "__main__":
    main()
