"""Files of every kind that pyquant reads, damaged, under checksums that are right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from pyquant.errors import GrammarError, PyquantError
from tests.trial.case import HELD, REFUSED, Attack, Failed
from tests.trial.damage import damage
from tests.trial.samples import Samples

Use = Callable[[Path], object]
Damage = Callable[[bytes, np.random.Generator], bytes]


class Mutation(Attack):
    """One kind of file. sample: a sound one, by its name or a pattern. use: reads all of it, from a path."""

    forked = True

    def __init__(
        self, name: str, what: str, one_in: float, sample: str, use: Callable[[Samples], Use]
    ) -> None:
        self.name, self.what, self.one_in = name, what, one_in
        self._sample, self._make_use = sample, use

    def prepare(self, samples: Samples, folder: Path) -> None:
        (source,) = samples.folder.glob(self._sample)
        self._whole = source.read_bytes()
        self._damage = self.damage_of(source)
        self._use = self._make_use(samples)
        self._path = source.name
        self._source = source

    def begin(self) -> None:
        self._use(self._source)  # a sound file is read

    def damage_of(self, source: Path) -> Damage:
        """Give what damages the content of this file."""
        return damage

    def run(self, rng: np.random.Generator, folder: Path) -> str:
        path = folder / self._path
        path.write_bytes(self._damage(self._whole, rng))
        return judged(lambda: self._use(path))


def judged(do: Callable[[], object]) -> str:
    """HELD if it works, REFUSED if it says in a line why not; anything else is a failure.

    Of a grammar an error may show the lines around the place.
    """
    try:
        do()
    except GrammarError:
        return REFUSED
    except PyquantError as error:
        if "\n" in str(error):
            raise Failed(f"more than a line: {error}") from None
        return REFUSED
    except Exception as error:
        raise Failed(where(error)) from None
    return HELD


def where(error: BaseException) -> str:
    """The exception, and the line of pyquant that it came through last."""
    lines = []
    trace = error.__traceback__
    while trace:
        code = trace.tb_frame.f_code
        if "pyquant" in code.co_filename and "tests" not in code.co_filename:
            lines.append(f"{code.co_filename.rpartition('pyquant/')[2]}:{trace.tb_lineno}")
        trace = trace.tb_next
    return f"{type(error).__name__}: {str(error)[:200]} at {' < '.join(lines[-2:][::-1])}"
