"""Say what more candidates bring: rows that GPTQ rounds with several dampenings, the best of each kept.

    python -m analysis.candidates MODEL TEXT NEW_TEXT --tensors blk.8.ffn_gate.weight

A line says what e H e' is beside that of the first dampening alone, by H of TEXT, which chooses, and by that
of NEW_TEXT, with as many candidates as there are dampenings up to there.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analysis.few_tokens import N_CTX, N_ROWS, gptq_encoder, inputs_of, mean_product, moved, parser_of
from pyquant.calibration.collected import OfAllTokens
from pyquant.calibration.sample import spread
from pyquant.files.text import read_text
from pyquant.llama.chunks import cut
from pyquant.llama.model import Model
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_type import TensorType
from pyquant.schemes.dampening import ON_ITS_OWN

DAMPENINGS = (ON_ITS_OWN, 0.1, 0.01, 0.05, 0.02, 0.2)


def main() -> None:
    parser = parser_of(__doc__, type_="Q4_K")
    parser.add_argument("text", type=Path)
    parser.add_argument("new_text", type=Path)
    parser.add_argument("--chunks", type=int, default=64, help="of each text")
    arguments = parser.parse_args()

    by_name = {tensor.name: tensor for tensor in ModelFile(arguments.model).tensors}
    with Model(arguments.model, staged=True) as model:
        tokens = [
            spread(cut(model, read_text(path), n_ctx=N_CTX).tokens, arguments.chunks)
            for path in (arguments.text, arguments.new_text)
        ]
        for name in arguments.tensors:
            entered = inputs_of(model, name, np.concatenate(tokens))
            known, new = np.split(entered, [tokens[0].size])
            sums = OfAllTokens(entered.shape[1], N_CTX)
            sums.add(known)
            weights = by_name[name].weights()[:N_ROWS]
            hessian, of_new = sums.hessian(0), mean_product(new)
            errors = _errors(weights, hessian, TensorType[arguments.type])
            for n, dampening in enumerate(DAMPENINGS, 1):
                by_text, by_new = (_least(errors[:n], hessian, tells) for tells in (hessian, of_new))
                print(f"{name} {n} candidates, with {dampening:g}: {by_text:.4f}, on new text {by_new:.4f}")


def _errors(
    weights: NDArray[np.float32], hessian: NDArray[np.float32], type_: TensorType
) -> NDArray[np.float32]:
    """Round with each dampening; (n_dampenings, n_rows, n_in)."""
    return np.stack([moved(weights, gptq_encoder(hessian, type_, dampening)) for dampening in DAMPENINGS])


def _least(errors: NDArray[np.float32], chooses: NDArray[np.float32], tells: NDArray[np.float32]) -> float:
    """Keep each row's candidate of the least e H e'; the sum of these by an H, over that of the first."""
    costs = ((errors @ chooses) * errors).sum(axis=2)
    told = ((errors @ tells) * errors).sum(axis=2)
    return float(np.take_along_axis(told, costs.argmin(axis=0)[None], 0).sum() / told[0].sum())


if __name__ == "__main__":
    main()
