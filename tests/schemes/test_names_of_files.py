"""Names in configurations that no file can have."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyquant.calibration import Calibration
from pyquant.errors import PyquantError
from pyquant.files.text import read_text
from pyquant.generation.structured.outside import load_task_file
from pyquant.schemes.outside import load_modes
from pyquant.schemes.settings import make_mode, read_config
from pyquant.study.config import read_study

LONG, ZERO = "x" * 5000, "a\\u0000b"


@pytest.mark.parametrize("name", [LONG, ZERO])
@pytest.mark.parametrize("key", ["hessian", "sensitivity", "table", "imatrix"])
def test_in_modes_and_studies(tmp_path: Path, key: str, name: str) -> None:
    mode = {
        "table": "q8_table",
        "imatrix": "ggml:Q4_0",
        "hessian": "ggml:Q4_0",
        "sensitivity": "ecsq",
    }[key]
    config, study = tmp_path / "mode.toml", tmp_path / "study.toml"
    config.write_text(f'mode = "{mode}"\n{key} = "{name}"\n')
    study.write_text(f'[[quantizer]]\nmode = "{mode}"\n{key} = "{name}"\n')
    for use in (
        lambda: make_mode(read_config(config)),
        lambda: read_study(study, models=[tmp_path / "m.gguf"], texts=[tmp_path / "t.txt"]),
    ):
        try:
            use()
        except PyquantError as error:  # some look for the file only when they open it
            message = str(error)
        else:
            message = "no error"
        assert "\n" not in message


@pytest.mark.parametrize("name", [LONG, "a\0b"])
def test_where_they_are_opened(name: str) -> None:
    for use in (load_modes, load_task_file, read_text, Calibration.read):
        with pytest.raises(PyquantError):
            use(Path(name))
