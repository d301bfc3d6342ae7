"""Policies by name."""

from __future__ import annotations

from functools import partial

from pyquant.errors import ConfigError
from pyquant.generation.speculative.policies.auto import AUTO
from pyquant.generation.speculative.policies.costs import Costs
from pyquant.generation.speculative.policies.expected_value import EXPECTED_VALUE
from pyquant.generation.speculative.policies.lengths import LENGTHS
from pyquant.generation.speculative.policies.policy import Family, Policy
from pyquant.generation.speculative.policies.thresholds import THRESHOLDS_OF

DEFAULT = "auto"
FAMILIES: dict[str, Family] = {DEFAULT: AUTO} | LENGTHS | THRESHOLDS_OF | {"expected_value": EXPECTED_VALUE}


def make_policy(text: str, costs: Costs | None = None) -> Policy:
    """Return a policy from its name and parameters, such as "fixed" or "static:threshold=2.25,keep=0".

    Behind the colon are the parameters that are not to have their defaults. Raises ConfigError: there is no
    such policy or parameter, a number is outside of its range, or costs are missing that it decides by.
    """
    name, parameters = read_policy(text)
    family = FAMILIES[name]
    if family.from_costs is None:
        return partial(family.decide, **parameters)
    if costs is None:
        raise ConfigError(f"policy {name}: needs measured costs: `pyquant draft costs` measures them")
    return partial(family.decide, known=family.from_costs(costs, parameters), **parameters)


def read_policy(text: str) -> tuple[str, dict[str, float]]:
    """Return the name of a policy and all its parameters. Raises ConfigError."""
    name, _, given = text.partition(":")
    if name not in FAMILIES:
        raise ConfigError(f"policy {name!r}: there is none; there are {', '.join(FAMILIES)}")
    known = FAMILIES[name].parameters
    values = {key: parameter.default for key, parameter in known.items()}
    for assignment in filter(None, given.split(",")):
        key, _, value = assignment.partition("=")
        if key not in known:
            ranges = ", ".join(f"{key}: {parameter.limit}" for key, parameter in known.items())
            raise ConfigError(f"policy {name}: has no parameter {key!r}; it has {ranges}")
        try:
            values[key] = known[key].limit.parse(value)
        except ValueError as error:
            raise ConfigError(f"policy {name}: {key}: {error}") from None
    return name, values


def policy_text(name: str, parameters: dict[str, float]) -> str:
    """Return what `read_policy` reads: the name, and the parameters that are not the defaults."""
    known = FAMILIES[name].parameters
    given = [f"{key}={value:g}" for key, value in parameters.items() if value != known[key].default]
    return f"{name}:{','.join(given)}" if given else name
