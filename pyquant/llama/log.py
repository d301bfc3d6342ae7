"""llama.cpp's log as records of `logging`, and its reasons for the exceptions of calls that fail."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

logger = logging.getLogger("pyquant.llama")

# llama.cpp tells how it cleans up after a decoding that was stopped or failed. An exception says the rest.
AFTER_A_FAILURE = "removing memory module entries"
# It counts cells of the cache, which are rounded up. `Model.context` says it.
LONG = "possible training context overflow"


class _Log:
    """llama.cpp's log, line by line, as records of `logging`."""

    # Levels of logging, by ggml_log_level: NONE, DEBUG, INFO, WARN, ERROR.
    LEVELS = (logging.INFO, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
    CONTINUE = 5

    def __init__(self) -> None:
        self._line, self._level = "", logging.INFO
        self._errors: list[str] | None = None
        self._callback: Any = None
        self._warned: set[str] = set()

    def callback(self, llama: ModuleType) -> Any:
        self._callback = llama.llama_log_callback(self._hear)  # kept: C holds no reference to it
        return self._callback

    def _hear(self, level: int, text: bytes, _data: object) -> None:
        if level != self.CONTINUE:
            self._level = self.LEVELS[level]
        *lines, self._line = (self._line + text.decode(errors="replace")).split("\n")
        for line in filter(None, map(str.strip, lines)):
            if self._level == logging.ERROR and self._errors is not None:
                self._errors.append(line.partition(": ")[2] or line)
                logger.debug("%s", line)  # an exception will say it
            else:
                logger.log(self._level_of(line), "%s", line)

    def _level_of(self, line: str) -> int:
        """Warnings count once: the same model is loaded again and again."""
        is_said = AFTER_A_FAILURE in line or LONG in line
        if is_said or (self._level == logging.WARNING and line in self._warned):
            return logging.DEBUG
        if self._level == logging.WARNING:
            self._warned.add(line)
        return self._level

    @contextlib.contextmanager
    def errors(self) -> Iterator[list[str]]:
        """Collect the errors of the calls within, without the functions' names."""
        errors: list[str] = []
        self._errors = errors
        try:
            yield errors
        finally:
            self._errors = None


_log = _Log()
callback = _log.callback
collect_errors = _log.errors


def reason(errors: list[str], otherwise: str) -> str:
    """Return the line that says why: the last, but for the summary that the functions above it add.

    errors: the lines that `collect_errors` collected.
    otherwise: what to say where there are none.
    """
    details = [line for line in errors if not line.startswith("failed to")]
    why = (details or errors or [otherwise])[-1].removeprefix("error loading model: ")
    return re.sub(r"^\w+: ", "", why)  # a function's name
