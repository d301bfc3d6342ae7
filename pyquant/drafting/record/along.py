"""Run a draft over a text of its target's: what a record has of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.drafting.record.record import ARRAYS, Along
from pyquant.drafting.write.ngram_draft import NgramDraft
from pyquant.errors import ModelFileError
from pyquant.generate.result import END, Sample
from pyquant.llama.model import Context, Model

REPEATED = 6  # tokens that come again are a repetition, as in entropy drafting's experiments
PORTION = 128  # tokens whose logits are in memory at a time

Columns: TypeAlias = "dict[str, list[NDArray[np.float64]]]"  # by array of a record: portion by portion


def along(
    draft: Context,
    prompt: NDArray[np.int32],
    sample: Sample,
    max_tokens: int,
    target: Context | None = None,
    temperature: float = 0,
) -> Along:
    """Run a draft over a text of its target's, as if nothing had been run before.

    Parameters
    ----------
    draft
        With one sequence, and room for the prompt and its text.
    prompt : (n,) int32
    sample
        What the target wrote after it.
    max_tokens
        Tokens that it was allowed to write.
    target, temperature
        The same of the target where it draws, and the temperature at which it did. Where it takes its most
        likely token, the text says all there is to know of it.

    Raises
    ------
    ModelFileError
        Logits are not finite.
    """
    columns: Columns = {name: [] for name in ARRAYS}
    text, at = sample.tokens, 0
    ends = draft.model.vocabulary.end_tokens()
    for logits, *others in predictions([draft, *([target] if target else [])], prompt, sample):
        top, entropy, top_p = most_likely(logits, draft.n_threads)
        tokens = np.array(text[at : at + len(top)], np.int32)
        at += len(top)
        if len(tokens) < len(top):  # the text's end, whose token is not among the sample's: any that ends
            last = others[0][-1].argmax() if others else top[-1] if top[-1] in ends else ends[0]
            tokens = np.append(tokens, last).astype(np.int32)
        columns["entropy"].append(entropy)
        columns["top_p"].append(top_p)
        if others:
            in_target, in_draft = (
                _core.negative_log_likelihood(at_temperature(each, temperature), tokens, draft.n_threads)
                for each in (others[0], logits)
            )
            columns["token_p"].append(np.exp(-in_draft))
            columns["accepted"].append(np.exp(np.minimum(0, in_target - in_draft)))
        else:
            columns["token_p"].append(top_p)
            columns["accepted"].append((top == tokens).astype(np.float64))
    arrays = joined(columns, draft.model)
    fresh = _first_repetition(prompt.tolist(), text)
    return Along(sample.prompt, sample.number, sample.finish == END, max_tokens, **arrays, fresh=fresh)


def most_likely(
    logits: NDArray[np.float32], n_threads: int
) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
    """Return each position's most likely token, the entropy there in nats, and that token's probability."""
    top = logits.argmax(axis=1).astype(np.int32)
    top_p = np.exp(-_core.negative_log_likelihood(logits, top, n_threads))
    return top, _core.entropy(logits, n_threads), top_p


def joined(columns: Columns, model: Model) -> dict[str, NDArray[np.float64]]:
    """Put the portions of each array together. Raises ModelFileError where logits were not finite."""
    arrays = {name: np.concatenate(parts) if parts else np.empty(0) for name, parts in columns.items()}
    if not all(np.isfinite(values).all() for values in arrays.values()):
        raise ModelFileError(f"{model.path}: not finite logits: the model is broken")
    return arrays


def along_ngrams(prompt: NDArray[np.int32], sample: Sample, max_tokens: int) -> Along:
    """Look up along a text of a target's what followed the same tokens before.

    Parameters
    ----------
    prompt : (n,) int32
    sample
        What the target wrote after it.
    max_tokens
        Tokens that it was allowed to write.
    """
    draft, tokens = NgramDraft(), prompt.tolist()
    written = [*sample.tokens, *([None] if sample.finish == END else [])]
    found = []
    for token in written:
        found.append(draft.propose(tokens, None, 0.0))
        tokens.append(token)
    arrays = {
        name: np.array([getattr(each, name) if each else 0.0 for each in found], float)
        for name in ("entropy", "top_p", "token_p")
    }
    accepted = np.array([each is not None and each.token == token for each, token in zip(found, written)])
    fresh = _first_repetition(prompt.tolist(), sample.tokens)
    return Along(
        sample.prompt, sample.number, sample.finish == END, max_tokens, **arrays,
        accepted=accepted.astype(float), fresh=fresh,
    )  # fmt: skip


def predictions(
    contexts: Sequence[Context], prompt: NDArray[np.int32], sample: Sample
) -> Iterator[list[NDArray[np.float32]]]:
    """Yield what each context says of the tokens behind a prompt: (n, n_vocab) float32, some at a time."""
    for context in contexts:
        context.clear()
    text = np.array(sample.tokens, np.int32)
    n_written = len(text) + (sample.finish == END)
    read = np.concatenate([prompt, text])[: len(prompt) + n_written - 1]
    # Portions of one size: a short last one would be computed by other kernels, those for few tokens.
    size = math.ceil(len(read) / math.ceil(len(read) / PORTION))
    for begin in range(0, len(read), size):
        positions = np.arange(len(read))[begin : begin + size]
        wanted = positions >= len(prompt) - 1
        said = [
            context.run(read[positions], positions, np.zeros_like(positions), wanted) for context in contexts
        ]
        if wanted.any():
            yield said


def _first_repetition(prompt: list[int], text: list[int]) -> int | None:
    """Return which token of a text is the first to end REPEATED tokens that were there before."""
    tokens, seen = prompt + text, set()
    for end in range(REPEATED, len(tokens) + 1):
        last = tuple(tokens[end - REPEATED : end])
        if last in seen and end > len(prompt):
            return end - 1 - len(prompt)
        seen.add(last)
    return None


def at_temperature(logits: NDArray[np.float32], temperature: float) -> NDArray[np.float32]:
    """Return logits whose softmax has a temperature."""
    return logits if temperature == 1 else (logits / temperature).astype(np.float32)
