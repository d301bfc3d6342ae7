"""Modes from files and from installed packages, and what is said where one cannot be had."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pyquant.errors import ConfigError, ModelFileError
from pyquant.schemes import Mode
from pyquant.schemes.asked import parameters_of, scheme_of
from pyquant.schemes.outside import load_modes
from pyquant.schemes.settings import make_mode
from tests.support.command import ENVIRONMENT, run
from tests.support.outside_scheme import scheme

MADE = """
from dataclasses import replace

def made(**changed):
    return replace(q4_0_multizero(0), **changed)
"""


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mode, "registry", dict(Mode.registry))


def write(path: Path, name: str = "mine") -> Path:
    path.write_text(scheme(name))
    return path


def test_a_file_gives_its_modes(tmp_path: Path) -> None:
    (mode,) = load_modes(write(tmp_path / "one.py", "first_of_mine"))
    assert mode.name == "first_of_mine"
    assert load_modes(tmp_path / ".." / tmp_path.name / "one.py") == [mode]
    made = make_mode({"mode": "first_of_mine", "bound": 2})
    assert pickle.loads(pickle.dumps(made)) == made
    with pytest.raises(ConfigError, match="needs 'bound': codes up to this become 0"):
        make_mode({"mode": "first_of_mine"})


def test_another_process_loads_the_file_itself(tmp_path: Path) -> None:
    load_modes(write(tmp_path / "one.py", "of_another_process"))
    made = pickle.dumps(make_mode({"mode": "of_another_process", "bound": 2}))
    (tmp_path / "mode.pickle").write_bytes(made)
    script = f"import pickle; print(pickle.load(open({str(tmp_path / 'mode.pickle')!r}, 'rb')).bound)"
    told = run(script=script)
    assert told.stdout == "2\n", told.stderr


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no such file; a scheme is a Python file"),
        ("x = 1\n", "defines no mode: a subclass of pyquant.schemes.Mode"),
        ("x = 1\n\nx = (\n", "line 3: SyntaxError: '.' was never closed"),
        ("x = 1\nx.y\n", "line 2: AttributeError: 'int' object has no attribute 'y'"),
        ("def f():\n    raise OSError('no')\n\nf()\n", "line 2: OSError: no"),
        ("import no_such_module\n", "line 1: ModuleNotFoundError: No module named 'no_such_module'"),
        (scheme("q8_0"), r"mode 'q8_0' is taken: pyquant\.schemes\.q8_0 defines it"),
        ("raise SystemExit(0)\n", "line 1: SystemExit: 0"),
        (b"\xff\xfe\n", "SyntaxError"),
        (scheme("mine").replace("file_type", "type_of_file"), "mode 'mine': needs `file_type`, such as"),
        (scheme("mine").replace("LlamaFileType.MOSTLY_Q4_0", "'Q4_0'"), "mode 'mine': needs `file_type`"),
    ],
)
def test_a_file_that_gives_none(tmp_path: Path, content, says: str) -> None:
    path = tmp_path / "bad.py"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = dict(Mode.registry)
    with pytest.raises(ConfigError, match=says) as raised:
        load_modes(path)
    assert str(raised.value).startswith(str(path))
    assert Mode.registry == before


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("1 / 0", "line 18: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "line 18: SystemExit: 3"),
        ("q4_0_multizero(2)", "mode 'mine': `scheme` returned None, which is no Scheme"),
        ("return made(values=made().values * 1000)", "OverflowError"),
        ("return made(values=made().values / 2)", r"values: \(16,\) float64; \(n_codes,\) int8 is"),
        ("return made(fold=made().fold[:9])", r"fold: \(9,\) uint8; \(256,\) uint8 is expected"),
        ("return made(fold=made().fold + 200)", "fold: code 215 has none of 16 values"),
        ("return made(values=[1, 2])", r"values: \(2,\) int64; \(n_codes,\) int8 is expected"),
        ("return made(grid='q5_0')", r"grid: 'q5_0', which is none of \['q4_0', 'q8_0'\]"),
    ],
)
def test_what_a_scheme_does_wrong_is_said_with_its_file(tmp_path: Path, body: str, says: str) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(scheme("mine").replace("return q4_0_multizero(self.bound)", body) + MADE)
    load_modes(path)
    with pytest.raises(ConfigError, match=says) as raised:
        scheme_of(make_mode({"mode": "mine", "bound": 2}), lambda: np.zeros(256, np.uint64))
    assert str(raised.value).startswith(str(path))


def test_a_model_that_a_scheme_cannot_count_is_to_blame_itself(tmp_path: Path) -> None:
    def count() -> NDArray[np.uint64]:
        raise ModelFileError("model.gguf: cut off")

    path = tmp_path / "counts.py"
    path.write_text(scheme("mine").replace("return q4_0_multizero(self.bound)", "q8_0_codes()"))
    load_modes(path)
    with pytest.raises(ModelFileError, match=r"^model\.gguf: cut off$"):
        scheme_of(make_mode({"mode": "mine", "bound": 2}), count)


@pytest.mark.parametrize("listed", ["None", "{'share': 0.5}"])
def test_parameters_are_texts_and_whole_numbers(tmp_path: Path, listed: str) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(f"{scheme('mine')}\n    def parameters(self, scheme):\n        return {listed}\n")
    load_modes(path)
    with pytest.raises(ConfigError, match=f"wrong.py: mode 'mine': `parameters` returned {listed}"):
        parameters_of(make_mode({"mode": "mine", "bound": 2}), None)


def test_a_broken_file_can_be_mended(tmp_path: Path) -> None:
    path = tmp_path / "mended.py"
    path.write_text(scheme("mended") + "\n1 / 0\n")
    with pytest.raises(ConfigError, match="ZeroDivisionError"):
        load_modes(path)
    assert [mode.name for mode in load_modes(write(path, "mended"))] == ["mended"]


def test_two_files_with_one_name(tmp_path: Path) -> None:
    load_modes(write(tmp_path / "one.py", "in_two_files"))
    with pytest.raises(ConfigError, match=r"two\.py: mode 'in_two_files' is taken: .*one\.py defines it"):
        load_modes(write(tmp_path / "two.py", "in_two_files"))


@pytest.fixture
def package(tmp_path: Path) -> dict[str, str]:
    """An environment in which a package with a mode is installed."""
    site = tmp_path / "site"
    information = site / "my_schemes-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: my-schemes\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[pyquant.schemes]\nmine = my_schemes\n")
    write(site / "my_schemes.py", "of_a_package")
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**ENVIRONMENT, "PYTHONPATH": path}


@pytest.mark.ci
def test_an_installed_package_brings_modes(
    small_model: Path, tmp_path: Path, package: dict[str, str]
) -> None:
    output = tmp_path / "out.gguf"
    arguments = ["quantize", small_model, output, "--mode"]
    assert run(*arguments, "of_a_package", "--set", "bound=2", environment=package).returncode == 0
    assert "of_a_package" in run(*arguments, "nothing", environment=package).stderr
    (tmp_path / "site" / "my_schemes.py").write_text("1 / 0\n")
    refused = run(*arguments, "of_a_package", environment=package)
    assert refused.returncode == 2
    assert "installed package my-schemes (my_schemes) cannot be loaded: ZeroDivisionError" in refused.stderr
    # Commands that need no such mode do not notice.
    assert (
        run(
            "quantize", small_model, tmp_path / "other.gguf", "--mode", "q4_0", environment=package
        ).returncode
        == 0
    )


@pytest.mark.ci
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--set", "bound=8"], "bound: input should be less than or equal to 7, got '8'"),
        (
            ["--set", "bound=many"],
            "bound: input should be a valid integer, unable to parse string as an integer",
        ),
        (["--set", "bund=2"], "no key 'bund'; known: mode, pure"),
        (["--set", "bund=2"], "did you mean 'bound'?"),
        (["--set", "bound"], "--set: expected KEY=VALUE, got 'bound'"),
        (["--set", "=2"], "--set: expected KEY=VALUE, got '=2'"),
        (["--set", "bound=1", "--set", "bound=2"], "--set bound: is given twice"),
        (["--set", "bound=1", "--tensors", "ffn", "--set", "tensors=attn"], "--set tensors: is given twice"),
        ([], "needs 'bound': codes up to this become 0"),
    ],
)
def test_a_wrong_setting_is_named(arguments, says: str, small_model: Path, tmp_path: Path) -> None:
    scheme = write(tmp_path / "mine.py")
    refused = run("quantize", small_model, tmp_path / "out.gguf", "--scheme", scheme, *arguments)
    assert refused.returncode == 2
    assert says in refused.stderr
    assert not (tmp_path / "out.gguf").exists()


def test_settings_of_every_type(small_model: Path, tmp_path: Path) -> None:
    outputs = [tmp_path / "option.gguf", tmp_path / "set.gguf", tmp_path / "file.gguf"]
    options = ["--mode", "q4_0_multizero", "--radius", "2", "--pure", "--tensors", "ffn"]
    settings = [
        "--set",
        "mode=q4_0_multizero",
        "--set",
        "radius=2",
        "--set",
        "pure=true",
        "--set",
        "tensors=ffn",
    ]
    own = ["--scheme", write(tmp_path / "mine.py"), "--set", "bound=2", "--pure", "--tensors", "ffn"]
    for output, arguments in zip(outputs, [options, settings, own]):
        made = run("quantize", small_model, output, *arguments)
        assert made.returncode == 0, made.stderr
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    assert outputs[0].read_bytes()[-1000:] == outputs[2].read_bytes()[-1000:]
