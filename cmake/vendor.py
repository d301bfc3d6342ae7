"""Gets llama.cpp, its ctypes declarations and zstd: out of Python packages' sdists, checked by hash, patched.

pip reaches its index wherever pyquant can be installed at all, which no other host need be. Only
patching needs more than the standard library: patch_ng, from PyPI, as neither git nor patch need be
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
from dataclasses import dataclass, replace
from pathlib import Path

LLAMA_VERSION = "0.3.36"  # pyquant's ctypes structs, patch and policy binding are made for this one
ZSTD_VERSION = "0.25.0"  # of python-zstandard, which has zstd 1.5.7 as one file
BUILD = Path(__file__).resolve().parents[1] / "build"


@dataclass(frozen=True)
class Sdist:
    """A package's source distribution. source: the folder in it that is wanted; files: of it only those."""

    library: str
    package: str
    version: str
    sha256: str
    source: str
    variable: str  # of the environment, naming a local copy
    files: tuple[str, ...] = ("",)  # how their names begin

    @property
    def folder(self) -> str:
        return f"{self.package.replace('-', '_')}-{self.version}"

    @property
    def file(self) -> str:
        return f"{self.folder}.tar.gz"


LLAMA = Sdist(
    library="llama.cpp",
    package="llama-cpp-python",
    version=LLAMA_VERSION,
    sha256="832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
    source="vendor/llama.cpp/",
    variable="PYQUANT_LLAMA_SDIST",
)
SDISTS = {
    "llama": LLAMA,
    "llama_cpp": replace(
        LLAMA, library="llama_cpp", source="", files=("llama_cpp/llama_cpp.py", "LICENSE.md")
    ),
    "zstd": Sdist(
        library="zstd",
        package="zstandard",
        version=ZSTD_VERSION,
        sha256="7713e1179d162cf5c7906da876ec2ccb9c3a9dcbdffef0cc7f70c3667a205f0b",
        source="zstd/",
        variable="PYQUANT_ZSTD_SDIST",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=SDISTS)
    parser.add_argument("--sdist", type=Path, help="a local copy of the sdist")
    parser.add_argument("--patch", type=Path, help="the patch to apply")
    parser.add_argument("--only-sdist", action="store_true", help="extract nothing")
    arguments = parser.parse_args()
    sdist = SDISTS[arguments.library]
    if arguments.only_sdist:
        print(get_sdist(sdist, arguments.sdist))
    else:
        print(get_source(sdist, arguments.sdist, arguments.patch).as_posix())


def get_sdist(sdist: Sdist, local: Path | None) -> Path:
    """The verified sdist: `local`, else build/sdist, else the one its variable names, else from pip."""
    if local:
        return verified(sdist, local)
    path = BUILD / "sdist" / sdist.file
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        if copy := os.environ.get(sdist.variable):
            shutil.copyfile(verified(sdist, Path(copy)), path)
        else:
            download(sdist, path.parent)
    return verified(sdist, path)


def download(sdist: Sdist, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        requirements = Path(temporary) / "requirements.txt"
        requirements.write_text(f"{sdist.package}=={sdist.version} --hash=sha256:{sdist.sha256}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:"]
        command += ["--require-hashes", f"--dest={folder}", f"--requirement={requirements}"]
        done = subprocess.run(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    if "DO NOT MATCH THE HASHES" in done.stderr:
        sys.exit(f"pyquant: the package index has another {sdist.file} than the one pyquant is made for")
    if done.returncode != 0:
        sys.exit(
            f"{done.stderr[-2000:]}\n"
            f"pyquant: pip could not download {sdist.package} {sdist.version}: is there a network? "
            f"Without one, let {sdist.variable} name a copy of {sdist.file}."
        )


def verified(sdist: Sdist, path: Path) -> Path:
    if not path.is_file():
        sys.exit(f"pyquant: {path}: no such file; it should be a copy of {sdist.file}")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sdist.sha256:
        sys.exit(
            f"pyquant: {path} is damaged or not {sdist.file}: remove or replace it "
            f"(its SHA-256 is {found}, not {sdist.sha256})"
        )
    return path


def get_source(sdist: Sdist, local: Path | None, patch: Path | None) -> Path:
    """The source tree, in a folder named after sdist and patch: made once, never patched twice."""
    key = sdist.sha256[:8] + (hashlib.sha256(patch.read_bytes()).hexdigest()[:8] if patch else "")
    tree = BUILD / "vendor" / f"{sdist.library}-{key}"
    if not tree.is_dir():
        partial = tree.with_name(f"{tree.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        extract(sdist, get_sdist(sdist, local), partial)
        if patch:
            apply(sdist, patch, partial)
        partial.rename(tree)
    return tree


def extract(sdist: Sdist, archive_path: Path, folder: Path) -> None:
    source = f"{sdist.folder}/{sdist.source}"
    wanted = tuple(source + name for name in sdist.files)
    with tarfile.open(archive_path) as archive:
        # Python 3.12 and 3.13 warn where no filter is named, and early 3.10 and 3.11 know none.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        for member in archive:
            if member.name.startswith(wanted) and (member.isfile() or member.isdir()):
                member.name = member.name.removeprefix(source)
                archive.extract(member, folder)


def apply(sdist: Sdist, patch: Path, tree: Path) -> None:
    import patch_ng

    changes = patch_ng.fromfile(str(patch))
    if not changes or not changes.apply(strip=1, root=str(tree)):
        sys.exit(f"pyquant: {patch} does not apply to {sdist.library} of {sdist.package} {sdist.version}")
    for change in changes.items:  # what must be there is what the patch adds
        text = (tree / change.target.decode().removeprefix("b/")).read_bytes()
        for hunk in change.hunks:
            if not all(line[1:].rstrip() in text for line in hunk.text if line.startswith(b"+")):
                sys.exit(f"pyquant: {patch} was applied only in part")


if __name__ == "__main__":
    main()
