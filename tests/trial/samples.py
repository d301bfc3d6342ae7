"""Sound files of every kind that pyquant reads, small: what attacks begin with."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf import GGUFWriter

from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.sensitivity_file import Sensitivity
from pyquant.fit.method.quantize import quantize
from pyquant.generation.grammar.grammar import read_grammar
from pyquant.generation.grammar.lr.cache import SUFFIX
from pyquant.generation.grammar.lr_engine import Lr
from pyquant.generation.speculative.replay.search import SCHEMA as SEARCH
from pyquant.generation.structured.series import measure_series
from pyquant.inspect.histogram import count_codes
from pyquant.llama.model import Model as RunningModel
from pyquant.machine.caches import CACHE
from pyquant.models.pqz.pack import pack_model
from pyquant.rounding.quantize_model import quantize_model
from pyquant.rounding.to_pqz import quantize_to_pqz
from pyquant.schemes.settings import make_mode
from pyquant.study.config import read_study
from pyquant.study.run import run_study
from pyquant.study.store import Run, Store
from tests.support.card import compare
from tests.support.costs import write_costs
from tests.support.imatrix import legacy_imatrix
from tests.support.models import Model
from tests.support.questions import write_hellaswag, write_multiple_choice, write_winogrande
from tests.support.studies import Lab, write_inputs
from tests.trial.sample_texts import GENERATING, JINJA, TEXTS

TEXT = "the rain in the hen then tin ant " * 300
STOPPED: dict[str, Any] = {"n_ctx": 64, "n_chunks": 100}
STOPPED_LATE: dict[str, Any] = {"n_ctx": 64, "n_chunks": 8}
OUTPUT_SIDE: dict[str, Any] = {"n_ctx": 64, "n_chunks": 4, "output_side": 4}
QUANTIZED: dict[str, Any] = {"type": "Q4_K_M", "method": "gptq"}
SERIES: dict[str, Any] = {
    "tasks": ["arithmetic"], "techniques": ["free", "grammar"], "lengths": [4, 2], "samples": 2, "seed": 3,
}  # fmt: skip
PAIR = "0" * 64, "ngram"  # a target and its draft
TABLE = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]


class Chatty(Model):
    """A model with a chat template of its own."""

    def add_tokenizer(self, writer: GGUFWriter) -> None:
        super().add_tokenizer(writer)
        writer.add_chat_template(JINJA)


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
    _stop(model, text, folder / "stopped" / "stats", 0.5, **STOPPED)
    _stop(model, text, folder / "stopped-late" / "stats", 1, **STOPPED_LATE)
    _stop(model, text, folder / "stopped-gradients" / "stats", 0.5, **OUTPUT_SIDE)
    _kill(model, folder / "killed" / "out.gguf", stats)
    (folder / "table.toml").write_text(f"values = {TABLE}\n")
    (folder / "set.toml").write_text(f"values = {TABLE}\n[tables]\nattn_q = {TABLE}\nffn_down = {TABLE}\n")
    (folder / "sensitivity.toml").write_text(Sensitivity({"attn_q": 1.5, "ffn_down": 0.25}).to_toml())
    (folder / "mode.toml").write_text('mode = "q8_table"\ntable = "table.toml"\n')
    for name, content in TEXTS.items():
        (folder / name).write_text(content)
    write_costs(folder / "costs.json", (model, folder / "quantized.gguf"))
    write_hellaswag(folder / "hellaswag.txt", 3)
    write_winogrande(folder / "winogrande.csv", 4)
    write_multiple_choice(folder / "choices.bin", 3)
    _compared(folder)
    _answering(folder)
    write_inputs(folder)
    lab = Lab(folder, folder)  # makes text.txt, model-1.gguf and study.toml anew
    (folder / "study.toml").write_text(
        'models = ["model.gguf"]\ntexts = ["text.txt"]\n' + lab.config.read_text()
    )
    lab.run(folder / "results", lab.write("small.toml", ["codes", "size", "quality"]))
    text.write_text(TEXT)
    shutil.copy(min((folder / "results" / "runs").glob("*.npz")), folder / "items.npz")


def _compared(folder: Path) -> None:
    """Makes a result of a comparison."""
    result = compare([str(folder / "quantized.gguf"), str(folder / "table.gguf")])
    result["base"]["model"] = str(folder / "model.gguf")
    (folder / "compared.json").write_text(json.dumps(result))


def _answering(folder: Path) -> None:
    """Makes a model with a chat template, shards, and what is written by and for models that generate."""
    Chatty(n_embd=64, n_ff=96, n_layer=1).write(folder / "chat.gguf")
    policies = {
        "fixed": {"policy": "fixed:k=4", "gain": 1.5},
        "static": {"policy": "static:threshold=2", "gain": 2},
    }
    (folder / "search.json").write_text(json.dumps({"schema": SEARCH, "models": PAIR, "policies": policies}))
    measure_series(folder / "model.gguf", file=folder / "series.jsonl", threads=1, **SERIES)
    os.environ[CACHE] = str(folder / "cache")
    with RunningModel(folder / "model.gguf") as model:
        Lr(model.vocabulary).compile(read_grammar(folder / "grammar.lark"))
    del os.environ[CACHE]
    (kept,) = (folder / "cache").glob(f"*{SUFFIX}")
    shutil.move(kept, folder / kept.name)
    study = folder / "generation"
    study.mkdir()
    (study / "study.toml").write_text(GENERATING.replace('"drafting", ', ""))
    config = read_study(study / "study.toml")
    run_study(config, study / "results", workers=1)
    _measured_drafting(Store(study / "results"), json.loads((folder / "costs.json").read_text()))


def _measured_drafting(store: Store, costs: dict[str, Any]) -> None:
    """Adds a result of metric drafting, which takes minutes to measure."""
    run = Run("drafting", {"targets": ["unquantized"], "sorts": ["code"]})
    cell = {
        "target": "unquantized",
        "sort": "code",
        "texts": 2,
        "tokens": 16,
        "drafted": 8,
        "acceptance": 0.5,
    }
    policies = ("none", "expected_value:slope=1", "plus_minus", "oracle")
    clock = [{"policy": name, "ratio": 1.5, "ratio_low": 1.25, "ratio_high": 2} for name in policies]
    of_sort = {"runs": clock, "replays": [{"policy": name, "gain": 1.75} for name in policies]}
    timed = {**costs, "alone": {"seconds": 0.01}}
    part = {"target": "unquantized", "costs": timed, "sorts": {"code": of_sort}}
    study = store.study()
    measured = store.read(study["models"][0]["rows"][0]["size"])
    store.write(run, {"cells": [cell]}, {**measured["provenance"], "drafting": [part]})
    study["models"][0]["rows"][0]["drafting"] = run.key
    store.write_study(study)


def _stop(model: Path, text: Path, output: Path, share: float, **options: Any) -> None:
    """Leaves what a calibration keeps that is stopped after a share of its chunks."""

    def stop(what: str, done: int, total: int) -> None:
        if done >= share * total:
            raise KeyboardInterrupt

    output.parent.mkdir()
    with contextlib.suppress(KeyboardInterrupt):
        calibrate_model(model, [text], output, checkpoint_seconds=0, progress=stop, **options)


def _kill(model: Path, output: Path, hessian: Path) -> None:
    """Leaves what the one command keeps that is stopped within its second stage."""

    def stop(what: str, done: int, total: int) -> None:
        if what == "GPTQ" and 2 * done > total:
            raise KeyboardInterrupt

    output.parent.mkdir()
    with contextlib.suppress(KeyboardInterrupt):
        quantize(model, output, hessian=hessian, threads=1, progress=stop, **QUANTIZED)


if __name__ == "__main__":
    make_samples(Path(sys.argv[1]))
