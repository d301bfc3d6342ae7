"""The recipe's commands. All of them work in one folder; `train` makes it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, help="The model bundled: train it, convert it, look at it.")
Folder = Annotated[Path, typer.Argument(help="Where the training lies.")]


@app.command()
def train(
    folder: Folder,
    minutes: Annotated[float, typer.Option(help="How long to train, in all its runs together.")] = 60.0,
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 2,
    seed: Annotated[int, typer.Option(help="Of the weights and the order of the text.")] = 1,
) -> None:
    """Trains, or goes on where an interrupted training stopped; Ctrl-C is safe."""
    from recipe.shape import Shape
    from recipe.train import Training

    Training(folder, Shape(), minutes=minutes, seed=seed, threads=threads).run()


@app.command()
def convert(folder: Folder, output: Annotated[Path, typer.Argument(help="The GGUF file to write.")]) -> None:
    """Writes the last checkpoint as a GGUF file."""
    import torch

    from recipe import gguf_file
    from recipe.shape import Shape
    from recipe.text import load_tokenizer

    weights = torch.load(folder / "checkpoint.pt", weights_only=True)["model"]
    arrays = {name: weight.float().numpy() for name, weight in weights.items()}
    gguf_file.write(output, Shape(), arrays, load_tokenizer(folder))


@app.command()
def baseline(folder: Folder) -> None:
    """Held-out perplexity of n-gram models of each order, as tab-separated lines."""
    import numpy as np

    from recipe.ngram import NGram

    train, held_out = np.load(folder / "train.npy"), np.load(folder / "held_out.npy")
    for order in range(1, 6):
        p = NGram(train, order=order, n_vocab=int(train.max()) + 1).probabilities(held_out)
        print(f"{order}\t{np.exp(-np.log(p).mean()):.2f}")


@app.command()
def complete(
    model: Annotated[Path, typer.Argument(help="A GGUF file of the recipe.")],
    prompt: Annotated[str, typer.Argument(help="Python to go on from.")],
    tokens: Annotated[int, typer.Option(help="How many to add.")] = 100,
    temperature: Annotated[float, typer.Option(help="0: always the likeliest token.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
) -> None:
    """Lets the numpy model go on with a piece of Python."""
    import numpy as np

    from recipe.forward import Forward
    from recipe.text import tokenizer_of

    tokenizer, forward, rng = tokenizer_of(model), Forward(model), np.random.default_rng(seed)
    said = [0, *tokenizer.encode(prompt).ids]
    for _ in range(tokens):
        logits = forward(np.array(said))[-1]
        noise = rng.gumbel(size=logits.shape) if temperature else 0.0
        said.append(int(np.argmax(logits + temperature * noise)))
        if said[-1] == 0:
            break
    print(tokenizer.decode(said[1:]))


@app.command()
def figure(log: Annotated[Path, typer.Argument(help="log.jsonl")], output: Path) -> None:
    """Draws a training's losses."""
    from recipe.figure import draw

    draw(log, output)


if __name__ == "__main__":
    sys.exit(app())
