"""llama.cpp through llama_cpp: the right library, its log, and its refusals."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyquant.errors import ConfigError, ModelFileError, RuntimeLibraryError
from pyquant.llama import log as llama_log
from pyquant.llama.library import bindings
from pyquant.llama.model import Model as LlamaModel
from pyquant.llama.model import warn_of_length
from pyquant.rounding.inside_llama import quantize_patched
from pyquant.schemes.settings import make_mode
from tests.support.families import FAMILIES
from tests.support.models import Model


def test_llama_cpp_is_that_of_the_extension_whatever_is_installed(tmp_path: Path) -> None:
    (tmp_path / "llama_cpp").mkdir()
    (tmp_path / "llama_cpp" / "__init__.py").write_text("raise ImportError('not to be touched')")
    (tmp_path / "libllama.so").write_text("not a library")
    program = (
        "import sys; from pyquant import _core; from pyquant.llama.library import bindings\n"
        "assert bindings()._lib._name == _core.__file__; assert 'llama_cpp' not in sys.modules"
    )
    environment = {"PYTHONPATH": str(tmp_path), "LLAMA_CPP_LIB_PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | environment, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_declarations_that_do_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyquant.llama._llama_cpp", None)
    with pytest.raises(RuntimeLibraryError, match=r"llama\.cpp does not load: .*; install pyquant again"):
        bindings.__wrapped__()


def test_the_log_goes_to_logging_and_nothing_is_printed(small_model: Path) -> None:
    program = (
        "import logging, sys\n"
        "from pyquant.llama.model import Model\n"
        "if len(sys.argv) > 2: logging.basicConfig(level=logging.INFO, format='%(name)s %(levelname)s')\n"
        "with Model(sys.argv[1]) as model, model.context(n_ctx=256): pass\n"
    )
    command = [sys.executable, "-c", program, str(small_model)]
    quiet = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (quiet.stdout, quiet.stderr) == ("", "")
    loud = subprocess.run([*command, "log"], capture_output=True, text=True, check=True)
    assert loud.stdout == ""
    assert set(loud.stderr.splitlines()) == {"pyquant.llama INFO"}


def test_nothing_is_left_open_at_the_end() -> None:
    program = "from pyquant.llama.library import bindings; bindings()"
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


def test_contexts_beyond_training_are_warned_of(small_model: Path, caplog: pytest.LogCaptureFixture) -> None:
    warn_of_length.cache_clear()
    with caplog.at_level(logging.WARNING), LlamaModel(small_model) as model:
        assert model.n_ctx_train == 256
        with model.context(n_ctx=256, n_seq=2):
            assert not caplog.records
        for _ in range(2):
            with model.context(n_ctx=257):
                (record,) = caplog.records
    assert record.getMessage().startswith(f"{small_model}: was trained with contexts of 256 tokens; behind")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"not a model", "not a readable GGUF file: "),
        (lambda data: data[:-4096], "cut off: tensor 'blk.0.ffn_down.weight' ends at byte"),
        (lambda data: data.replace(b"ffn_norm", b"fff_norm"), "it: tensor 'blk.0.ffn_norm.weight' not found"),
    ],
)
def test_a_model_that_does_not_load(small_model: Path, tmp_path: Path, damage: Any, message: str) -> None:
    path = tmp_path / "damaged.gguf"
    path.write_bytes(damage(small_model.read_bytes()))
    with pytest.raises(ModelFileError, match=message):
        LlamaModel(path)


@pytest.mark.parametrize(("name", "message"), [("", "a folder"), ("missing.gguf", "no such file")])
def test_a_model_that_is_not_there(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        LlamaModel(tmp_path / name)


def test_a_model_without_vocabulary_takes_no_text(tmp_path: Path) -> None:
    path = Model(n_embd=32, n_ff=32, n_layer=1, n_head=2, tokenizer=False).write(tmp_path / "bare.gguf")
    with pytest.raises(ModelFileError), LlamaModel(path) as model:
        model.vocabulary.tokenize(b"text")


def test_tokens_begin_with_bos(small_model: Path) -> None:
    with LlamaModel(small_model) as model:
        tokens = model.vocabulary.tokenize(b"the\0a")
        assert model.vocabulary.bos == tokens[0] == 1
        assert tokens.dtype == np.int32
        assert 0 + 3 in tokens  # the zero byte is text like any other


def test_ctrl_c_stops_a_batch(generated: Any) -> None:
    path = generated("f16, rows of 256, grouped queries")
    tokens = np.full((8, 256), 300, np.int32)
    wanted = np.ones(256, bool)
    with LlamaModel(path) as model, model.context(n_ctx=256, n_seq=8, threads=1) as context:
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()

        def until_interrupted() -> None:
            while True:
                context.clear()
                context.decode(tokens, 0, wanted)

        with pytest.raises(KeyboardInterrupt):
            until_interrupted()
        timer.join()
        context.clear()
        assert np.isfinite(context.decode(tokens, 0, wanted)).all()


@pytest.mark.parametrize(
    "call",
    [
        lambda model, folder: LlamaModel(model),
        lambda model, folder: quantize_patched(model, folder / "out.gguf", make_mode({"mode": "q4_0"})),
    ],
    ids=["load", "quantize"],
)
def test_ctrl_c_is_not_lost_in_the_log(small_model: Path, tmp_path: Path, call: Any) -> None:
    def interrupting(_level: int, text: bytes, _data: object) -> None:
        if text.startswith(b"llama_model_loader: loaded"):
            signal.raise_signal(signal.SIGINT)

    llama = bindings()
    callback = llama.llama_log_callback(interrupting)
    llama.llama_log_set(callback, None)
    try:
        with pytest.raises(KeyboardInterrupt):
            call(small_model, tmp_path)
    finally:
        llama.llama_log_set(llama_log.callback(llama), None)
    assert not list(tmp_path.iterdir())


def test_more_tokens_than_positions_that_were_learned(tmp_path: Path) -> None:
    with LlamaModel(FAMILIES["GPT-2"].write(tmp_path / "model.gguf")) as model:
        with model.context(n_ctx=256) as context:
            assert context.decode(np.ones((1, 256), np.int32), 0, np.arange(256) == 255).shape == (1, 1, 320)
        with pytest.raises(ConfigError, match=r"ctx: .*model.gguf has learned 256 positions, .* got 257"):
            model.context(n_ctx=257)
