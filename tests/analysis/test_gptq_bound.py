"""What GPTQ can leave of the error of rounding, beside what it leaves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analysis import gptq_bound
from pyquant import _core, data
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_type import TensorType as Type

RNG = np.random.default_rng(7)
DAMPENING = 0.001


def test_independent_inputs_leave_all() -> None:
    assert gptq_bound.shares(np.eye(8, dtype=np.float32), 0.0) == pytest.approx((1, 1))
    unlike = np.diag(np.float32([1, 4]))
    assert gptq_bound.shares(unlike, 0.0) == pytest.approx((1, 2 * 2 / 5))


def test_gptq_leaves_about_what_is_said() -> None:
    n = 256
    apart = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    hessian = np.float32(0.8) ** apart.astype(np.float32)  # each column tells of its neighbors
    weights = RNG.standard_normal((64, n), np.float32)
    factor = _core.factorize(
        hessian, dampening=DAMPENING, together=_core.columns_together(int(Type.Q8_0)), n_threads=1
    )

    def cost(encoder: _core.Encoder) -> float:
        error = weights - encoder.decode(encoder.encode(weights), n_per_row=n)
        return float(np.einsum("ij,jk,ik->", error, hessian, error))

    came = cost(_core.gptq_encoder(int(Type.Q8_0), factor)) / cost(_core.ggml_encoder(int(Type.Q8_0)))
    said, least = gptq_bound.shares(hessian, DAMPENING)
    assert least <= said == pytest.approx(1 - 0.8**2, rel=0.1)
    assert came == pytest.approx(said, rel=0.25)


@pytest.mark.ci
def test_a_line_for_each_kind(
    stats_of_both_sides: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["", str(stats_of_both_sides)])
    gptq_bound.main()
    lines = capsys.readouterr().out.splitlines()[1:]
    kinds = {
        tensor.name.split(".")[2] for tensor in ModelFile(data.model_path()).tensors if tensor.layer >= 0
    }
    assert {line.split()[0] for line in lines} == {kind for kind in kinds if not kind.endswith("norm")}
    for line in lines:
        of_inputs, any_steps, of_outputs, _ = map(float, line.split()[1:])
        assert 0 < any_steps <= of_inputs < 1.1
        assert 0 < of_outputs < 1.1
