"""Sound files of every kind that pyquant reads, small: what attacks begin with."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.sensitivity_file import Sensitivity
from pyquant.inspect.histogram import count_codes
from pyquant.models.pqz.pack import pack_model
from pyquant.rounding.quantize_model import quantize_model
from pyquant.rounding.to_pqz import quantize_to_pqz
from pyquant.schemes.settings import make_mode
from tests.support.costs import write_costs
from tests.support.imatrix import legacy_imatrix
from tests.support.models import Model
from tests.support.studies import Lab, write_inputs
from tests.trial.sample_texts import TEXTS

TEXT = "the rain in the hen then tin ant " * 300
STOPPED: dict[str, Any] = {"n_ctx": 64, "n_chunks": 100}
TABLE = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]


@dataclass(frozen=True)
class Samples:
    """Files, all in one folder."""

    folder: Path

    def __getattr__(self, name: str) -> Path:
        """`samples.model_gguf` is the file model.gguf."""
        stem, _, suffix = name.rpartition("_")
        return self.folder / f"{stem}.{suffix}"


def make_samples(folder: Path) -> None:
    """Makes all of them in an empty folder."""
    model = Model(n_embd=64, n_ff=96, n_layer=1).write(folder / "model.gguf")
    Model(n_embd=64, n_ff=96, n_layer=1).write(folder / "split.gguf", tensors_per_shard=6)
    text = folder / "text.txt"
    text.write_text(TEXT)
    stats, imatrix = folder / "stats.gguf", folder / "imatrix.gguf"
    calibrate_model(model, [text], stats, n_ctx=64, n_chunks=16, imatrix=imatrix)
    quantize_model(model, folder / "quantized.gguf", make_mode({"mode": "ggml:Q4_K"}))
    quantize_model(model, folder / "table.gguf", make_mode({"mode": "q4_0", "store": "q4_t"}))
    pack_model(folder / "quantized.gguf", folder / "quantized.pqz")
    ecsq = make_mode({"mode": "ecsq", "hessian": stats, "step": 0.05})
    quantize_to_pqz(model, folder / "ecsq.pqz", ecsq)
    legacy_imatrix(model, folder / "imatrix.dat")
    counts = count_codes(model, make_mode({"mode": "q8_0"})).to_json()
    short = {**counts, "totals": [{**total, "codes": total["codes"][:20]} for total in counts["totals"]]}
    (folder / "histogram.json").write_text(json.dumps({**short, "tensors": []}))
    _stop(model, text, folder / "stopped")
    (folder / "table.toml").write_text(f"values = {TABLE}\n")
    (folder / "set.toml").write_text(f"values = {TABLE}\n[tables]\nattn_q = {TABLE}\nffn_down = {TABLE}\n")
    (folder / "sensitivity.toml").write_text(Sensitivity({"attn_q": 1.5, "ffn_down": 0.25}).to_toml())
    (folder / "mode.toml").write_text('mode = "q8_table"\ntable = "table.toml"\n')
    for name, content in TEXTS.items():
        (folder / name).write_text(content)
    write_costs(folder / "costs.json", (model, folder / "quantized.gguf"))
    write_inputs(folder)
    lab = Lab(folder, folder)  # makes text.txt, model-1.gguf and study.toml anew
    (folder / "study.toml").write_text(
        'models = ["model.gguf"]\ntexts = ["text.txt"]\n' + lab.config.read_text()
    )
    lab.run(folder / "results", lab.write("small.toml", ["codes", "size", "quality"]))
    text.write_text(TEXT)
    shutil.copy(min((folder / "results" / "runs").glob("*.npz")), folder / "items.npz")


def _stop(model: Path, text: Path, folder: Path) -> None:
    """Leaves what a calibration keeps that is stopped in its middle."""

    def stop(done: int, total: int) -> None:
        if 2 * done > total:
            raise KeyboardInterrupt

    folder.mkdir()
    with contextlib.suppress(KeyboardInterrupt):
        calibrate_model(model, [text], folder / "stats", checkpoint_seconds=0, progress=stop, **STOPPED)


if __name__ == "__main__":
    make_samples(Path(sys.argv[1]))
