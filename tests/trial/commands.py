"""Every command that writes something, and what it writes when nothing disturbs it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.command import ENVIRONMENT
from tests.trial.case import Failed
from tests.trial.samples import Samples

RUNS = ["--text", "text.txt", "--ctx", "64", "--chunks", "8"]
CALIBRATED = ["--mode", "ecsq", "--hessian", "stats.gguf"]
PROPAGATED = ["--hessian", "stats.gguf", "--error-propagation", "12"]
EQUALIZE = ["equalize", "model.gguf", "--hessian", "stats.gguf"]
STUDY = ["--model", "model.gguf", "--text", "text.txt", "--workers", "1", "--results", "OUT/results"]
# The words of each command, by a name, in the folder of samples. OUT is the folder that it writes into.
COMMANDS = {
    "quantize": ["quantize", "model.gguf", "OUT/out.gguf", "--mode", "ggml:Q4_K"],
    "quantize in order": ["quantize", "model.gguf", "OUT/out.gguf", "--mode", "q4_0", *PROPAGATED],
    "quantize pqz": ["quantize", "model.gguf", "OUT/out.pqz", *CALIBRATED, "--step", "0.05"],
    "quantize size": ["quantize", "model.gguf", "OUT/out.pqz", *CALIBRATED, "--target-bpw", "6.5"],
    "pack": ["pack", "quantized.gguf", "OUT/out.pqz"],
    "unpack": ["unpack", "quantized.pqz", "OUT/out.gguf"],
    "calibrate": ["calibrate", "model.gguf", *RUNS, "-o", "OUT/stats", "--imatrix", "OUT/imatrix"],
    "calibrate spooled": ["calibrate", "model.gguf", *RUNS, "-o", "OUT/stats", "--memory", "300kB"],
    "equalize": [*EQUALIZE, "OUT/out.gguf", "--hessian-out", "OUT/stats"],
    "quantize equalized": [
        "quantize",
        "model.gguf",
        "OUT/out.gguf",
        *CALIBRATED,
        "--step",
        "0.05",
        "--equalize",
    ],
    "sensitivity": ["sensitivity", "model.gguf", "--hessian", "stats.gguf", *RUNS, "-o", "OUT/out.toml"],
    "tables build": ["tables", "build", "model.gguf", "-o", "OUT/out.toml"],
    "tables learn": ["tables", "learn", "model.gguf", "-o", "OUT/out.toml"],
    "study": ["study", "run", "small.toml", *STUDY],
    "study export": ["study", "export", "results", "OUT/out.csv"],
}
TIMED = ("provenance", "report.html", "study.json", ".lock", "hashes.json")  # what differs from run to run


@dataclass(frozen=True)
class Command:
    """A command, and what it wrote: digests by names of files. seconds: that it took."""

    name: str
    samples: Samples
    expected: dict[str, str]
    seconds: float

    def start(self, out: Path, *more: str, **options: object) -> subprocess.Popen[str]:
        """Starts it. out: the folder that it writes into. options: of Popen."""
        environment = {**ENVIRONMENT, **options.pop("environment", {})}  # type: ignore[dict-item]
        words = [word.replace("OUT", str(out)) for word in COMMANDS[self.name]]
        return subprocess.Popen(
            [sys.executable, "-m", "pyquant", *words, *more],
            cwd=self.samples.folder,
            env=environment,
            text=True,
            errors="replace",
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},  # type: ignore[call-overload]
        )

    @property
    def forced(self) -> list[str]:
        """Options that let it replace what it wrote; a study goes on by itself."""
        return [] if self.name == "study" else ["--force"]

    def finish(self, out: Path, disturbed: str) -> None:
        """Runs it again, undisturbed, over whatever is there; it has to write what it always writes."""
        process = self.start(out, *self.forced)
        _, said = process.communicate(timeout=300)
        if process.returncode:
            raise Failed(f"{self.name}, again after {disturbed}: status {process.returncode}: {said[-300:]}")
        if (written := digests(out)) != self.expected:
            raise Failed(f"{self.name}, again after {disturbed}: {differences(self.expected, written)}")

    def check_outputs(self, out: Path, disturbed: str) -> None:
        """Check that what has its name is whole. Of a study all that is not hidden has to be."""
        for name, digest in digests(out).items():
            hidden = any(part.startswith(".") for part in Path(name).parts)
            if not hidden and self.expected.get(name) != digest:
                if self.name == "study" and "/models/" in name:
                    continue  # it is removed at the end
                raise Failed(f"{self.name}, {disturbed}: {name} is not what it should be")


def digests(folder: Path) -> dict[str, str]:
    """Hashes of all files below a folder that are the same each time."""
    written = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not name.endswith(TIMED):
            written[name] = hashlib.sha256(_content(path)).hexdigest()
    return written


def _content(path: Path) -> bytes:
    data = path.read_bytes()
    if "runs" in path.parts and path.suffix == ".json":  # times and dates are in the provenance
        return data.partition(b'"provenance"')[0]
    return data


def differences(expected: dict[str, str], written: dict[str, str]) -> str:
    """Names that are missing, left over, or have other content."""
    names = sorted(name for name in {*expected, *written} if expected.get(name) != written.get(name))
    return f"differs: {', '.join(names)}"


def check_said(said: str, status: int, what: str) -> None:
    """Check that what a command said has no traceback, and that no signal ended it."""
    if "Traceback (most recent call last)" in said or "Fatal Python error" in said:
        raise Failed(f"{what}: traceback: {' '.join(said.split())[-300:]}")
    if status < 0:
        raise Failed(f"{what}: signal {-status}")


def measured(name: str, samples: Samples, folder: Path) -> Command:
    """Runs a command undisturbed, twice, as what differs would be no loss."""
    outputs = []
    for i in range(2):
        out = folder / f"{name} {i}"
        out.mkdir()
        begin = time.monotonic()
        process = Command(name, samples, {}, 0).start(out)
        _, said = process.communicate(timeout=300)
        if process.returncode:
            raise RuntimeError(f"{name}: {said}")
        outputs.append(digests(out))
    if outputs[0] != outputs[1]:
        raise RuntimeError(f"{name}: {differences(*outputs)}")
    return Command(name, samples, outputs[0], time.monotonic() - begin)


def mounted(folder: Path, n_kilobytes: int) -> bool:
    """Mounts a file system of this size, if this process may."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={n_kilobytes}k", "tmpfs", str(folder)]
    return os.geteuid() == 0 and not subprocess.run(command, capture_output=True, check=False).returncode
