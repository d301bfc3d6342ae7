"""Read a text with a target and a draft: a record, as if the target had written the text.

No token is written for it. Policies can be replayed on it before anything was drafted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.files.text import Text
from pyquant.generation.sampling.result import LENGTH, Sample
from pyquant.generation.speculative.record.along import Columns, at_temperature, joined, most_likely
from pyquant.generation.speculative.record.predictions import Readers, readers
from pyquant.generation.speculative.record.record import ARRAYS, Along, Record, Source
from pyquant.generation.speculative.write.pair import check_both, sha256_of
from pyquant.llama.chunks import cut
from pyquant.llama.model import Model

# (chunks done, all chunks)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Reading:
    """How a text is read.

    Attributes
    ----------
    n_ctx : int
        Tokens of a chunk; the first half of each stands for a prompt.
    n_chunks : int or None
        None: all.
    temperature : float
        At which the target is to draw; 0: its most likely token.
    """

    n_ctx: int = 512
    n_chunks: int | None = None
    temperature: float = 0.0


def record_of_text(
    target: Path,
    draft: Path,
    text: Text,
    reading: Reading,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Record:
    """Run both models over a text.

    A drafted token is taken to be accepted where both models find the same token most likely, or where the
    target draws, with the chance that it has whatever the draft proposes: the sum over tokens of min(p, q).

    Parameters
    ----------
    target, draft
        Models with one vocabulary.
    text
    reading
    threads
        None: all processors.
    progress

    Raises
    ------
    ConfigError
        The vocabularies differ.
    TextError
        The text is shorter than a chunk.
    ModelFileError, NotEnoughMemory
    """
    check_both(target, draft, reading.n_ctx)
    with Model(target) as of_target, Model(draft) as of_draft:
        chunks = cut(of_target, text, n_ctx=reading.n_ctx, n_chunks=reading.n_chunks)
        tokens = chunks.given_to(of_target)
        texts = []
        with readers(of_target, of_draft, reading.n_ctx, threads) as both:
            for number, chunk in enumerate(tokens):
                texts.append(_read(both, chunk, number, reading.temperature))
                if progress:
                    progress(number + 1, len(tokens))
    source = Source(
        version=version("pyquant"), target=target.name, draft=draft.name, target_sha256=sha256_of(target),
        draft_sha256=sha256_of(draft), prompts_sha256=text.sha256, chat=False, n_samples=1,
        max_tokens=reading.n_ctx - reading.n_ctx // 2, temperature=reading.temperature, seed=0,
    )  # fmt: skip
    return Record(source, texts)


def _read(both: Readers, chunk: NDArray[np.int32], number: int, temperature: float) -> Along:
    prompt, said = np.split(chunk, [len(chunk) // 2])
    sample = Sample(number, "", 0, tokens=said.tolist(), finish=LENGTH)
    columns: Columns = {name: [] for name in ARRAYS}
    at, threads = 0, both.draft.n_threads
    for logits, of_base in both.along(prompt, sample, both=True):
        assert of_base is not None
        targets = said[at : at + len(logits)]
        at += len(logits)
        _, entropy, top_p = most_likely(logits, threads)
        if temperature > 0:
            drawn_from = [at_temperature(each, temperature) for each in (of_base, logits)]
            nll, _, _, accepted = _core.compare_logits(drawn_from[0], drawn_from[1], targets, threads)
            token_p = np.exp(-nll)
        else:
            _, _, same_top, _ = _core.compare_logits(of_base, logits, targets, threads)
            token_p, accepted = top_p, same_top.astype(np.float64)
        for name, values in zip(ARRAYS, (entropy, top_p, token_p, np.minimum(accepted, 1.0))):
            columns[name].append(values)
    return Along(number, 0, False, len(said), **joined(columns, both.draft.model), fresh=None)
