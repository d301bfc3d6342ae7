"""Modes from TOML files and options, and what is said of a wrong one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import LlamaFileType

from pyquant import _core
from pyquant.errors import ConfigError
from pyquant.schemes import Mode
from pyquant.schemes.q4_0 import q4_0
from pyquant.schemes.settings import make_mode, read_config
from tests.twins import kernels as reference

NAMES = ["q4_0", "q4_0_recentred", "q4_0_multizero", "q8_0", "q8_table"]


def test_the_modes_of_the_thesis_are_there() -> None:
    assert {*NAMES, "ggml:TYPE"} <= set(Mode.registry)


def test_parameters_and_common_keys() -> None:
    mode = make_mode({"mode": "q4_0_multizero", "radius": 2, "pure": True, "tensors": "ffn"})
    assert (mode.radius, mode.pure, mode.tensors) == (2, True, "ffn")
    assert mode.file_type is LlamaFileType.MOSTLY_Q4_0
    assert mode.parameters(None) == {"radius": 2}


@pytest.mark.parametrize(
    ("name", "file_type"),
    [
        ("ggml:Q4_K", LlamaFileType.MOSTLY_Q4_K_M),
        ("ggml:q4_k_s", LlamaFileType.MOSTLY_Q4_K_S),
        ("ggml:IQ4_NL", LlamaFileType.MOSTLY_IQ4_NL),
        ("ggml:Q6_K", LlamaFileType.MOSTLY_Q6_K),
        ("ggml:F16", LlamaFileType.MOSTLY_F16),
        ("ggml:F32", LlamaFileType.ALL_F32),
    ],
)
def test_types_of_ggml(name: str, file_type: LlamaFileType) -> None:
    assert make_mode({"mode": name}).file_type == file_type


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, ["'mode' is missing", *NAMES]),
        ({"mode": 3}, ["'mode' is missing"]),
        ({"mode": "q4_1"}, ["mode: 'q4_1' is not known", *NAMES, "did you mean 'q4_0'?"]),
        ({"mode": "ggml:TYPE"}, ["'ggml:TYPE'"]),
        ({"mode": "ggml:Q4_X"}, ["mode: 'ggml:Q4_X' is no type of GGML", "Q4_K_M", "IQ4_NL"]),
        ({"mode": "ggml:"}, ["is no type of GGML"]),
        ({"mode": "q4_0", "radius": 1}, ["mode q4_0 has no key 'radius'", "known: mode, pure"]),
        ({"mode": "q4_0_multizero", "raduis": 1}, ["no key 'raduis'", "did you mean 'radius'?"]),
        ({"mode": "q4_0_multizero"}, ["q4_0_multizero needs 'radius'", "become 0"]),
        ({"mode": "q4_0_multizero", "radius": 8}, ["radius: ", "less than or equal to 7", "got 8"]),
        ({"mode": "q4_0_multizero", "radius": -1}, ["radius: ", "greater than or equal to 0", "got -1"]),
        ({"mode": "q4_0_multizero", "radius": 1.5}, ["radius: ", "integer", "got 1.5"]),
        ({"mode": "q4_0_multizero", "radius": "many"}, ["radius: ", "integer", "got 'many'"]),
        ({"mode": "q8_table"}, ["q8_table needs 'table'", "basic, balanced, or a TOML file"]),
        ({"mode": "q4_0", "threads": 2}, ["no key 'threads'"]),
        ({"mode": "q4_0", "pure": "perhaps"}, ["pure: ", "got 'perhaps'"]),
    ],
)
def test_an_error_names_the_key_and_the_choices(settings: dict, words: list[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        make_mode(settings, "mine.toml")
    assert str(raised.value).startswith("mine.toml: ")
    for word in words:
        assert word in str(raised.value)


def test_paths_in_a_file_are_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "table.toml").write_text("")
    (tmp_path / "im.gguf").write_text("")
    (tmp_path / "c.toml").write_text('mode = "q8_table"\ntable = "table.toml"\nimatrix = "im.gguf"\n')
    settings = read_config(tmp_path / "c.toml")
    assert settings["table"] == str(tmp_path / "table.toml")
    assert settings["imatrix"] == str(tmp_path / "im.gguf")
    (tmp_path / "c.toml").write_text('mode = "q8_table"\ntable = "basic"\n')
    assert read_config(tmp_path / "c.toml")["table"] == "basic"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such configuration file"),
        (b"mode = ", "not a readable TOML file"),
        (b"\xff\xfe", "not a readable TOML file"),
    ],
)
def test_a_configuration_that_cannot_be_read(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "c.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_config(path)
    with pytest.raises(ConfigError, match=f"^{tmp_path}: Is a directory$"):
        read_config(tmp_path)


def test_a_new_scheme_is_a_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mode, "registry", dict(Mode.registry))

    class EveryOther(Mode):
        name = "every_other"
        file_type = LlamaFileType.MOSTLY_Q4_0

        def scheme(self, q8_0_codes):
            stock = q4_0()
            return replace(stock, name="every_other", fold=stock.fold // 2 * 2)

    scheme = make_mode({"mode": "every_other"}).scheme(lambda: None)
    x = np.linspace(-8, 7, 64, dtype=np.float32)
    blocks = _core.encode(scheme.kernel(), x).reshape(-1, 18)
    assert np.array_equal(blocks, reference.encode(scheme, x))
    assert not (reference.nibbles(blocks) & 1).any()
