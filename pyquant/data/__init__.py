"""Data that come with pyquant: a small trained model, and text that it was not trained on.

How they were made, and what they can show, is in recipe/MODEL_CARD.md.
"""

from __future__ import annotations

from pathlib import Path

from pyquant.data.stdlib import documents


def model_path() -> Path:
    """A Llama of 5.2 million parameters, trained on Python's standard library; GGUF, F16."""
    return Path(__file__).with_name("pylm-5M-f16.gguf")


def evaluation_text() -> str:
    """The held-out documents of the Python that runs this, about 300 KB, one after the other.

    None of them was trained on. Another version of Python has slightly other text: compare results
    of one version only.
    """
    return "\n".join(document.text for document in documents(held_out=True))


def training_text(n_characters: int = 600_000) -> str:
    """The first characters of what the bundled model was trained on, to calibrate on.

    Documents come in the order of their names' hashes, so any beginning is a fair sample of them.
    """
    return "\n".join(document.text for document in documents(held_out=False))[:n_characters]
