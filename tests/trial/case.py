"""Definition of an attack, and of what may come of a case of it."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.trial.samples import Samples

HELD, REFUSED, SKIPPED = "held", "refused", "skipped"


class Failed(Exception):
    """A case that pyquant did not stand."""


@dataclass(frozen=True)
class Failure:
    """A case that failed: what to give `--case` to see it again, and what happened."""

    attack: str
    case: int
    what: str


class Attack(ABC):
    """A way to attack.

    name: on the command line. what: is attacked, in a few words. one_in: of so many cases of the trial one is
    of this attack. forked: its cases are quick, and run in a process that is forked once for many.
    addresses: bytes of address space that such a process may take more.
    """

    name: str
    what: str
    one_in: float
    forked = False
    addresses = 4 << 30

    def prepare(self, samples: Samples, folder: Path) -> None:  # noqa: B027  (most need nothing)
        """Does once what all cases need. folder: empty, and this attack's own."""

    def begin(self) -> None:  # noqa: B027
        """Does what each process needs that runs cases: threads of a process do not outlive a fork."""

    @abstractmethod
    def run(self, rng: np.random.Generator, folder: Path) -> str:
        """Runs a case: HELD, REFUSED (by an error that is said, rightly), SKIPPED; or raises Failed."""


def generator(seed: int, attack: str, case: int) -> np.random.Generator:
    """Make the random numbers that decide about a case: the same for the same three arguments."""
    return np.random.default_rng([seed, zlib.crc32(attack.encode()), case])
