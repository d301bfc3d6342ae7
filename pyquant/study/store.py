"""A results folder: one JSON file for each run, named by what the run was of."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import reprlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyquant.errors import OutputError, StudyError
from pyquant.files.json import read_json
from pyquant.files.output_file import write_bytes
from pyquant.study.items import Items, problem_of, write_items

SCHEMA = "pyquant.run/2"
STUDY_SCHEMA = "pyquant.study/1"
KEY = re.compile(r"[a-z_]+-[0-9a-f]{16}")


@dataclass(frozen=True)
class Run:
    """One thing to measure, and so one file of results."""

    metric: str
    # Everything that the result depends on, as JSON. Files stand there by their hashes, so that their names
    # do not matter.
    inputs: dict[str, Any]
    names: dict[str, str | None] = field(default_factory=dict, compare=False)  # what people call these files

    @property
    def key(self) -> str:
        """The metric's name, a dash, and 16 digits of the hash of the inputs."""
        return f"{self.metric}-{digest(self.inputs)[:16]}"


def digest(content: Any) -> str:
    """Return the SHA-256 of content as canonical JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(record: dict[str, Any]) -> str:
    """Digest of the reproducible part of a run's file: everything but provenance."""
    return digest({key: value for key, value in record.items() if key not in ("digest", "provenance")})


class Store:
    """A results folder, to be read; a context manager where it is written into.

    The folder has runs/KEY.json with results, and runs/KEY.npz with results per item,
    and runs/KEY.jsonl with what a model wrote, for all runs that share it; models/ with
    quantized models and calibration/ with what they are made of, both made again when they are missing;
    study.json, which says what the last `study run` asked for; and report.html, its report.

    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).absolute()
        self.runs = self.folder / "runs"
        self.models = self.folder / "models"
        self.calibration = self.folder / "calibration"
        self.progress = self.folder / ".progress"
        self._lock = -1
        self._is_new = False

    def path(self, key: str) -> Path:
        """Return the file of a run.

        Raises StudyError: the key is none: what a file says never leads out of the folder.
        """
        if not isinstance(key, str) or not KEY.fullmatch(key):
            raise StudyError(f"{self.folder}: {reprlib.repr(key)} is not the name of a run")
        return self.runs / f"{key}.json"

    def items_path(self, record: dict[str, Any]) -> Path | None:
        """Return the file with a run's results per item, or None where it has none."""
        return self.path(record["key"]).with_suffix(".npz") if "items" in record else None

    def samples_path(self, key: str) -> Path:
        """Return a file with finished samples, a JSON object in each line; the key is of their inputs."""
        return self.path(key).with_suffix(".jsonl")

    def has(self, key: str) -> bool:
        """Return whether a run has a result."""
        return self.path(key).is_file()

    def finished(self) -> list[str]:
        """List the keys of all finished runs. Raises StudyError: there is no study in the folder."""
        self.study()
        return sorted(path.stem for path in self.runs.glob("*.json"))

    def read(self, key: str) -> dict[str, Any]:
        """Read a run's file. Raises StudyError: the file is missing, broken, or of another version."""
        path = self.path(key)
        record = _read_json(path, SCHEMA)
        if not {"key", "metric", "inputs", "result", "digest", "provenance"} <= record.keys():
            raise StudyError(f"{path}: incomplete; remove it, and `pyquant study run` makes it again")
        if record["key"] != key:
            raise StudyError(f"{path}: its name is not that of its inputs")
        return record

    def problem(self, key: str) -> str | None:
        """Say what is wrong with a run's files, or None."""
        try:
            record = self.read(key)
        except StudyError as error:
            return str(error)
        path = self.path(key)
        if Run(record["metric"], record["inputs"]).key != key:
            return f"{path}: its name is not that of its inputs"
        if record["digest"] != digest_of(record):
            return f"{path}: changed since it was written; remove it, and `pyquant study run` makes it again"
        items = self.items_path(record)
        return problem_of(items, record["items"]) if items else None

    def study(self) -> dict[str, Any]:
        """Read what the last `study run` asked for.

        Raises StudyError: there is no study in the folder, or one of another version.
        """
        path = self.folder / "study.json"
        if not path.is_file():
            raise StudyError(f"{self.folder}: no study in this folder (it has no study.json)")
        return _read_json(path, STUDY_SCHEMA)

    def write(
        self, run: Run, result: dict[str, Any], provenance: dict[str, Any], items: Items | None = None
    ) -> None:
        """Write a run's file, complete or not at all; its items first, as it names them by their hash.

        Raises OutputError: a file cannot be written.
        """
        record = {"schema": SCHEMA, "key": run.key, "metric": run.metric, "inputs": run.inputs}
        record["result"] = result
        if items is not None:
            record["items"] = write_items(self.runs / f"{run.key}.npz", items)
        record["digest"] = digest_of(record)
        record["provenance"] = provenance
        self._write(self.path(run.key), record)

    def write_study(self, study: dict[str, Any]) -> None:
        """Write what is asked for. Raises OutputError."""
        self._write(self.folder / "study.json", {"schema": STUDY_SCHEMA, **study})

    def _write(self, path: Path, content: dict[str, Any]) -> None:
        text = json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
        # A command may name a file that is not UTF-8: Python's escapes are JSON's too.
        write_bytes(path, text.encode(errors="backslashreplace"), sources=[], force=True)

    def __enter__(self) -> Store:
        """Take the folder for this process, and make it where it is missing.

        Raises StudyError: another process has the folder, or it holds other things, or another version's
        results. OutputError: the folder cannot be made.
        """
        self._is_new = not self.folder.exists()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise OutputError(f"{self.folder}: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(self._lock, 200).decode(errors="replace").strip()
            os.close(self._lock)
            raise StudyError(f"{self.folder}: another study is at work in this folder ({owner})") from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"process {os.getpid()} on {os.uname().nodename}\n".encode(), 0)
        try:
            self._check()
            for folder in (self.runs, self.models, self.calibration, self.progress):
                folder.mkdir(exist_ok=True)
        except OSError as error:
            os.close(self._lock)
            raise OutputError(f"{error.filename}: {error.strerror}") from None
        except StudyError:
            os.close(self._lock)
            raise
        return self

    def _check(self) -> None:
        ours = {"runs", "models", "calibration", "report.html", "study.json", "hashes.json"}
        if (self.folder / "study.json").exists():
            self.study()
            return
        names = [path.name for path in self.folder.iterdir()]
        strange = [name for name in names if name not in ours and name[0] != "."]
        if strange:
            raise StudyError(
                f"{self.folder}: not a results folder: {min(strange)!r} is in it; name a new or empty one"
            )

    def __exit__(self, *raised: object) -> None:
        shutil.rmtree(self.progress, ignore_errors=True)
        refused = self._is_new and not (self.folder / "study.json").exists()  # before anything was done
        if refused and not any(self.runs.iterdir()):
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)
        self._lock = -1

    def leftovers(self) -> Iterator[Path]:
        """List what a killed process left half-written."""
        for folder in (self.folder, self.runs, self.models, self.calibration):
            yield from folder.glob(".*.partial")


def _read_json(path: Path, *schemas: str) -> dict[str, Any]:
    try:
        content = read_json(path)
        written_as = content["schema"]
        digest(content)  # numbers that are none are nothing that was written
    except FileNotFoundError:
        raise StudyError(f"{path}: no such run; `pyquant study ls` lists them") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise StudyError(f"{path}: broken; remove it, and `pyquant study run` makes it again") from None
    if written_as not in schemas:
        raise StudyError(
            f"{path}: written by another version of pyquant, as {written_as!r}; this one reads {schemas[0]}. "
            f"Nothing was changed; name another folder, or use that version"
        )
    return content
