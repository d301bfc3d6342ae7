"""Where records of drafts that tests make up come from."""

from __future__ import annotations

from pyquant.generation.speculative.record.record import Source

SOURCE = Source(
    version="0", target="t.gguf", draft="d.gguf", target_sha256="t", draft_sha256="d", prompts_sha256="",
    chat=False, n_samples=1, max_tokens=64, temperature=0.0, seed=0,
)  # fmt: skip
