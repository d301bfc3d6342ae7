"""Measure what parts of mode ecsq are worth: KLD at one size of a .pqz file, with ever more of it.

    python analysis/ecsq_steps.py MODEL.gguf HESSIAN S.toml --text FILE --size 75.6MB

HESSIAN is made with --process-output, S.toml by `pyquant sensitivity`. Prints a table of Markdown.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from pyquant.calibration.sensitivity_file import Sensitivity
from pyquant.fit.evaluation import Evaluation
from pyquant.fit.step_search import START, StepSearch
from pyquant.fit.target import Target
from pyquant.limits import parse_size
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor_name import kind_of
from pyquant.rounding import row_weights
from pyquant.rounding.to_pqz import quantize_to_pqz
from pyquant.schemes.settings import make_mode

PROPAGATED = {"error_propagation": 64}


def variants(measured: Sensitivity, folder: Path) -> list[tuple[str, float, dict[str, object]]]:
    """List what is compared: its name, how much guesses of rows are trusted, and settings of the mode."""
    kinds = dict.fromkeys(map(kind_of, measured.by_tensor), 1.0)
    files = {
        "equal": Sensitivity(kinds),
        "kinds": Sensitivity({kind: Sensitivity(by_tensor=measured.by_tensor).of(kind) for kind in kinds}),
        "all": measured,
    }
    paths = {}
    for name, sensitivity in files.items():
        paths[name] = folder / f"{name}.toml"
        paths[name].write_text(sensitivity.to_toml())
    trust = row_weights.TRUST
    return [
        ("one step for all outputs", 0, {"sensitivity": paths["equal"]}),
        ("a sensitivity for each kind", 0, {"sensitivity": paths["kinds"]}),
        ("nothing measured: relative to the residual stream and outputs", 0, {}),
        ("the same, rows by what becomes of them", trust, {}),
        ("a sensitivity for each tensor", 0, {"sensitivity": paths["all"]}),
        ("the same, rows by what becomes of them", trust, {"sensitivity": paths["all"]}),
        ("the same, error propagation", trust, {"sensitivity": paths["all"], **PROPAGATED}),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("stats", type=Path)
    parser.add_argument("sensitivity", type=Path)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--size", required=True)
    parser.add_argument("--chunks", type=int, default=16)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--only", type=int, nargs="*", help="rows of the table, from 0")
    given = parser.parse_args()
    model, size = ModelFile(given.model), parse_size("--size", given.size)
    print(f"| {size:,} bytes | KLD |\n|---|---|")
    with (
        Evaluation(given.text, 512, given.chunks).baseline(model, threads=given.threads) as baseline,
        tempfile.TemporaryDirectory() as folder,
    ):
        rows = variants(Sensitivity.read(given.sensitivity), Path(folder))
        for i, (name, trust, settings) in enumerate(rows):
            if given.only and i not in given.only:
                continue
            row_weights.TRUST = trust
            mode = make_mode({"mode": "ecsq", "hessian": given.stats, "step": START, **settings})
            found = StepSearch(model, mode, threads=given.threads).find(Target("target_size", size))
            made = Path(folder) / "made.pqz"
            quantize_to_pqz(model, made, found, threads=given.threads, force=True)
            kld = baseline.kld_of(made).kld
            print(f"| {name} | {kld.mean:.4f} ± {kld.error:.4f} |", flush=True)


if __name__ == "__main__":
    main()
