"""The types that stock llama.cpp's quantizer plans: its dry run, in a process that has the stock library."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

LINE = re.compile(
    r"\] (?P<name>\S+) +- \[.*?\], type = +(?P<type>\w+), "
    r"size = +[\d.]+ MiB(?: -> +[\d.]+ MiB \((?P<new>\w+)\))?"
)


@dataclass(frozen=True)
class Planned:
    """What became of a dry run: the types by tensor, in upper case, or why there are none."""

    types: dict[str, str]
    error: str


class StockPlanner:
    """Runs llama_model_quantize of the stock library, again and again in one process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def plan(self, path: Path, file_type: int, *, pure: bool = False, imatrix: bool = False) -> Planned:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.stock_types"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=os.environ | {"LLAMA_CPP_LIB_PATH": str(self._folder), "GGML_NO_BACKTRACE": "1"},
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(path), file_type, pure, imatrix]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:  # an assertion ended it
            self.close()
            return Planned({}, "aborted")
        return Planned(*json.loads(answer))

    def close(self) -> None:
        if self._process is not None:
            with self._process:
                assert self._process.stdin
                self._process.stdin.close()
            self._process = None

    def __enter__(self) -> StockPlanner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def main() -> None:
    """Answer requests, a line each, until there are no more."""
    import ctypes

    import llama_cpp.llama_cpp as llama

    said: list[str] = []

    @llama.llama_log_callback
    def hear(level: int, text: bytes, data: Any) -> None:
        said.append(text.decode(errors="replace"))

    llama.llama_log_set(hear, None)
    no_entries = (llama.llama_model_imatrix_data * 1)()
    for line in sys.stdin:
        path, file_type, pure, imatrix = json.loads(line)
        said.clear()
        parameters = llama.llama_model_quantize_default_params()
        parameters.ftype, parameters.pure, parameters.dry_run, parameters.nthread = file_type, pure, True, 1
        if imatrix:
            parameters.imatrix = no_entries
        status = llama.llama_model_quantize(path.encode(), b"", ctypes.byref(parameters))
        text = "".join(said)
        types = {found["name"]: (found["new"] or found["type"]).upper() for found in LINE.finditer(text)}
        reason = text.rpartition("failed to quantize: ")[2].strip() if status else ""
        print(json.dumps([types if not status else {}, reason]), flush=True)


if __name__ == "__main__":
    main()
