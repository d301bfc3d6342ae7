"""Measure what a calibration on one text is worth on others: KLD of IQ4_NL by GPTQ, beside an
importance matrix of the text that is measured on.

    python analysis/calibration_texts.py MODEL FOLDER --text wiki CALIBRATE.txt MEASURE.txt [--text ...]

Beside the texts that are named, it calibrates on what `pyquant.calibration.sources` has, and measures on code
and, if the model has a chat template, on dialogues. In these the user asks about modules of Python's library
that are not calibrated on, and the model answers. What is in FOLDER already is not made again.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.sources import CODE, DIALOGUES, PROGRAMS, PROSE, TEXTS, dialogue_marks
from pyquant.data import excerpts
from pyquant.evaluate.compare import compare_models
from pyquant.files.text import Text, make_text, read_text
from pyquant.llama.model import Model
from pyquant.llama.own_texts import OwnText, write_tokens
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode

SEED = 7  # of answers; not that of what is calibrated on


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--text", nargs=3, action="append", default=[], metavar=("NAME", "CALIBRATE", "MEASURE")
    )
    parser.add_argument("--ctx", type=int, default=512)
    parser.add_argument("--chunks", type=int, default=16, help="of each text to calibrate on")
    parser.add_argument("--measured", type=int, default=4, help="chunks of each text to measure on")
    parser.add_argument(
        "--curve", type=int, nargs="*", default=[], help="chunks of the mixture to try as well"
    )
    parser.add_argument("--threads", type=int)
    lab = Lab(parser.parse_args())
    lab.run()


class Lab:
    """The files of one model in a folder, each made when it is first asked for."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.model, self.folder = arguments.model, arguments.folder
        self.chunks, self.measured, self.threads = arguments.chunks, arguments.measured, arguments.threads
        self.curve, self.n_ctx = arguments.curve, arguments.ctx
        self.calibrated: dict[str, Any] = {name: read_text(path) for name, path, _ in arguments.text}
        self.calibrated |= {"code": CODE, "prose": PROSE, "texts": TEXTS, "programs": PROGRAMS}
        self.calibrated["dialogues"] = DIALOGUES
        self.matching = {name: (name, Path(path)) for name, _, path in arguments.text}
        self.matching["code"] = "code", self.file("code.txt", _held_out_code)
        with Model(self.model) as model:
            marks = dialogue_marks(model)
        if marks:
            self.matching["chat"] = "dialogues", self.file("chat.txt", lambda path: self._chat(path, *marks))

    def file(self, name: str, make: Callable[[Path], object]) -> Path:
        path = self.folder / name
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            print(name, "...", flush=True)
            make(path)
        return path

    def run(self) -> None:
        quantized = {
            f"imatrix {name}": self.quantize(f"imatrix-{name}") for name, _ in self.matching.values()
        }
        quantized |= {name: self.quantize(name) for name in self.calibrated}
        for n in sorted({self.chunks, *self.curve}):
            quantized[f"mixture of {n}"] = self.quantize(f"mixture-{n}")
        print(f"{'calibrated on':<20}", *(f"{name:>12}" for name in self.matching))
        klds = {name: self.measure(name, quantized) for name in self.matching}
        for name in quantized:
            ratios = [
                klds[text][name] / klds[text][f"imatrix {matching}"]
                for text, (matching, _) in self.matching.items()
            ]
            print(f"{name:<20}", *(f"{ratio:12.3f}" for ratio in ratios))

    def stats(self, name: str) -> Path:
        def make(path: Path) -> None:
            texts = [self.calibrated[name]] if name in self.calibrated else None
            n_chunks = self.chunks if texts else int(name.partition("-")[2])
            imatrix = path.with_suffix(".imatrix")
            calibrate_model(
                self.model, texts, path, n_ctx=self.n_ctx, n_chunks=n_chunks, threads=self.threads,
                imatrix=imatrix, force=True,
            )  # fmt: skip

        return self.file(f"{name}.stats", make)

    def quantize(self, name: str) -> Path:
        def make(path: Path) -> None:
            stats = self.stats(name.removeprefix("imatrix-"))
            of_diagonals = {"imatrix": stats.with_suffix(".imatrix")}
            known = of_diagonals if name.startswith("imatrix-") else {"hessian": stats}
            mode = make_mode({"mode": "ggml:IQ4_NL", **known})
            quantize_model(self.model, path, mode, threads=self.threads)

        return self.file(f"{name}.gguf", make)

    def measure(self, text: str, quantized: dict[str, Path]) -> dict[str, float]:
        """The mean KLD of each quantized model on a text."""
        results = self.folder / f"{text}.json"
        known = json.loads(results.read_text()) if results.exists() else {}
        missing = [name for name in quantized if name not in known]
        if missing:
            path = self.matching[text][1]
            measured = Text(path, path.read_bytes(), marked=True) if text == "chat" else read_text(path)
            found = compare_models(
                self.model, [quantized[name] for name in missing], measured,
                n_ctx=self.n_ctx, n_chunks=self.measured, threads=self.threads,
            ).to_json()  # fmt: skip
            known |= {name: of["kld"]["mean"] for name, of in zip(missing, found["candidates"])}
            results.write_text(json.dumps(known, indent=1))
        return known

    def _chat(self, path: Path, opening: list[int], answer: list[int], question: list[int]) -> None:
        with Model(self.model) as model:
            prompts = itertools.cycle(_questions())

            def begin(n_ends: int) -> list[int]:
                asked = model.vocabulary.tokenize(next(prompts).encode(), ends=False).tolist()
                return [*(question if n_ends else opening), *asked, *answer]

            n_chunks = self.measured + 1  # spelled and cut again, tokens may be fewer
            texts = [OwnText(SEED, number, begin) for number in range(n_chunks)]
            tokens = write_tokens(model, texts, self.n_ctx, threads=self.threads)
            spelled = (model.vocabulary.piece(token, special=True) for token in tokens.ravel())
            path.write_bytes(b"".join(spelled))


def _questions() -> Iterator[str]:
    """Questions that a reader may ask of the documentation of Python's library."""
    forms = itertools.cycle(
        (
            "I do not understand this. Can you explain it in simple words?\n\n{}",
            "Please give me a short summary of the following text.\n\n{}",
            "What would I need this for? Give me an example from everyday work.\n\n{}",
        )
    )
    for text in excerpts.prose(held_out=True):
        yield next(forms).format(text[:400].rpartition("\n")[0] or text[:400])


def _held_out_code(path: Path) -> None:
    text = "".join(text[:2500] for text in excerpts.code(held_out=True))
    path.write_bytes(make_text(path, text.encode()).data)


if __name__ == "__main__":
    main()
