"""Measure what shrinking experts' Hessians brings: KLD of generated mixtures by tokens for each expert.

    python -m tests.support.shrunk_experts 8 64

Experts' matrices alone are rounded, to IQ4_NL. Prints a table of Markdown.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import numpy as np
from gguf import MODEL_ARCH

from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.calibration import Calibration
from pyquant.files.text import read_text
from pyquant.fit.method.held_out import HeldOut
from pyquant.llama.chunks import cut
from pyquant.llama.model import Model
from pyquant.models.model_file import ModelFile
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.family import Family

N_CTX, N_USED = 128, 4
CHUNKS = [4, 16, 64, 192]
MODE = {"mode": "ggml:IQ4_NL", "pure": True, "tensors": "_exps"}


def mixture(n_experts: int) -> Family:
    """A model of two layers with structured weights."""
    sizes = {"embedding_length": 256, "expert_feed_forward_length": 128, "attention.key_length": 64}
    experts = {"expert_count": n_experts, "expert_used_count": N_USED}
    return Family(MODEL_ARCH.QWEN3MOE, {**sizes, **experts}, pairs=True, n_vocab=1024)


def write_texts(folder: Path) -> list[Path]:
    """Write a text to calibrate on and another to measure on; paragraphs differ in their words."""
    rng = np.random.default_rng(2)
    letters = np.concatenate([np.arange(0x21, 0x7F), np.arange(0xA1, 0x17F), np.arange(0x391, 0x3C9)])
    words = ["".join(map(chr, rng.choice(letters, rng.integers(1, 6)))) for _ in range(3000)]
    paths = [folder / "calibration.txt", folder / "held_out.txt"]
    for path, n_paragraphs in zip(paths, (800, 100)):
        paragraphs = []
        for _ in range(n_paragraphs):
            frequency = rng.permutation(1 / np.arange(10, 10 + len(words))) / np.arange(10, 10 + len(words))
            paragraphs.append(" ".join(rng.choice(words, 60, p=frequency / frequency.sum())))
        path.write_text("\n".join(paragraphs), encoding="utf-8")
    return paths


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experts", type=int, nargs="+")
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    print(
        "| experts | tokens for each | imatrix | own | shrunk | shrunk less own |\n|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seen, unseen = write_texts(folder)
        for n_experts in given.experts:
            measure(n_experts, seen, unseen, folder, given.threads)


def measure(n_experts: int, seen: Path, unseen: Path, folder: Path, threads: int | None) -> None:
    """Print the rows of a number of experts."""
    path = mixture(n_experts).write(folder / f"{n_experts}.gguf")
    with Model(path) as running:
        chunks = cut(running, read_text(unseen), n_ctx=N_CTX, n_chunks=32)
    with HeldOut(ModelFile(path), chunks, threads) as held_out:
        for n_chunks in CHUNKS:
            statistics, rounded = folder / "statistics.gguf", folder / "rounded.gguf"
            calibrate_model(
                path, [seen], statistics, n_ctx=N_CTX, n_chunks=n_chunks, imatrix_only=True, threads=threads,
                random=0, force=True,
            )  # fmt: skip
            klds = {}
            for called, given in (("imatrix", "imatrix"), ("own", "hessian"), ("shrunk", "hessian")):
                share = patch("pyquant.calibration.shrinkage.shrinkage", lambda *_: 0.0)
                with share if called == "own" else nullcontext():
                    mode = make_mode({**MODE, given: statistics})
                    quantize_model(path, rounded, mode, threads=threads, force=True)
                klds[called] = held_out.kld(rounded)
            counts = Calibration.read(statistics).counts("blk.0.ffn_gate_exps.weight")
            apart = np.subtract(klds["shrunk"].by_chunk, klds["own"].by_chunk)
            cells = " | ".join(f"{kld.mean:.5f}" for kld in klds.values())
            error = apart.std(ddof=1) / np.sqrt(len(apart))
            print(
                f"| {n_experts} | {np.median(counts):.0f} | {cells} | {apart.mean():+.5f} ± {error:.5f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
