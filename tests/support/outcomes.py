"""What becomes of a small model of an architecture: which commands do their work, and what `best` leaves out.

    python -m tests.support.outcomes [NAME ...]

runs them over models of these names, or over all that tests/data/outcomes.json lacks, some seconds each, and
keeps there what comes of it: `make documents` writes docs/families.md from that file.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import ROOT
from tests.support.architectures import CTX, EVERY, write
from tests.support.forked_commands import ForkedCommands
from tests.support.oracle import Oracle

KEPT = ROOT / "tests/data/outcomes.json"
CHUNKS = 48  # that `best` calibrates on

Outcome = dict[str, Any]


def outcome(commands: ForkedCommands, model: Path, folder: Path, text: Path) -> Outcome:
    """Run commands over a model.

    Returns: quantize, calibrate and compare: None, or why they refuse. best: its method, and by stage why it
    is left out.
    """
    quantized, on_text = folder / "q4_0.gguf", ["--text", text, "--ctx", CTX]
    runs: dict[str, list[object]] = {
        "quantize": ["quantize", model, quantized, "Q4_0", "--force"],
        "calibrate": ["calibrate", model, *on_text, "--chunks", 16, "-o", folder / "hessian", "--force"],
        "compare": ["compare", model, quantized, *on_text, "--chunks", 4],
        "best": ["quantize", model, folder / "best.gguf", "IQ4_NL", "--method", "best", "--json", *on_text,
                 "--calibration-chunks", CHUNKS, "--force"],
    }  # fmt: skip
    found: Outcome = {}
    for name, arguments in runs.items():
        done = commands.run(*arguments, "--threads", 1)
        if done.status:
            last = done.stderr.strip().splitlines()[-1]
            assert (done.status, last[:9]) == (1, "pyquant: "), done.stderr[-2000:]
            found[name] = in_general(last.removeprefix("pyquant: "), model)
        elif name == "best":
            said = json.loads(done.stdout)
            left_out = {
                stage["name"]: in_general(stage["why"], model) for stage in said["stages"] if stage["why"]
            }
            left_out |= {
                line.partition(":")[0]: in_general(line.partition("left out: ")[2], model)
                for line in done.stderr.splitlines()
                if ": left out: " in line
            }
            found[name] = {"method": said["method"], "left out": left_out}
        else:
            found[name] = None
    return found


def reasons() -> dict[str, str | None]:
    """Say by name why models are not run; None of those that are."""
    return {name: kept["calibrate"] for name, kept in json.loads(KEPT.read_text()).items()}


def in_general(why: str, model: Path) -> str:
    """Take out of a reason what is of a single model: its path, a tensor, a figure."""
    why = why.replace(f"{model}: ", "")  # which may have blanks
    why = re.sub(r"\S*/\S+\.gguf(: )?", "", why)
    why = re.sub(r"^(configuration: )?\w+: ", "", why)
    why = re.sub(r", and this model is .*", "", why)
    why = re.sub(r"llama\.cpp (cannot run it: |makes no context).*", "llama.cpp cannot run it", why)
    why = re.sub(r"\(a KLD of [^)]*\)", "", why)
    return re.sub(r"\bblk\.\d+\.", "", why).strip()


def text_of(folder: Path) -> Path:
    """Write some 10,000 tokens."""
    letters = np.random.default_rng(5).choice([*"etaoin shrdlu"], 50_000)
    path = folder / "text.txt"
    path.write_text("".join(letters))
    return path


def main(names: list[str]) -> None:
    """Run the models of some names, or all that are not kept yet, and keep what comes of it."""
    kept: dict[str, Outcome] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    with tempfile.TemporaryDirectory() as name:
        folder, oracle = Path(name), Oracle(ROOT / "build/oracle/bin")
        (folder / "models").mkdir()
        text = text_of(folder)
        with ForkedCommands(folder) as commands:
            for model in names or sorted({*EVERY} - kept.keys()):
                kept[model] = outcome(commands, write(oracle, folder / "models", model), folder, text)
                print(model, kept[model], flush=True)
                KEPT.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
