"""Ask a mode for its scheme and parameters; what a mode in a user's file does wrong is said with the file."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from pyquant.errors import ConfigError
from pyquant.files.python_file import errors_of
from pyquant.schemes.base import Scheme
from pyquant.schemes.mode import CountCodes, Mode


def scheme_of(mode: Mode, q8_0_codes: CountCodes) -> Scheme | None:
    """Make a mode's scheme, as `Mode.scheme` does. Raises ConfigError: its file fails, or makes none."""
    with _errors(mode):
        made = mode.scheme(q8_0_codes)
        by_ggml = made is None and (mode.source is None or type(mode).types is not Mode.types)
        if not (by_ggml or isinstance(made, Scheme)):
            raise ConfigError(f"mode {mode.name!r}: `scheme` returned {made!r}, which is no Scheme")
    return made


def parameters_of(mode: Mode, scheme: Scheme | None) -> dict[str, str | int]:
    """List a mode's parameters. Raises ConfigError: its file fails, or lists what metadata cannot hold."""
    with _errors(mode):
        listed = mode.parameters(scheme)
        is_dict = isinstance(listed, dict)
        if not is_dict or not all(isinstance(value, (str, int)) for value in listed.values()):
            raise ConfigError(
                f"mode {mode.name!r}: `parameters` returned {listed!r}, no dict of texts and whole numbers"
            )
    return listed


def _errors(mode: Mode) -> AbstractContextManager[None]:
    return errors_of(mode.source) if mode.source else nullcontext()
