"""SHA-256 of files made of the bundled model: `python -m tests.support.file_hashes FILE.json` lists them.

Rounding without statistics gives the same bytes on every CPU. Statistics are sums of products whose last
digits depend on the CPU's instructions, so files made with them are listed with what this CPU can.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyquant
from pyquant.data import model_path, training_text
from pyquant.machine.environment import environment
from tests.support import ROOT

NONLINEAR = str(ROOT / "configs" / "tables" / "nonlinear.toml")
PORTABLE: dict[str, dict[str, Any]] = {
    "q4_0": {"mode": "q4_0"},
    "q4_0 pure": {"mode": "q4_0", "pure": True},
    "q4_0 as q4_t": {"mode": "q4_0", "store": "q4_t"},
    "q4_0_recentred": {"mode": "q4_0_recentred"},
    "q4_0_multizero 1": {"mode": "q4_0_multizero", "radius": 1},
    "q8_0": {"mode": "q8_0"},
    "q8_table basic": {"mode": "q8_table", "table": "basic"},
    "q8_table balanced": {"mode": "q8_table", "table": "balanced"},
    "table": {"mode": "table", "table": NONLINEAR},
    "table as q4_t": {"mode": "table", "table": NONLINEAR, "store": "q4_t"},
    **{
        f"ggml:{name}": {"mode": f"ggml:{name}"}
        for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL",
                     "IQ4_XS", "IQ3_S", "TQ1_0", "BF16", "F16")
    },
}  # fmt: skip
WITH_IMATRIX = ("Q4_0", "Q4_K", "IQ4_NL", "IQ2_XXS", "IQ3_XXS", "Q3_K")
WITH_STATISTICS: dict[str, dict[str, Any]] = {
    **{
        f"gptq {name}": {"mode": f"ggml:{name}"}
        for name in ("Q4_0", "Q4_K", "Q5_K", "Q3_K", "IQ4_NL", "Q6_K")
    },
    "gptq table": {"mode": "table", "table": NONLINEAR},
    "gptq ecsq": {"mode": "ecsq", "step": 0.01},
    "gptq equalized": {"mode": "ggml:Q4_0", "equalize": True},
    "gptq error propagation": {"mode": "ggml:IQ4_NL", "error_propagation": 32},
    "gptq error propagation, equalized": {"mode": "ggml:Q4_K", "error_propagation": 32, "equalize": True},
}  # fmt: skip
CHUNKS = 32  # of 256 tokens


def portable_hashes(names: Iterable[str] = PORTABLE) -> dict[str, str]:
    """Hash files that are the same on every CPU. They are written into the current folder."""
    return dict(_quantized({name: PORTABLE[name] for name in names}))


def statistics_hashes() -> dict[str, str]:
    """Hash files whose last bits depend on the CPU. They are written into the current folder, as files name
    what they were made with."""
    text = Path("text.txt")
    text.write_text(training_text(), encoding="utf-8", newline="\n")
    own, default, imatrix = Path("own.stats"), Path("default.stats"), Path("imatrix.gguf")
    pyquant.calibrate_model(
        model_path(), [text], own, n_ctx=256, n_chunks=CHUNKS, imatrix=imatrix, output_side=4,
        process_output=True,
    )  # fmt: skip
    pyquant.calibrate_model(model_path(), None, default, n_ctx=128, n_chunks=16)
    with_imatrix = {f"imatrix {name}": {"mode": f"ggml:{name}", "imatrix": imatrix} for name in WITH_IMATRIX}
    calibrated = {name: {**mode, "hessian": own} for name, mode in WITH_STATISTICS.items()}
    on_default = {"gptq IQ4_NL, default texts": {"mode": "ggml:IQ4_NL", "hessian": default}}
    return dict(_quantized({**with_imatrix, **calibrated, **on_default}))


def _quantized(modes: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str]]:
    output = Path("output.gguf")
    for name, settings in modes.items():
        pyquant.quantize_model(model_path(), output, pyquant.make_mode(settings), force=True)
        yield name, hashlib.sha256(output.read_bytes()).hexdigest()


def main() -> None:
    """Write the lists to a JSON file."""
    output = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        result = {
            "portable": portable_hashes(),
            "cpu": sorted(environment()["cpu_features"]),
            "statistics": statistics_hashes(),
        }
    output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
