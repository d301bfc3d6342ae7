"""Check what `import pyquant` offers: names, a version, types; and that results become JSON."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import pyquant


def test_every_public_name_is_there() -> None:
    for name in pyquant.__all__:
        assert getattr(pyquant, name) is not None
    assert set(dir(pyquant)) == set(pyquant.__all__)
    with pytest.raises(AttributeError, match="no attribute 'quantise_model'"):
        pyquant.quantise_model  # noqa: B018


def test_the_version_is_that_of_the_package() -> None:
    assert pyquant.__version__ == importlib.metadata.version("pyquant")


def test_importing_loads_nothing() -> None:
    code = (
        "import sys, pyquant; pyquant.__version__\n"
        "sys.exit(any(name in sys.modules for name in ('numpy', 'gguf', 'pydantic', 'pyquant._core')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_type_checkers_may_read_it() -> None:
    assert Path(pyquant.__file__).with_name("py.typed").is_file()
