"""Training: `python -m recipe train FOLDER --minutes 60`.

Everything goes into FOLDER: tokenizer.json, tokens, log.jsonl and checkpoint.pt. The same command
again continues an interrupted training; SIGTERM and Ctrl-C end one after a checkpoint. The learning
rate follows the clock, so that training ends well at the time that it was given.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyquant.data.stdlib import documents
from recipe.model import Llama
from recipe.optimizer import optimizers
from recipe.shape import Shape
from recipe.text import load_tokenizer, tokens_of, train_tokenizer

BATCH = 8  # sequences in a step
WARM_UP, DECAY_FROM = 0.02, 0.35  # shares of the time
CHECKPOINT_SECONDS, VALIDATION_SECONDS, LOG_STEPS = 180.0, 120.0, 20
VALIDATION_SEQUENCES = 48


def prepare(folder: Path, shape: Shape) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """The tokens of both sides, (n_train,) and (n_held_out,); made once."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "held_out.npy").exists():
        train, held_out = documents(held_out=False), documents(held_out=True)
        train_tokenizer(train, shape.n_vocab).save(str(folder / "tokenizer.json"))
        tokenizer = load_tokenizer(folder)
        np.save(folder / "train.npy", tokens_of(tokenizer, train))
        np.save(folder / "held_out.npy", tokens_of(tokenizer, held_out))
    return np.load(folder / "train.npy"), np.load(folder / "held_out.npy")


def windows(tokens: NDArray[np.uint16], n_ctx: int, seed: int) -> NDArray[np.uint16]:
    """(n, n_ctx + 1) one epoch: the tokens cut at a random offset, in random order.

    Every window begins with token 0 in place of its first, as llama-perplexity's chunks do.
    """
    rng = np.random.default_rng(seed)
    offset = int(rng.integers(n_ctx))
    n = (len(tokens) - offset - 1) // n_ctx
    starts = offset + n_ctx * rng.permutation(n)
    cut = tokens[starts[:, None] + np.arange(n_ctx + 1)]
    cut[:, 0] = 0
    return cut


def rate(progress: float) -> float:
    """The learning rate, as a share of its highest, at a share of the time."""
    if progress < WARM_UP:
        return max(progress / WARM_UP, 0.02)
    if progress < DECAY_FROM:
        return 1.0
    return max(1.0 - (progress - DECAY_FROM) / (1.0 - DECAY_FROM), 0.0)


class Training:
    def __init__(self, folder: Path, shape: Shape, *, minutes: float, seed: int, threads: int) -> None:
        torch.manual_seed(seed)
        torch.set_num_threads(threads)
        self.folder, self.shape, self.seed = folder, shape, seed
        self.budget = 60.0 * minutes
        self.tokens, held_out = prepare(folder, shape)
        self.validation = windows(held_out, shape.n_ctx, seed=0)[:VALIDATION_SEQUENCES]
        self.model = Llama(shape)
        self.optimizers = optimizers(self.model)
        self.highest = [[g["lr"] for g in o.param_groups] for o in self.optimizers]
        self.step, self.spent = 0, 0.0
        self.loss = torch.compile(self.model.loss)
        self.stopped = False
        if (folder / "checkpoint.pt").exists():
            self.load()

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.stop)
        saved = validated = began = time.monotonic()
        spent_before, first, losses = self.spent, self.step, []
        for batch in self.batches():
            if self.stopped or self.spent >= self.budget:
                break
            losses.append(self.train_on(batch))
            self.step += 1
            now = time.monotonic()
            self.spent = spent_before + now - began
            if now - validated > VALIDATION_SECONDS:
                self.log(validation_loss=self.validate())
                validated = now
            if now - saved > CHECKPOINT_SECONDS:
                self.save()
                saved = now
            if self.step % LOG_STEPS == 0:
                per_second = (self.step - first) * BATCH * self.shape.n_ctx / (now - began)
                self.log(training_loss=float(np.mean(losses)), tokens_per_second=round(per_second))
                losses.clear()
        self.log(validation_loss=self.validate(), final=not self.stopped)
        self.save()

    def batches(self) -> Iterator[Tensor]:
        """Batches from where the training stands: (BATCH, n_ctx + 1) each."""
        # The number is the same in every epoch, although its offset may cost it a window.
        per_epoch = (len(self.tokens) // self.shape.n_ctx - 1) // BATCH
        while True:
            epoch, first = divmod(self.step, per_epoch)
            cut = windows(self.tokens, self.shape.n_ctx, self.seed + 1 + epoch)
            for i in range(first, per_epoch):
                yield torch.from_numpy(cut[i * BATCH : (i + 1) * BATCH].astype(np.int64))

    def train_on(self, batch: Tensor) -> float:
        share = rate(self.spent / self.budget)
        for optimizer, highest in zip(self.optimizers, self.highest):
            for group, lr in zip(optimizer.param_groups, highest):
                group["lr"] = share * lr
        with torch.autocast("cpu", torch.bfloat16):
            loss = self.loss(batch[:, :-1], batch[:, 1:])
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        return loss.item()

    @torch.no_grad()
    def validate(self) -> float:
        cut = torch.from_numpy(self.validation.astype(np.int64))
        with torch.autocast("cpu", torch.bfloat16):
            losses = [self.loss(x[:, :-1], x[:, 1:]).item() for x in cut.split(BATCH)]
        return math.fsum(losses) / len(losses)

    def log(self, **values: float) -> None:
        tokens = self.step * BATCH * self.shape.n_ctx
        line = {"step": self.step, "tokens": tokens, "seconds": round(self.spent, 1), **values}
        with (self.folder / "log.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        told = "  ".join(f"{key} {value:.6g}" for key, value in line.items())
        left = max(self.budget - self.spent, 0.0) / 60
        print(f"{told}  {left:.1f} min left", file=sys.stderr, flush=True)

    def stop(self, *_: object) -> None:
        self.stopped = True

    def save(self) -> None:
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": self.step,
            "spent": self.spent,
        }
        beside = self.folder / "checkpoint.pt.partial"
        torch.save(state, beside)
        os.replace(beside, self.folder / "checkpoint.pt")

    def load(self) -> None:
        state = torch.load(self.folder / "checkpoint.pt", weights_only=True)
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        self.step, self.spent = state["step"], state["spent"]
