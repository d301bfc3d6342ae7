"""Search the best parameters of a policy on a record: over the grid of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from pyquant.errors import ConfigError
from pyquant.files.json import read_output
from pyquant.generation.speculative.policies import FAMILIES, policy_text, read_policy
from pyquant.generation.speculative.replay.calibrate import calibrate
from pyquant.generation.speculative.replay.replay import Replay, Replayed

SCHEMA = "pyquant.draft.search/2"

# (settings done, all settings)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Found:
    """What came of a policy with the parameters that take least, and how many settings were tried."""

    best: Replayed
    tried: int


def search(replay: Replay, policy: str, progress: Progress | None = None) -> Found:
    """Replay a policy with every combination of its parameters' grids.

    Parameters that are given with its name are not searched. The chances of `expected_value` are fitted to
    the record, if they are not given. Raises ConfigError.
    """
    name, values = read_policy(policy)
    given = {part.partition("=")[0] for part in policy.partition(":")[2].split(",")}
    if name == "expected_value" and not given & {"bias", "slope", "entropy"}:
        values |= calibrate(replay.record.drafted)
    grid = {
        key: parameter.grid if parameter.grid and key not in given else (values[key],)
        for key, parameter in FAMILIES[name].parameters.items()
    }
    tried = []
    settings = [dict(zip(grid, chosen)) for chosen in product(*grid.values())]
    for n, parameters in enumerate(settings, start=1):
        tried.append(replay.run(policy_text(name, parameters)))
        if progress:
            progress(n, len(settings))
    return Found(min(tried, key=lambda its: its.ms_per_token), len(tried))


def read_found(path: Path) -> dict[str, float]:
    """Return the best setting of each policy in what `pyquant draft search -o` wrote, and its gain.

    Raises ConfigError where it cannot be read, or is something else.
    """
    content = read_output(path, "pyquant draft search", SCHEMA)
    try:
        every = [found["best"] for found in content["policies"].values()]
        return {str(best["policy"]): float(best["gain"]) for best in every}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ConfigError(f"{path}: a policy's best setting is missing; search again") from None
