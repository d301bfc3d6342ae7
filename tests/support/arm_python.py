"""`make arm`: a Python for 64-bit ARM out of Debian's packages, which qemu-user runs.

    python -m tests.support.arm_python FOLDER

tests/test_wheel_arm.py tries a wheel with it. apt fetches the packages into FOLDER, as any user, and nothing
is installed: its lists, its cache and its list of what is installed (nothing) are in there.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support import ROOT

FOLDER = ROOT / "build" / "arm"
PACKAGES = ("python3-minimal", "libpython3-stdlib", "libstdc++6")


def python(folder: Path = FOLDER) -> Path | None:
    """Find the Python in a folder that `fetch` filled."""
    return next((folder / "root/usr/bin").glob("python3.[0-9]*"), None)


def fetch(folder: Path) -> None:
    """Unpack the packages, and all that they depend on, below `root` in a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("state/lists/partial", "cache/archives/partial", "root"):
        (folder / name).mkdir(parents=True)
    (folder / "state/status").touch()
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",  # root's apt would become a user who may not write here
        "Dir::Cache": folder.resolve() / "cache",
        "Dir::State": folder.resolve() / "state",
        "Dir::State::status": folder.resolve() / "state/status",
    }
    options = [f"--option={name}={value}" for name, value in settings.items()]
    subprocess.run(["apt-get", *options, "--quiet", "update"], check=True)
    subprocess.run(
        ["apt-get", *options, "--quiet", "--yes", "--download-only", "install", *PACKAGES], check=True
    )
    for package in (folder / "cache/archives").glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", package, folder / "root"], check=True)
    for name in ("state", "cache"):
        shutil.rmtree(folder / name)


if __name__ == "__main__":
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        sys.exit("pyquant: apt-get and dpkg-deb are needed: Debian has them")
    fetch(Path(sys.argv[1]))
