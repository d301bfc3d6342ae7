"""Texts that a model generated, kept in the cache: generating takes longer than running over them."""

from __future__ import annotations

import hashlib
import io
import json
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.calibration.prompts import prompts
from pyquant.errors import OutputError
from pyquant.files.npz import read_npz
from pyquant.files.output_file import write_bytes
from pyquant.llama.chunks import Chunks
from pyquant.llama.model import Model
from pyquant.llama.own_texts import OwnText, most_together, write_together
from pyquant.llama.vocabulary import Vocabulary
from pyquant.machine.caches import cache_folder
from pyquant.machine.environment import build_and_cpu

logger = logging.getLogger(__name__)

# Called with the tokens written, and all.
Written = Callable[[int, int], None]


@dataclass(frozen=True)
class ToWrite:
    """What a model is to write.

    forms, seed: of prompts, one of which each text begins with. before, after: tokens around a prompt.
    turns: tokens that stand where the model ends, in turn; none: another prompt.
    """

    forms: tuple[str, ...]
    seed: int
    before: list[int]
    after: list[int]
    turns: tuple[list[int], ...] = ()

    def prompts(self, vocabulary: Vocabulary) -> Iterator[list[int]]:
        """Yield prompts without end, with what is around them."""
        for prompt in prompts(vocabulary, self.forms, self.seed):
            yield [*self.before, *prompt, *self.after]


def write_texts(
    model: Model,
    wanted: Sequence[tuple[ToWrite, int]],
    n_ctx: int,
    threads: int | None,
    progress: Written | None,
) -> list[Chunks]:
    """Let a model generate chunks of n_ctx tokens, or take those of them that it generated before.

    Chunks that are generated together, of whatever is asked, are kept when they are done.

    wanted: what is asked, and how many chunks of each. Returns: the chunks of each. Raises ModelFileError: it
    cannot be run.
    """
    folder = cache_folder()
    begins = [_Beginnings(asked.prompts(model.vocabulary), asked.turns) for asked, _ in wanted]
    numbers = [(i, number) for i, (_, n_chunks) in enumerate(wanted) for number in range(n_chunks)]
    written = np.empty((len(numbers), n_ctx), np.int32)
    step = most_together(model.file, n_ctx)
    for first in range(0, len(numbers), step):
        together, part = numbers[first : first + step], written[first : first + step]
        asked = [(wanted[i][0], number) for i, number in together]
        path = folder and folder / "texts" / f"{_key(model, asked, n_ctx)}.npz"
        known = _read(path, part.shape, len(wanted), model.n_vocab) if path else None
        if known is not None:
            part[:], n_prompts = known
            for begin, n in zip(begins, n_prompts):
                begin.skip(n)
            continue
        texts = [OwnText(each.seed, number, begins[i]) for (each, number), (i, _) in zip(asked, together)]
        part[:] = write_together(
            model, texts, n_ctx, threads=threads, observer=_core.Bf16Pass(),
            progress=progress and _behind(progress, first * n_ctx, written.size),
        )  # fmt: skip
        if path:
            _keep(path, part, [begin.count() for begin in begins])
    ends = np.cumsum([n_chunks for _, n_chunks in wanted])
    return [Chunks(of_one) for of_one in np.split(written, ends[:-1])] if wanted else []


class _Beginnings:
    """What stands at the beginning of a text, and where the model ends one; counts prompts."""

    def __init__(self, prompts: Iterator[list[int]], turns: tuple[list[int], ...]) -> None:
        self._prompts, self._turns, self._n_prompts = prompts, turns, 0

    def __call__(self, n_ends: int) -> list[int]:
        if n_ends and self._turns:
            return self._turns[(n_ends - 1) % len(self._turns)]
        self._n_prompts += 1
        return next(self._prompts)

    def count(self) -> int:
        """Return how many prompts were taken since the last call."""
        n, self._n_prompts = self._n_prompts, 0
        return n

    def skip(self, n_prompts: int) -> None:
        """Leave out the next prompts."""
        deque(islice(self._prompts, n_prompts), maxlen=0)


def _behind(progress: Written, before: int, total: int) -> Callable[[int], None]:
    """Count the tokens before those that are written."""
    return lambda done: progress(before + done, total)


def _key(model: Model, asked: Sequence[tuple[ToWrite, int]], n_ctx: int) -> str:
    what = [(asdict(each), number) for each, number in asked]
    made_of = [model.file.sha256(), what, n_ctx, build_and_cpu()]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:24]


def _read(
    path: Path, shape: tuple[int, ...], n_asked: int, n_vocab: int
) -> tuple[NDArray[np.int32], list[int]] | None:
    try:
        arrays = read_npz(path)
        tokens, n_prompts = arrays["tokens"], arrays["n_prompts"]
        if (tokens.shape, tokens.dtype, n_prompts.shape) != (shape, np.int32, (n_asked,)):
            raise ValueError("has other texts")
        n_most = n_prompts.max()
        if tokens.min() < 0 or tokens.max() >= n_vocab or not 0 <= n_prompts.min() <= n_most <= tokens.size:
            raise ValueError("has impossible numbers")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError) as error:
        logger.warning("%s: written anew, as what was kept cannot be used: %s", path, error)
        return None
    return tokens, n_prompts.tolist()


def _keep(path: Path, tokens: NDArray[np.int32], n_prompts: list[int]) -> None:
    data = io.BytesIO()
    np.savez(data, tokens=tokens, n_prompts=np.array(n_prompts))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, data.getvalue(), sources=[], force=True)
    except (OSError, OutputError) as error:
        logger.warning("%s: what the model wrote is not kept (PYQUANT_CACHE): %s", path, error)
