"""Run a target and its draft over a text of the target's: what a record has of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.drafting.ngram_draft import NgramDraft
from pyquant.drafting.record import Along
from pyquant.errors import ModelFileError
from pyquant.generate.result import END, Sample
from pyquant.llama.model import Context

REPEATED = 6  # tokens that come again are a repetition, as in entropy drafting's experiments
PORTION = 128  # tokens whose logits of both models are in memory at a time


def along(
    target: Context, draft: Context, prompt: NDArray[np.int32], sample: Sample, temperature: float
) -> Along:
    """Run a target and a draft over a text of the target's, as if nothing had been run before.

    Parameters
    ----------
    target, draft
        With one sequence each, and room for the prompt and its text.
    prompt : (n,) int32
    sample
        What the target wrote after it.
    temperature
        At which it drew.

    Raises
    ------
    ModelFileError
        Logits are not finite.
    """
    text = np.array(sample.tokens, np.int32)
    columns: dict[str, list[NDArray[np.float64]]] = {
        name: [] for name in ("entropy", "top_p", "token_p", "accepted", "overlap")
    }
    at = 0
    for both in _predictions([target, draft], prompt, sample):
        tokens = text[at : at + len(both[0])]
        at += len(tokens)
        if len(tokens) < len(both[0]):  # the text's end, whose token is not among the sample's
            tokens = np.append(tokens, both[0][-1].argmax()).astype(np.int32)
        _measure(columns, both[0], both[1], tokens, temperature, target.n_threads)
    joined = {name: np.concatenate(parts) if parts else np.empty(0) for name, parts in columns.items()}
    if not all(np.isfinite(values).all() for values in joined.values()):
        raise ModelFileError(f"{draft.model.path}: not finite logits: the model is broken")
    fresh = _first_repetition(prompt.tolist(), sample.tokens)
    return Along(sample.prompt, sample.number, sample.finish == END, **joined, fresh=fresh)


def along_ngrams(target: Context, prompt: NDArray[np.int32], sample: Sample) -> Along:
    """Look up along a text of a target's what followed the same tokens before.

    Parameters
    ----------
    target
        With one sequence, and room for the prompt and its text; it says how likely it takes what is proposed.
    prompt : (n,) int32
    sample
        What the target wrote after it.

    Raises
    ------
    ModelFileError
        Logits are not finite.
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
    looked_up = np.array([each.token if each else 0 for each in found], np.int32)
    overlap, at = np.zeros(len(found)), 0
    for (logits,) in _predictions([target], prompt, sample):
        part = slice(at, at + len(logits))
        unlikely = _core.negative_log_likelihood(logits, looked_up[part], target.n_threads)
        overlap[part] = np.exp(-unlikely) * (arrays["top_p"][part] > 0)
        at += len(logits)
    if not np.isfinite(overlap).all():
        raise ModelFileError(f"{target.model.path}: not finite logits: the model is broken")
    fresh = _first_repetition(prompt.tolist(), sample.tokens)
    ended = sample.finish == END
    return Along(
        sample.prompt, sample.number, ended, **arrays,
        accepted=accepted.astype(float), overlap=overlap, fresh=fresh,
    )  # fmt: skip


def _predictions(
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


def _measure(
    columns: dict[str, list[NDArray[np.float64]]],
    target: NDArray[np.float32],
    draft: NDArray[np.float32],
    tokens: NDArray[np.int32],
    temperature: float,
    threads: int,
) -> None:
    top = draft.argmax(axis=1).astype(np.int32)
    top_p = np.exp(-_core.negative_log_likelihood(draft, top, threads))
    columns["entropy"].append(_core.entropy(draft, threads))
    columns["top_p"].append(top_p)
    if temperature == 0:
        columns["token_p"].append(top_p)
        columns["accepted"].append((top == tokens).astype(np.float64))
    else:
        target, draft = (
            logits if temperature == 1 else (logits / temperature).astype(np.float32)
            for logits in (target, draft)
        )
        in_target, in_draft = (
            _core.negative_log_likelihood(logits, tokens, threads) for logits in (target, draft)
        )
        columns["token_p"].append(np.exp(-in_draft))
        columns["accepted"].append(np.exp(np.minimum(0, in_target - in_draft)))
    columns["overlap"].append(_core.compare_logits(target, draft, tokens, threads)[3])
