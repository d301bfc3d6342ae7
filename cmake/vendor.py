"""Gets llama.cpp: out of llama-cpp-python's sdist, checked by hash, and patched.

Standard library only, but for patch_ng where a patch is applied: neither git nor patch need be
installed, and `git apply` inside an ignored folder of a repository skips patches silently.
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sdist", type=Path, help="a local copy of the sdist, for builds without network")
    parser.add_argument("--patch", type=Path, help="the patch to apply")
    parser.add_argument("--download", type=Path, help="only put the sdist into this folder")
    parser.add_argument("--into", type=Path, help="folder for the extracted source; its path is printed")
    arguments = parser.parse_args()
    if arguments.download:
        print(download(arguments.download))
        return
    sdist = arguments.sdist or download(arguments.into / "sdist")
    verify(sdist)
    print(extract(sdist, arguments.patch, arguments.into).as_posix())


def download(folder: Path) -> Path:
    """The sdist in `folder`, through pip unless it is there already."""
    sdist = folder / SDIST
    if sdist.is_file():
        verify(sdist)
        return sdist
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as requirements:
        requirements.write(f"llama-cpp-python=={VERSION} --hash=sha256:{SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:"]
    command += ["--require-hashes", "--dest", str(folder), "--requirement", requirements.name]
    done = subprocess.run(command, capture_output=True, text=True)
    os.unlink(requirements.name)
    if done.returncode != 0 or not sdist.is_file():
        sys.stderr.write(done.stderr[-2000:])
        sys.exit(
            f"pyquant: pip could not download llama-cpp-python {VERSION}: is there a network? "
            f"Without one, point PYQUANT_LLAMA_SDIST at a copy of {SDIST}."
        )
    verify(sdist)
    return sdist


def verify(sdist: Path) -> None:
    if not sdist.is_file():
        sys.exit(f"pyquant: {sdist}: no such file; it should be a copy of {SDIST}")
    found = hashlib.sha256(sdist.read_bytes()).hexdigest()
    if found != SHA256:
        sys.exit(f"pyquant: {sdist} is not {SDIST}: its SHA-256 is {found}, expected {SHA256}")


def extract(sdist: Path, patch: Path | None, into: Path) -> Path:
    """The source tree, in a folder named after sdist and patch: made once, never patched twice."""
    key = SHA256[:8] + (hashlib.sha256(patch.read_bytes()).hexdigest()[:8] if patch else "")
    tree = into / f"llama.cpp-{key}"
    if tree.is_dir():
        return tree
    partial = into / f"{tree.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        for member in archive:
            if member.name.startswith(SOURCE) and (member.isfile() or member.isdir()):
                member.name = member.name.removeprefix(SOURCE)
                archive.extract(member, partial)
    if patch:
        apply(patch, partial)
    partial.rename(tree)
    return tree


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
