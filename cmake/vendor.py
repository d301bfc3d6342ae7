"""Gets llama.cpp: out of llama-cpp-python's sdist, checked by hash, and patched.

Only patching needs more than the standard library: patch_ng, from PyPI, as neither git nor patch
need be installed, and `git apply` inside an ignored folder of a repository skips patches silently.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "0.3.36"  # pyquant's ctypes structs, patch and policy binding are made for this one
SDIST = f"llama_cpp_python-{VERSION}.tar.gz"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
SOURCE = f"llama_cpp_python-{VERSION}/vendor/llama.cpp/"
BUILD = Path(__file__).resolve().parents[1] / "build"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sdist", type=Path, help="a local copy of the sdist")
    parser.add_argument("--patch", type=Path, help="the patch to apply")
    parser.add_argument("--only-sdist", action="store_true", help="extract nothing")
    arguments = parser.parse_args()
    if arguments.only_sdist:
        print(get_sdist(arguments.sdist))
    else:
        print(get_source(arguments.sdist, arguments.patch).as_posix())


def get_sdist(local: Path | None) -> Path:
    """The verified sdist: `local`, else build/sdist, else $PYQUANT_LLAMA_SDIST, else from pip."""
    if local:
        return verified(local)
    sdist = BUILD / "sdist" / SDIST
    if not sdist.is_file():
        sdist.parent.mkdir(parents=True, exist_ok=True)
        if copy := os.environ.get("PYQUANT_LLAMA_SDIST"):
            shutil.copyfile(verified(Path(copy)), sdist)
        else:
            download(sdist.parent)
    return verified(sdist)


def download(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        requirements = Path(temporary) / "requirements.txt"
        requirements.write_text(f"llama-cpp-python=={VERSION} --hash=sha256:{SHA256}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:"]
        command += ["--require-hashes", f"--dest={folder}", f"--requirement={requirements}"]
        done = subprocess.run(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    if "DO NOT MATCH THE HASHES" in done.stderr:
        sys.exit(f"pyquant: the package index has another {SDIST} than the one pyquant is made for")
    if done.returncode != 0:
        sys.exit(
            f"{done.stderr[-2000:]}\n"
            f"pyquant: pip could not download llama-cpp-python {VERSION}: is there a network? "
            f"Without one, let PYQUANT_LLAMA_SDIST name a copy of {SDIST}."
        )


def verified(sdist: Path) -> Path:
    if not sdist.is_file():
        sys.exit(f"pyquant: {sdist}: no such file; it should be a copy of {SDIST}")
    found = hashlib.sha256(sdist.read_bytes()).hexdigest()
    if found != SHA256:
        sys.exit(
            f"pyquant: {sdist} is damaged or not {SDIST}: remove or replace it "
            f"(its SHA-256 is {found}, not {SHA256})"
        )
    return sdist


def get_source(sdist: Path | None, patch: Path | None) -> Path:
    """The source tree, in a folder named after sdist and patch: made once, never patched twice."""
    key = SHA256[:8] + (hashlib.sha256(patch.read_bytes()).hexdigest()[:8] if patch else "")
    tree = BUILD / "vendor" / f"llama.cpp-{key}"
    if not tree.is_dir():
        partial = tree.with_name(f"{tree.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        extract(get_sdist(sdist), partial)
        if patch:
            apply(patch, partial)
        partial.rename(tree)
    return tree


def extract(sdist: Path, folder: Path) -> None:
    with tarfile.open(sdist) as archive:
        # Python 3.12 and 3.13 warn where no filter is named, and early 3.10 and 3.11 know none.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        for member in archive:
            if member.name.startswith(SOURCE) and (member.isfile() or member.isdir()):
                member.name = member.name.removeprefix(SOURCE)
                archive.extract(member, folder)


def apply(patch: Path, tree: Path) -> None:
    import patch_ng

    changes = patch_ng.fromfile(str(patch))
    if not changes or not changes.apply(strip=1, root=str(tree)):
        sys.exit(f"pyquant: {patch} does not apply to llama.cpp of llama-cpp-python {VERSION}")
    for change in changes.items:  # what must be there is what the patch adds
        text = (tree / change.target.decode().removeprefix("b/")).read_bytes()
        for hunk in change.hunks:
            if not all(line[1:].rstrip() in text for line in hunk.text if line.startswith(b"+")):
                sys.exit(f"pyquant: {patch} was applied only in part")


if __name__ == "__main__":
    main()
