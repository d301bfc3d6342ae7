"""The source trees of other projects that the extension was built from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support import ROOT

PATCH = ROOT / "csrc" / "ggml" / "llama.cpp.patch"


def vendored(library: str, *options: str) -> Path:
    """Find the tree of a library; a build may have several, patched or not."""
    command = [sys.executable, ROOT / "cmake" / "vendor.py", library, *options]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


def patched_llama() -> Path:
    """Find the tree of llama.cpp with pyquant's patch."""
    return vendored("llama", f"--patch={PATCH}")


def built(library: str) -> Path:
    """Find a static library that the extension was linked with, of the last build where there are several."""
    paths = ROOT.glob(f"build/cp*/llama.cpp/**/lib{library}.a")
    return max(paths, key=lambda path: path.stat().st_mtime)


def llama_files(pattern: str) -> list[Path]:
    """Find files of llama.cpp's tree that no patch changes, sorted; none where nothing was built here."""
    trees = sorted(ROOT.glob("build/vendor/llama.cpp-*"))
    return sorted(trees[0].glob(pattern)) if trees else []
