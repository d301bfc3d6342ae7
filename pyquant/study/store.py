"""A results folder: one JSON file per run, named by what the run was of."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyquant.errors import OutputError, StudyError
from pyquant.files.output_file import write_bytes

SCHEMA = "pyquant.run/1"
STUDY_SCHEMA = "pyquant.study/1"
# Of runs, in the order in which they are best made.
PREREQUISITES = ("calibrate", "learn", "sensitivity")
KINDS = (*PREREQUISITES, "codes", "size", "quality", "speed")


@dataclass(frozen=True)
class Run:
    """One thing to measure, and so one file of results.

    kind: one of KINDS. inputs: everything that the result depends on, as JSON;
    files by their hashes, so that their names do not matter. names: what people call these files.
    """

    kind: str
    inputs: dict[str, Any]
    names: dict[str, str | None] = field(default_factory=dict, compare=False)

    @property
    def key(self) -> str:
        """`kind-` and 16 digits of the hash of the inputs."""
        return f"{self.kind}-{digest(self.inputs)[:16]}"


def digest(content: Any) -> str:
    """The SHA-256 of content as canonical JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(record: dict[str, Any]) -> str:
    """Of a run's file: everything in it that another machine, at another time, would write too."""
    return digest({key: record[key] for key in ("schema", "key", "kind", "inputs", "result")})


class Store:
    """A results folder, to be read; a context manager where it is written into.

    runs/KEY.json: results. models/: quantized models, and calibration/: what they are made with, both
    made again when they are missing. study.json: what the last `study run` asked for, and report.html,
    its report.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).absolute()
        self.runs = self.folder / "runs"
        self.models = self.folder / "models"
        self.calibration = self.folder / "calibration"
        self.progress = self.folder / ".progress"
        self._lock = -1

    def path(self, key: str) -> Path:
        return self.runs / f"{key}.json"

    def has(self, key: str) -> bool:
        return self.path(key).is_file()

    def finished(self) -> list[str]:
        """Keys of all finished runs. Raises StudyError if there is no study in the folder."""
        self.study()
        return sorted(path.stem for path in self.runs.glob("*.json"))

    def read(self, key: str) -> dict[str, Any]:
        """A run's file. Raises StudyError if it is missing, broken, or of another version."""
        path = self.path(key)
        record = _read_json(path, SCHEMA)
        if not {"key", "kind", "inputs", "result", "digest", "provenance"} <= record.keys():
            raise StudyError(f"{path}: incomplete; remove it, and `pyquant study run` makes it again")
        return record

    def problem(self, key: str) -> str | None:
        """What is wrong with a run's file, or None."""
        try:
            record = self.read(key)
        except StudyError as error:
            return str(error)
        path = self.path(key)
        if record["key"] != key or Run(record["kind"], record["inputs"]).key != key:
            return f"{path}: its name is not that of its inputs"
        if record["digest"] != digest_of(record):
            return f"{path}: changed since it was written; remove it, and `pyquant study run` makes it again"
        return None

    def study(self) -> dict[str, Any]:
        """What the last `study run` asked for. Raises StudyError."""
        path = self.folder / "study.json"
        if not path.is_file():
            raise StudyError(f"{self.folder}: no study in this folder (it has no study.json)")
        return _read_json(path, STUDY_SCHEMA)

    def write(self, run: Run, result: dict[str, Any], provenance: dict[str, Any]) -> None:
        """A run's file, complete or not at all. Raises OutputError."""
        record = {"schema": SCHEMA, "key": run.key, "kind": run.kind, "inputs": run.inputs, "result": result}
        record["digest"] = digest_of(record)
        record["provenance"] = provenance
        self._write(self.path(run.key), record)

    def write_study(self, study: dict[str, Any]) -> None:
        self._write(self.folder / "study.json", {"schema": STUDY_SCHEMA, **study})

    def _write(self, path: Path, content: dict[str, Any]) -> None:
        text = json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
        write_bytes(path, text.encode(), sources=[], force=True)

    def __enter__(self) -> Store:
        """Takes the folder for this process, and makes it where it is missing.

        Raises StudyError if another process has it, or it holds other things, or another version's.
        """
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
        strange = [one.name for one in self.folder.iterdir() if one.name not in ours and one.name[0] != "."]
        if strange:
            raise StudyError(
                f"{self.folder}: not a results folder: {min(strange)!r} is in it; name a new or empty one"
            )

    def __exit__(self, *raised: object) -> None:
        shutil.rmtree(self.progress, ignore_errors=True)
        os.close(self._lock)
        self._lock = -1

    def leftovers(self) -> Iterator[Path]:
        """What a killed process left half-written."""
        for folder in (self.folder, self.runs, self.models, self.calibration):
            yield from folder.glob(".*.partial")


def _read_json(path: Path, schema: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        written_as = content["schema"]
    except FileNotFoundError:
        raise StudyError(f"{path}: no such run; `pyquant study ls` lists them") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise StudyError(f"{path}: broken; remove it, and `pyquant study run` makes it again") from None
    if written_as != schema:
        raise StudyError(
            f"{path}: written by another version of pyquant, as {written_as}; this one reads {schema}. "
            f"Nothing was changed; name another folder, or use that version"
        )
    return content
