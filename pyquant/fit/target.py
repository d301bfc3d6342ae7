"""Target of the step of mode `ecsq`: the one place that says what a wanted size means.

| key         | what it is                                                                             |
|-------------|----------------------------------------------------------------------------------------|
| `step`      | The step itself.                                                                       |
| `target_bpw` | Bits per weight of the whole .pqz file, at most: 8 times its bytes, by the model's weights. |
| `target_size` | Bytes of the whole .pqz file, at most.                                                 |
| `like`      | A type of llama.cpp: the KLD from the model is that type's, or a little less.   |
| `code_bits` | Bits per weight of the quantized tensors alone, at most, as the .pqz file stores them. |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyquant import limits
from pyquant.errors import ConfigError
from pyquant.limits import Limit, parse_size
from pyquant.schemes.ecsq import Ecsq
from pyquant.schemes.settings import make_mode

LARGEST_CODE_BITS = 6.5  # with more, most blocks do not fit into int8 by the model's step
NUMBERS = {
    "step": limits.STEP,
    "target_bpw": limits.BITS,
    "code_bits": Limit(0, LARGEST_CODE_BITS, whole=False, above_low=True),
}
KEYS = ("step", "target_bpw", "target_size", "like", "code_bits")


@dataclass(frozen=True)
class Target:
    """One of the keys above, with its value.

    Attributes
    ----------
    key : str
    value : float, int or str
        For `target_size` a number of bytes, for `like` the type's name.
    """

    key: str
    value: Any

    @property
    def searched(self) -> bool:
        """Say whether the step is yet to be found."""
        return self.key != "step"

    def __str__(self) -> str:
        return {
            "step": "step {:g}",
            "target_bpw": "{:g} bits per weight",
            "target_size": "{:,} bytes",
            "like": "as good as {}",
            "code_bits": "{:g} bits per quantized weight",
        }[self.key].format(self.value)


def read_target(
    settings: Mapping[str, Any], *, prefix: str = "", mode: str | None = None, has_text: bool = True
) -> Target | None:
    """Read what a step is to reach.

    Parameters
    ----------
    settings
        Values of the keys that may be given here; None: not given. `target_size` is a number of bytes or a
        text such as "3.5GB".
    prefix
        What stands before a key where it was given: "--" on the command line, or a quantizer's place.
    mode
        The mode's name, if one is given.
    has_text
        Whether there is a text to measure a KLD on.

    Returns
    -------
    Target or None
        None where nothing is given.

    Raises
    ------
    ConfigError
        More than one is given, a value makes no sense, or the mode has no step.
    """
    given = [key for key in KEYS if settings.get(key) is not None]
    if not given:
        return None
    if len(given) > 1:
        *names, last = [_shown(prefix, key) for key in settings]
        raise ConfigError(f"give one of {', '.join(names)} and {last}: all but the first find a step")
    (key,) = given
    name = _shown(prefix, key)
    if mode not in (None, Ecsq.name):
        drop = f"; drop --mode {mode} for the best mix of types" if prefix == "--" and key != "step" else ""
        raise ConfigError(f"{name}: is for mode {Ecsq.name}, not for {mode}{drop}")
    value = settings[key]
    if key == "target_size":
        value = parse_size(name, value)
    elif key == "like":
        make_mode({"mode": f"ggml:{value}"}, name)
        if not has_text:
            raise ConfigError(f"{name} needs {prefix}text FILE, on which KLD is measured")
    else:
        _check_number(name, value, NUMBERS[key])
    return Target(key, value)


def _shown(prefix: str, key: str) -> str:
    return prefix + (key.replace("_", "-") if prefix == "--" else key)


def _check_number(name: str, value: Any, limit: Limit) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name}: expected {limit}, got {value!r}")
    limit.check(name, value)
