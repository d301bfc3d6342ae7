"""Search the best parameters of a policy on a record: over the grid of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from pyquant.errors import ConfigError
from pyquant.files.json import read_output
from pyquant.generation.speculative.policies import FAMILIES, policy_text, read_policy
from pyquant.generation.speculative.replay.simulate import Simulated, Simulation

SCHEMA = "pyquant.draft.search/1"

# (settings done, all settings)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Found:
    """A policy's parameters that take least on a record.

    Attributes
    ----------
    best : Simulated
    grid : dict of list
        Values that were tried, by parameter.
    surface : list of (dict, Simulated)
        All parameters that were tried, and what came of each.
    """

    best: Simulated
    grid: dict[str, list[float]]
    surface: list[tuple[dict[str, float], Simulated]]

    def to_json(self) -> dict[str, Any]:
        """Return it as `pyquant draft search --json` prints each of its `policies`."""
        return {
            "best": self.best.to_json(),
            "grid": self.grid,
            "surface": [{"parameters": given, **asdict(result)} for given, result in self.surface],
        }


def search(simulation: Simulation, policy: str, progress: Progress | None = None) -> Found:
    """Replay a policy with every combination of its parameters' grids.

    Parameters
    ----------
    simulation
    policy
        A name; parameters that are given with it are not searched. The chances of `expected_value` are
        fitted to the record, if they are not given.
    progress

    Raises
    ------
    ConfigError
    """
    name, values = read_policy(policy)
    given = {part.partition("=")[0] for part in policy.partition(":")[2].split(",")}
    if name == "expected_value" and not given & {"bias", "slope", "entropy"}:
        fitted = read_policy(simulation.calibrated())[1]
        values |= {key: fitted[key] for key in ("bias", "slope", "entropy", "mean")}
    grid = {
        key: list(parameter.grid) if parameter.grid and key not in given else [values[key]]
        for key, parameter in FAMILIES[name].parameters.items()
    }
    surface = []
    settings = [dict(zip(grid, chosen)) for chosen in product(*grid.values())]
    for n, parameters in enumerate(settings, start=1):
        surface.append((parameters, simulation.run(policy_text(name, parameters))))
        if progress:
            progress(n, len(settings))
    best = min((result for _, result in surface), key=lambda result: result.ms_per_token)
    return Found(best, grid, surface)


def read_found(path: Path) -> list[str]:
    """Return the best setting of each policy in what `pyquant draft search -o` wrote.

    Raises
    ------
    ConfigError
        It cannot be read, or is something else.
    """
    content = read_output(path, "pyquant draft search", SCHEMA)
    try:
        return [str(found["best"]["policy"]) for found in content["policies"].values()]
    except (AttributeError, KeyError, TypeError):
        raise ConfigError(f"{path}: a policy's best setting is missing; search again") from None
