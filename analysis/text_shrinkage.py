"""Say how far Hessians of several texts are best shrunk: the error of GPTQ on new text, beside imatrix's.

    python -m analysis.text_shrinkage MODEL NEW_TEXT [NEW_TEXT ...] --tensors blk.8.ffn_gate.weight

Hessians are of the default mixture, without random tokens. A line says, for a share of the diagonal, what
e H e' is beside that with an imatrix, on the last third of the mixture's own texts and on each new one; then
which share `pyquant quantize` takes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from analysis.few_tokens import N_CTX, N_ROWS, cost, gptq_encoder, inputs_of, mean_product, parser_of
from pyquant import _core
from pyquant.calibration.shrinkage import BetweenTexts, go_to_diagonal, sampled_columns
from pyquant.calibration.sources import MIXTURE
from pyquant.calibration.wanted import chunks_of, wanted_texts
from pyquant.files.text import read_text
from pyquant.llama.chunks import cut
from pyquant.llama.model import Model
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_type import TensorType

SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)


def main() -> None:
    parser = parser_of(__doc__, type_="Q4_K")
    parser.add_argument("new_texts", type=Path, nargs="+")
    parser.add_argument("--chunks", type=int, default=15, help="of each text")
    arguments = parser.parse_args()

    by_name = {tensor.name: tensor for tensor in ModelFile(arguments.model).tensors}
    type_ = TensorType[arguments.type]
    with Model(arguments.model, staged=True) as model:
        wanted = wanted_texts(list(MIXTURE), None, arguments.chunks)
        cuts = chunks_of(wanted, model, N_CTX, None, None)
        texts = {text.name: chunks.tokens for text, chunks in zip(MIXTURE, cuts)}
        for path in arguments.new_texts:
            texts[path.name] = cut(model, read_text(path), n_ctx=N_CTX, n_chunks=arguments.chunks).tokens
        for name in arguments.tensors:
            entered = inputs_of(model, name, np.concatenate(list(texts.values())))
            of_texts = np.split(entered, N_CTX * np.cumsum([len(tokens) for tokens in texts.values()])[:-1])
            inputs = dict(zip(texts, of_texts))
            known = [inputs[text.name][: len(inputs[text.name]) * 2 // 3] for text in MIXTURE]
            rest = [inputs[text.name][len(inputs[text.name]) * 2 // 3 :] for text in MIXTURE]
            new = {"its own": np.concatenate(rest)} | {
                path.name: inputs[path.name] for path in arguments.new_texts
            }
            _say(name, by_name[name].weights()[:N_ROWS], known, new, type_)


def _say(
    name: str, weights: np.ndarray, known: list[np.ndarray], new: dict[str, np.ndarray], type_: TensorType
) -> None:
    of_new = {text: mean_product(inputs) for text, inputs in new.items()}
    whole = mean_product(np.concatenate(known))
    diagonal = whole.diagonal()[None].copy()
    plain = {
        text: cost(weights, _core.ggml_encoder(int(type_)), hessian, diagonal)
        for text, hessian in of_new.items()
    }
    print(f"{name}:", ", ".join(new))
    for share in SHARES:
        hessian = whole.copy()
        go_to_diagonal(hessian, share)
        encoder = gptq_encoder(hessian, type_)
        ratios = [cost(weights, encoder, of_new[text]) / plain[text] for text in new]
        print(f"{share:4.1f}", *(f"{ratio:6.3f}" for ratio in ratios))
    columns = sampled_columns(weights.shape[1])
    between = BetweenTexts(len(columns))
    for inputs in known:
        between.add(inputs[:, columns].T @ inputs[:, columns], len(inputs))
    print(f"taken: {between.share:.2f}")


if __name__ == "__main__":
    main()
