"""The folder beside an output where finished stages are kept until the output is complete."""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from pyquant.errors import OutputError, Tell
from pyquant.files.json import read_json, write_json
from pyquant.files.kept import not_used
from pyquant.files.output_file import output_errors


def stages_folder(output: Path) -> Path:
    """Say where the work of an output is."""
    return output.with_name(f".{output.name}.stages")


class WorkFolder:
    """Files of stages and what is known of them: a killed run goes on from here. A context manager.

    Leaving the context without an error removes the folder; with one, it stays if a stage is finished.

    Parameters
    ----------
    output
        The file that is being made; the folder is `.NAME.stages` beside it.
    made_of
        All that decides the result, as JSON: of another run the folder's content is not used.
    tell
        Told of content that is not used.

    Raises
    ------
    OutputError
        Another process works on the same output, or the folder cannot be made.
    """

    def __init__(self, output: Path, made_of: dict[str, Any], tell: Tell = lambda line: None) -> None:
        self.path = stages_folder(output)
        self._key = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()
        with output_errors(self.path):
            self.path.mkdir(exist_ok=True)
            self._lock: IO[str] = (self.path / ".lock").open("w")
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self._lock.close()
                raise OutputError(f"{output}: another process is writing it") from None
        self._done: dict[str, dict[str, Any]] = {}
        if (known := self._read()) is not None:
            self._done = known
            return
        with output_errors(self.path):
            others = [path for path in self.path.iterdir() if path.name != ".lock"]
            for path in others:
                path.unlink()
        if others:
            tell(not_used(self.path))
        self._write()

    def file(self, stage: str) -> Path:
        """Return where a stage's file is to be; its shards have longer names."""
        return self.path / f"{stage}.gguf"

    def made(self, stage: str) -> list[Path]:
        """Return where the file, or the shards, of a stage that is done are, or were."""
        return [self.path / Path(file).name for file in self._done[stage]["result"]["files"]]

    def checkpoint(self, stage: str) -> Path:
        """Return where finished tensors of a stage's file are listed."""
        return self.path / f"{stage}.tensors"

    def known(self, stage: str) -> dict[str, Any] | None:
        """Return what was noted of a stage; None: it is yet to be done."""
        return self._done.get(stage)

    def note(self, stage: str, known: dict[str, Any]) -> None:
        """Note that a stage is done. Raises OutputError."""
        self._done[stage] = known
        self._write()
        self.checkpoint(stage).unlink(missing_ok=True)

    def _write(self) -> None:
        state = {"digest": self._digest(self._done), "stages": self._done}
        write_json(self.path / "state.json", state, sources=[], force=True)

    def forget(self, stages: Iterable[str]) -> None:
        """Remove what is there of some stages, for them to be done anew. Raises OutputError."""
        for stage in stages:
            self._done.pop(stage, None)
            ends = r"(-\d+-of-\d+)?\.(gguf|gguf\.partial|gguf\.scales\.npz|tensors)"
            its_own = re.compile(rf"\.?{re.escape(stage)}{ends}")
            with output_errors(self.path):
                for path in self.path.iterdir():
                    if its_own.fullmatch(path.name):
                        path.unlink()

    @property
    def has_files(self) -> bool:
        """Say whether there is something to go on from."""
        return bool(self._done) or any(self.path.glob("*.tensors"))

    def _digest(self, stages: Any) -> str:
        """Hash what is noted and the run that it is of: what is damaged is not used either."""
        return hashlib.sha256(json.dumps([self._key, stages], sort_keys=True).encode()).hexdigest()

    def _read(self) -> dict[str, dict[str, Any]] | None:
        """Return what is noted of stages; None: of another run, damaged, or nothing."""
        try:
            state = read_json(self.path / "state.json")
            return dict(state["stages"]) if state["digest"] == self._digest(state["stages"]) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def __enter__(self) -> WorkFolder:
        return self

    def __exit__(self, *raised: object) -> None:
        if raised[0] is None or not self.has_files:
            shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()
