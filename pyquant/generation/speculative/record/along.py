"""Run a draft over a text of its target's: what a record has of it."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.errors import ModelFileError
from pyquant.generation.sampling.result import END, Sample
from pyquant.generation.speculative.record.predictions import Readers
from pyquant.generation.speculative.record.record import ARRAYS, Along
from pyquant.generation.speculative.write.ngram_draft import NgramDraft
from pyquant.llama.model import Model

REPEATED = 6  # tokens that come again are a repetition, as in entropy drafting's experiments

Columns: TypeAlias = "dict[str, list[NDArray[np.float64]]]"  # by array of a record: portion by portion


def along(
    readers: Readers, prompt: NDArray[np.int32], sample: Sample, max_tokens: int, temperature: float = 0
) -> Along:
    """Run a draft over a text of its target's, as if nothing had been run before.

    Parameters
    ----------
    readers
        The draft and its target, with room for the prompt and its text.
    prompt : (n,) int32
    sample
        What the target wrote after it.
    max_tokens
        Tokens that it was allowed to write.
    temperature
        At which the target drew. Where it took its most likely token, the text says all there is to know of
        it.

    Raises
    ------
    ModelFileError
        Logits are not finite.
    """
    columns: Columns = {name: [] for name in ARRAYS}
    draft, text, at = readers.draft, sample.tokens, 0
    ends = draft.model.vocabulary.end_tokens()
    for logits, of_target in readers.along(prompt, sample, both=temperature > 0):
        top, entropy, top_p = most_likely(logits, draft.n_threads)
        tokens = np.array(text[at : at + len(top)], np.int32)
        at += len(top)
        if len(tokens) < len(top):  # the text's end, whose token is not among the sample's: any that ends
            of_draft = top[-1] if top[-1] in ends else ends[0]
            last = of_draft if of_target is None else of_target[-1].argmax()
            tokens = np.append(tokens, last).astype(np.int32)
        columns["entropy"].append(entropy)
        columns["top_p"].append(top_p)
        if of_target is not None:
            in_target, in_draft = (
                _core.negative_log_likelihood(at_temperature(each, temperature), tokens, draft.n_threads)
                for each in (of_target, logits)
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
