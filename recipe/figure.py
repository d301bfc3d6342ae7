"""A training's losses as a figure."""

from __future__ import annotations

import json
from pathlib import Path

from matplotlib.figure import Figure


def draw(log: Path, output: Path) -> None:
    """Draws log.jsonl of a training; the file's suffix decides the format."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    for key, label, style in (
        ("training_loss", "training", {"color": "0.65", "linewidth": 1}),
        ("validation_loss", "held out", {"color": "C0", "marker": "o", "markersize": 3}),
    ):
        points = [(line["tokens"] / 1e6, line[key]) for line in lines if key in line]
        axes.plot(*zip(*points), label=label, **style)
    axes.set(xlabel="tokens seen, millions", ylabel="loss, nats per token", xlim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(output, metadata={"Date": None} if output.suffix == ".svg" else None)
