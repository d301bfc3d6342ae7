"""What measuring tensors together loses, from sensitivities that are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis import sensitivity_groups
from pyquant import data
from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.sensitivity_file import OfTensor, Sensitivity
from pyquant.fit.measure_sensitivity import measure_sensitivity
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_name import kind_of


def test_layers_that_are_alike_lose_nothing_together(
    training_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, stats, known = data.model_path(), tmp_path / "stats", tmp_path / "s.toml"
    calibrate_model(model, [training_text], stats, n_ctx=256, n_chunks=4)

    def lost(by_layer: float) -> dict[str, float]:
        every = [tensor for tensor in ModelFile(model).tensors if kind_of(tensor.name).startswith("ffn_")]
        of = [(tensor.name, by_layer**tensor.layer) for tensor in every if len(tensor.shape) > 1]
        known.write_text(Sensitivity(by_tensor={name: OfTensor(s, s, 0.1) for name, s in of}).to_toml())
        monkeypatch.setattr("sys.argv", ["", str(model), str(stats), str(known), "--together", "2"])
        sensitivity_groups.main()
        lines = capsys.readouterr().out.splitlines()[1:]
        return {line[5:45].strip(): float(line.split()[-1]) for line in lines}

    alike, falling = lost(1), lost(0.25)
    assert alike["one for all"] == alike["2 layers together, equal parts"] == 1
    assert falling["one for all"] > falling["2 layers together, equal parts"] > 1.1
    # (1 + 1/4) / 2 over the root of 1/4, wherever both layers give as much
    assert falling["2 layers together, equal parts"] == pytest.approx(1.25, rel=0.1)
    assert falling["each tensor, not drawn to its neighbors"] == 1


@pytest.mark.ci
def test_gradients_tell_sensitivities_better_than_a_guess(
    training_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, stats, known = data.model_path(), tmp_path / "stats", tmp_path / "s.toml"
    options = {"n_ctx": 256, "n_chunks": 4, "output_side": 4}
    calibrate_model(model, [training_text], stats, process_output=True, **options)
    measured = measure_sensitivity(model, stats, training_text, n_ctx=128, n_chunks=2)
    # Rows of embeddings and output are measured with smaller errors where tokens are frequent.
    layers = {name: of for name, of in measured.by_tensor.items() if name.startswith("blk")}
    known.write_text(Sensitivity(by_tensor=layers).to_toml())
    given = [str(model), str(stats), str(known), "--together"]
    monkeypatch.setattr("sys.argv", ["", *given])
    sensitivity_groups.main()
    lost = {line[5:45].strip(): float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()[1:]}
    assert lost["gradients"] < 1.05
    assert lost["a guess by the residual stream"] > 1.1
