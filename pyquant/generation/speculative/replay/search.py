"""Search the best parameters of a policy on a record: over the grid of all of them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

from pyquant.errors import ConfigError
from pyquant.files.json import read_output
from pyquant.generation.speculative.policies import FAMILIES, policy_text, read_policy
from pyquant.generation.speculative.replay.calibrate import calibrate
from pyquant.generation.speculative.replay.replay import Replay, Replayed

SCHEMA = "pyquant.draft.search/3"

# (settings done, all settings)
Progress = Callable[[int, int], None]


def search(replay: Replay, policy: str, progress: Progress | None = None) -> Replayed:
    """Replay a policy with every combination of its parameters' grids, and return the one that takes least.

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
    return min(tried, key=lambda its: its.ms_per_token)


def read_found(path: Path, models: tuple[str, str]) -> dict[str, float]:
    """Return policies' best settings, and speed-ups that a search predicted.

    models: what `Costs.models` is of this pair. Raises ConfigError: it cannot be read, or is of another pair.
    """
    content = read_output(path, "pyquant draft search", SCHEMA)
    if content.get("models") != list(models):
        raise ConfigError(f"{path}: is of another target or draft; search again with these")
    try:
        return {str(best["policy"]): float(best["gain"]) for best in content["policies"].values()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ConfigError(f"{path}: a policy's best setting is missing; search again") from None
