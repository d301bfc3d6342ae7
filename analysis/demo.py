"""`make demo`: every quantizer of the thesis and its neighbors on a real model, in about two minutes.

.venv/bin/python analysis/demo.py [--model MODEL.gguf] [--text FILE]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from pyquant.data import evaluation_text, model_path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "demo"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=Path, default=model_path(), help="default: the one in the box")
    parser.add_argument("--text", type=Path, help="default: what the model in the box has never seen")
    arguments = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    text = arguments.text or OUT / "held-out.txt"
    if arguments.text is None:
        text.write_text(evaluation_text(), encoding="utf-8")
    results = OUT / "results"
    study = [str(ROOT / "configs/thesis.toml"), "--model", str(arguments.model), "--text", str(text)]
    pyquant("study", "run", *study, "--ctx", "256", "--chunks", "60", "--results", str(results))
    pyquant("study", "show", str(results))
    report = results / "report.html"
    print(
        f"Open {report.relative_to(ROOT)} for the figures; the numbers are JSON in demo/results/runs.\n"
        f"Next: `.venv/bin/pyquant histogram {arguments.model} --mode q4_0 --plot codes.png`, a table of "
        f"your own in configs/tables, or `make demo MODEL=...` with another model."
    )


def pyquant(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "pyquant", *arguments], check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
