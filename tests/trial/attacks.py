"""All attacks."""

from __future__ import annotations

from tests.trial.case import Attack
from tests.trial.disturbances import FullDisks, Kills, Rivals, Shortages, Signals
from tests.trial.numbers import Numbers
from tests.trial.readers import mutations
from tests.trial.surroundings import Surroundings


def every_attack() -> list[Attack]:
    """Lists them in the order in which they run."""
    processes: list[Attack] = [Kills(), Signals(), FullDisks(), Shortages(), Rivals(), Surroundings()]
    return [*mutations(), Numbers(), *processes]
