"""A pass gives the same whatever the threads, the chunks and the split of the work."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from pyquant import _core
from pyquant.schemes.fold_table import basic
from pyquant.schemes.q4_0 import q4_0
from pyquant.schemes.q4_0_multizero import q4_0_multizero
from pyquant.schemes.q8_0 import q8_0
from pyquant.schemes.q8_table import q8_table
from tests.support.passes import errors, run_pass

# Rows in a chunk of 1 MiB: 2730.67, 1524.1, 7.99, and less than one.
SHAPES = [(6001, 96), (3000, 172), (17, 32800), (3, 300_000)]
TARGETS = {
    "q4_0": (_core.scheme_encoder(q4_0().kernel()), 32),
    "q4_0_multizero(1)": (_core.scheme_encoder(q4_0_multizero(1).kernel()), 32),
    "q8_table(basic)": (_core.scheme_encoder(q8_table(basic()).kernel()), 32),
    "ggml:Q8_0": (_core.ggml_encoder(int(Type.Q8_0)), 32),
    "ggml:IQ4_NL": (_core.ggml_encoder(int(Type.IQ4_NL)), 32),
    "ggml:F16": (_core.ggml_encoder(int(Type.F16)), 1),
}
FITTING = [(name, shape) for name in TARGETS for shape in SHAPES if shape[1] % TARGETS[name][1] == 0]


def weights(shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(("name", "shape"), FITTING)
def test_threads_change_nothing(name: str, shape: tuple[int, int]) -> None:
    x = weights(shape)
    target = TARGETS[name][0]
    counting = {"count": TARGETS[name][1] == 32, "nibbles": "8" not in name}
    outputs, results = zip(*(run_pass(x, target, measure=True, n_threads=n, **counting) for n in (1, 2, 5)))
    for output, result in zip(outputs[1:], results[1:]):
        assert np.array_equal(output, outputs[0])
        assert errors(result) == errors(results[0])  # to the last bit: summed in order
        assert np.array_equal(result.codes, results[0].codes)
        assert np.array_equal(result.runs, results[0].runs)


@pytest.mark.parametrize("name", ["q4_0", "ggml:Q8_0", "ggml:IQ4_NL"])
def test_rows_are_independent(name: str) -> None:
    x = weights((6001, 96))
    target = TARGETS[name][0]
    whole, _ = run_pass(x, target, n_threads=2)
    parts = [run_pass(part, target)[0] for part in np.array_split(x, 7)]
    assert np.array_equal(whole, np.concatenate(parts))


@pytest.mark.parametrize("n_threads", [1, 3])
def test_every_expert_has_its_own_importance(n_threads: int) -> None:
    n_experts, n_rows, n_per_row = 3, 2731, 96  # an expert's last chunk is a single row
    x = weights((n_experts * n_rows, n_per_row))
    importance = np.random.default_rng(1).exponential(size=(n_experts, n_per_row)).astype(np.float32)
    for kind in (Type.Q4_0, Type.IQ4_NL):
        target = _core.ggml_encoder(int(kind))
        whole, _ = run_pass(x, target, importance=importance, n_threads=n_threads)
        parts = [run_pass(part, target, importance=w[None])[0] for part, w in zip(np.split(x, 3), importance)]
        assert np.array_equal(whole, np.concatenate(parts))


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("n_threads", [1, 4])
def test_of_several_bad_weights_the_first_is_named(target: tuple[_core.Encoder, int], n_threads: int) -> None:
    x = weights((6001, 96))
    x[1234, 56] = -np.inf
    x[1234, 57] = x[2900, 3] = x[5999, 95] = np.nan
    with pytest.raises(_core.WeightError) as raised:
        run_pass(x, target[0], n_threads=n_threads)
    assert (raised.value.index, raised.value.value) == (1234 * 96 + 56, -np.inf)


def test_bad_weights_in_a_copy() -> None:
    x = weights((6001, 96))
    x[4000, 7] = np.nan
    assert np.array_equal(run_pass(x)[0], x.ravel().view(np.uint8))
    with pytest.raises(_core.WeightError) as raised:
        run_pass(x, check=True, n_threads=2)
    assert raised.value.index == 4000 * 96 + 7
    assert np.isnan(raised.value.value)


@pytest.mark.parametrize("kind", [Type.Q4_0, Type.Q8_0], ids=lambda kind: kind.name)
def test_a_scale_beyond_fp16(kind: Type) -> None:
    x = weights((100, 96))
    x[70, 33] = -1e9
    scheme = q4_0() if kind is Type.Q4_0 else q8_0()
    with pytest.raises(_core.WeightError) as raised:
        run_pass(x, _core.scheme_encoder(scheme.kernel()))
    assert (raised.value.index, raised.value.value) == (70 * 96 + 33, np.float32(-1e9))
    with pytest.raises(_core.WeightError, match="scale overflow"):
        run_pass(x, _core.ggml_encoder(int(kind)))


@pytest.mark.parametrize("copy_type", [Type.F32, Type.F16, Type.BF16], ids=lambda kind: kind.name)
@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_weights_in_memory_and_the_values_they_get(
    target: tuple[_core.Encoder, int], n_threads: int, copy_type: Type
) -> None:
    x = weights((6001, 96))
    expected, result = run_pass(x, target[0], measure=True)
    copy_as, file = _core.ggml_encoder(int(copy_type)), os.memfd_create("output")
    copy = np.zeros((6001, copy_as.encode(x[:1]).shape[1]), np.uint8)
    from_memory = _core.run_pass(
        n_rows=6001, n_per_row=96, weights=x, source=_core.ggml_decoder(int(Type.F32)), target=target[0],
        out_file=file, copy=copy, copy_as=copy_as, measure=True, n_threads=n_threads,
    )  # fmt: skip
    assert os.pread(file, expected.size + 1, 0) == expected.tobytes()
    assert errors(from_memory) == errors(result)
    decoded = target[0].decode(expected.reshape(6001, -1), n_per_row=96)
    assert np.array_equal(copy, copy_as.encode(decoded))
    os.close(file)


@pytest.mark.parametrize(
    ("work", "message"),
    [
        ({"weights": np.zeros((4, 96), np.float32)}, "weights"),
        ({"copy": np.zeros((4, 192), np.uint8)}, "copy"),
        ({"copy": np.zeros((5, 192), np.uint8), "target": None}, "copy"),
        ({"copy_as": None, "copy": np.zeros((5, 192), np.uint8)}, "copy"),
    ],
)
def test_memory_of_another_size_is_refused(work: dict, message: str) -> None:
    codecs = {"target": TARGETS["q4_0"][0], "copy_as": _core.ggml_encoder(int(Type.F16)), **work}
    with pytest.raises(ValueError, match=message):
        _core.run_pass(n_rows=5, n_per_row=96, source=_core.ggml_decoder(int(Type.F32)), **codecs)


def test_no_rows() -> None:
    x = np.zeros((0, 32), np.float32)
    output, result = run_pass(x, TARGETS["q4_0"][0], measure=True, count=True, nibbles=True)
    assert output.size == 0
    assert errors(result)["largest_error_at"] == -1
    assert not result.codes.any()


def test_progress_reaches_the_end() -> None:
    x = weights((6001, 96))
    seen: list[int] = []
    run_pass(x, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == x.nbytes


def test_an_exception_in_progress_ends_the_pass() -> None:
    def stop(n_bytes: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_pass(weights((6001, 96)), progress=stop)


def test_the_interpreter_runs_on_during_a_pass() -> None:
    x = weights((2000, 4096))
    turns = 0
    done = threading.Event()

    def count() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    before = turns
    run_pass(x, _core.ggml_encoder(int(Type.Q4_K)))
    during = turns - before
    done.set()
    thread.join()
    assert during > 5


def test_a_file_that_ends_early() -> None:
    file = os.memfd_create("short")
    os.pwrite(file, bytes(100), 0)
    with pytest.raises(_core.ReadError, match="ends early") as raised:
        _core.run_pass(
            in_file=file, in_offset=0, n_rows=1, n_per_row=32, source=_core.ggml_decoder(int(Type.F32))
        )
    assert raised.value.errno == errno.EIO
    os.close(file)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "read only").write_bytes(b"")
    file, x = os.memfd_create("rows"), np.ones(32, np.float32)
    os.pwrite(file, x.tobytes(), 0)
    with (tmp_path / "read only").open("rb") as output, pytest.raises(_core.WriteError) as raised:
        _core.run_pass(
            in_file=file, in_offset=0, n_rows=1, n_per_row=32, source=_core.ggml_decoder(int(Type.F32)),
            out_file=output.fileno(),
        )  # fmt: skip
    assert raised.value.errno == errno.EBADF
    assert isinstance(raised.value, OSError)
    os.close(file)


@pytest.mark.parametrize(
    ("work", "message"),
    [
        ({"importance": np.ones((1, 95), np.float32)}, "importance"),
        ({"importance": np.ones((4, 96), np.float32)}, "importance"),
        ({"importance": np.ones(0, np.float32)}, "importance"),
        ({"n_per_row": 0}, "rows"),
        ({"n_rows": -1}, "rows"),
    ],
)
def test_work_that_does_not_fit_is_refused(work: dict, message: str) -> None:
    file = os.memfd_create("zeros")
    source, target = _core.ggml_decoder(int(Type.F32)), TARGETS["q4_0"][0]
    arguments = {"in_file": file, "in_offset": 0, "n_rows": 5, "n_per_row": 96, **work}
    with pytest.raises(ValueError, match=message):
        _core.run_pass(**arguments, source=source, target=target)
    os.close(file)


@pytest.mark.parametrize("n_per_row", [33, 31, 100])
@pytest.mark.parametrize("target", [TARGETS["q4_0"][0], _core.ggml_encoder(int(Type.Q4_K))])
def test_rows_that_no_block_divides_are_refused(n_per_row: int, target: _core.Encoder) -> None:
    with pytest.raises(ValueError, match="multiple"):
        run_pass(weights((4, n_per_row)), target)


@pytest.mark.parametrize(
    ("target", "nibbles"),
    [(None, True), ("ggml:F16", False), ("q4_0", False), ("ggml:Q8_0", True)],
)
def test_only_blocks_are_counted(target: str | None, nibbles: bool) -> None:
    with pytest.raises(ValueError, match="count"):
        run_pass(weights((4, 96)), target and TARGETS[target][0], count=True, nibbles=nibbles)
