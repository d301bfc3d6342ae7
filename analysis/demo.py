"""`make demo`: what 4-bit codes lose, what GPTQ gives back, how small files are, and one command for it.

    .venv/bin/python analysis/demo.py [--model MODEL.gguf] [--text FILE] [--calibration-text FILE]

Runs the study configs/demo.toml and shows its results in four tables. About three minutes on two cores for
the bundled model; started again, it goes on where it was.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from pyquant.cli.output import print_table
from pyquant.data import evaluation_text, model_path, training_text
from pyquant.study.report.tables import results_table
from pyquant.study.results.columns import plus_minus
from pyquant.study.results.read import read_results
from pyquant.study.store import Store

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "demo"
TYPES = ("Q4_0", "IQ4_NL", "Q4_K")
WAYS = {
    "as llama-quantize": "ggml:{}",
    "with imatrix": "ggml:{} imatrix=in_domain",
    "gptq": "ggml:{} hessian=in_domain",
    "error propagation": "ggml:{} hessian=in_domain error_propagation=64",
}
METHODS = {
    "rtn": "ggml:Q4_K_M",
    **{name: f"ggml:Q4_K_M {name} calibration=in_domain" for name in ("imatrix", "gptq", "best")},
}
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, default=model_path(), help="default: the bundled one")
    parser.add_argument("--text", type=Path, help="to evaluate on; default: Python's, held out")
    parser.add_argument("--calibration-text", type=Path, help="default: Python's, trained on")
    arguments = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    text = arguments.text or written(OUT / "held-out.txt", evaluation_text())
    seen = arguments.calibration_text or written(OUT / "training.txt", training_text())
    results = OUT / "results"
    on = ["--model", arguments.model, "--text", text]
    run_study("demo.toml", results, [*on, "--calibration-text", f"in_domain={seen}"])
    rows = {row["quantizer"]: row for row in results_table(read_results(Store(results)))}
    show_thesis(rows)
    show_gptq(rows)
    show_entropy_coded(rows)
    say(
        "KLD is how far a model's predictions are from the unquantized model's: 0 is the same model. Bits "
        "are of the whole file, per weight; ± is one standard error."
    )
    show_methods(rows)
    print(f"Open {(results / 'report.html').relative_to(ROOT)} for figures and all numbers.")
    print("Next: `make demo MODEL=...` with another model, or docs/getting_started.md.")


def run_study(name: str, results: Path, inputs: list[Any]) -> None:
    command = [sys.executable, "-m", "pyquant", "study", "run", ROOT / "configs" / name, "--results", results]
    done = subprocess.run([*command, *map(str, inputs)], check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def show_thesis(rows: dict[str, Row]) -> None:
    """The thesis's quantizers beside stock types, without anything known of inputs."""
    uninformed = {label: row for label, row in rows.items() if "in_domain" not in label}
    print_table(
        ["mode", "bits", "perplexity", "KLD", "zeros %", "single %", "by chance %"],
        [[label, bits(row), perplexity(row), kld(row), *zeros(row)] for label, row in uninformed.items()],
        title="1. The thesis's quantizers",
    )
    counted = [row for row in rows.values() if row["mode"] == "q4_0_multizero"]
    apart = max(abs(row["single_zeros"] - row["single_zeros_by_chance"]) for row in counted)
    say(
        "Of all runs of zeros, as many have length 1 (single) as if zeros came by chance, to "
        f"{100 * apart:.1f} %: a coder of runs has no more to gain. Each step of the radius costs KLD."
    )


def show_gptq(rows: dict[str, Row]) -> None:
    """The same types in four ways, at the same size."""
    by_type = {type_: [rows[label.format(type_)] for label in WAYS.values()] for type_ in TYPES}
    print_table(
        ["KLD of", "bits", *WAYS],
        [[type_, bits(of_type[0]), *map(kld, of_type)] for type_, of_type in by_type.items()],
        title="2. The same size, four ways to round",
    )
    shares = [of_type[-1]["kld"] / of_type[1]["kld"] for of_type in by_type.values()]
    low, high = (f"{100 * share:.0f}" for share in (min(shares), max(shares)))
    say(
        f"At the same size, error propagation leaves {low} to {high} % of the KLD that an importance "
        "matrix leaves."
    )


def show_entropy_coded(rows: dict[str, Row]) -> None:
    """Files of mode ecsq beside Q4_K."""
    files = {f"Q4_K, {way}": rows[WAYS[way].format("Q4_K")] for way in ("with imatrix", "error propagation")}
    coded = [row for row in rows.values() if row["mode"] == "ecsq"]
    files |= {f"ecsq, {row['quantizer'].rpartition('measured ')[2]} (.pqz)": row for row in coded}
    print_table(
        ["file", "size (MB)", "bits", "perplexity", "KLD"],
        [
            [name, f"{row['bytes'] / 1e6:.2f}", bits(row), perplexity(row), kld(row)]
            for name, row in files.items()
        ],
        title="3. Entropy-coded files (.pqz) beside Q4_K",
    )
    stock = files["Q4_K, with imatrix"]
    smallest, nearest = (min(coded, key=lambda row: row[key]) for key in ("bytes", "kld"))
    size, small, near = stock["bytes"], smallest["bytes"], nearest["bytes"]
    say(
        f"As good as Q4_K with an importance matrix, an entropy-coded file has {100 * small / size:.0f} % of "
        f"its size; at {100 * near / size:.0f} % of its size, {100 * nearest['kld'] / stock['kld']:.0f} % of "
        "its KLD."
    )


def show_methods(rows: dict[str, Row]) -> None:
    """A type by each method of `pyquant quantize`."""
    by_method = {name: rows[label] for name, label in METHODS.items()}
    print_table(
        ["method", "size (MB)", "bits", "mean KLD", "99.9 % KLD", "same top %"],
        [
            [
                name,
                f"{row['bytes'] / 1e6:.2f}",
                bits(row),
                kld(row),
                f"{row['kld_99.9']:.3f}",
                f"{100 * row['same_top']:.1f}",
            ]
            for name, row in by_method.items()
        ],
        title="4. pyquant quantize MODEL OUT Q4_K_M --method METHOD",
    )
    times = by_method["best"]["kld"] / by_method["imatrix"]["kld"]
    say(f"The best file of the type has {times:.2f}x the KLD of llama-quantize's with an imatrix.")


def say(finding: str) -> None:
    print(textwrap.fill(finding, 98) + "\n")


def bits(row: Row) -> str:
    """Bits per weight, of the whole file."""
    return f"{row['bits']:.2f}"


def perplexity(row: Row) -> str:
    return f"{row['perplexity']:.4g}"


def kld(row: Row) -> str:
    return "-" if row["kld"] is None else plus_minus(row["kld"], row["kld_error"])


def zeros(row: Row) -> list[str]:
    keys = ("zero_codes", "single_zeros", "single_zeros_by_chance")
    return ["-" if row[key] is None else f"{100 * row[key]:.2f}" for key in keys]


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\npyquant: interrupted; `make demo` goes on")
