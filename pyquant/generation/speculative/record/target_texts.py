"""Texts of a target, kept in a file: records of several drafts need them written only once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from pyquant.errors import ConfigError
from pyquant.files.growing import go_on, growing
from pyquant.files.json import parse_json
from pyquant.generation.sampling.generate import Plan, generate
from pyquant.generation.sampling.result import CONTEXT, END, LENGTH, Sample
from pyquant.generation.sampling.sampling import Sampling
from pyquant.llama.model import Model

SCHEMA = "pyquant.target_texts/1"

# (texts done, all texts)
Progress = Callable[[int, int], None]
NAMES = {"version", "target", "draft"}  # may change: what they are names of does not by that


@dataclass(frozen=True, kw_only=True)
class TextSource:
    """What texts are of.

    Attributes
    ----------
    version : str
        Of pyquant.
    target : str
        Name of the model's file.
    target_sha256, prompts_sha256 : str
        Of the files, all shards.
    chat : bool
        Whether prompts are asked by the target's chat template.
    n_samples, max_tokens : int
        Texts for each prompt, and tokens of a text at most.
    temperature : float
        At which the target draws; 0: its most likely token.
    seed : int
    """

    version: str
    target: str
    target_sha256: str
    prompts_sha256: str
    chat: bool
    n_samples: int
    max_tokens: int
    temperature: float
    seed: int


Of = TypeVar("Of", bound=TextSource)


def header_line(source: TextSource, schema: str) -> str:
    """Return the first line of a file."""
    return json.dumps({"schema": schema, **asdict(source)}) + "\n"


def read_header(line: str, path: Path, schema: str, kind: type[Of], command: str) -> Of:
    """Read the first line of a file. Raises ConfigError."""
    try:
        header: Any = parse_json(line)
        found = header.pop("schema")
    except (ValueError, AttributeError, KeyError, TypeError):
        raise ConfigError(f"{path}: is no output of `{command}`") from None
    if found != schema or set(header) != {field.name for field in fields(kind)}:
        raise ConfigError(f"{path}: is of another version, {found!r} instead of {schema!r}; record it anew")
    return kind(**header)


def require_same(path: Path, theirs: TextSource, ours: TextSource) -> None:
    """Raise ConfigError if a file is of other models, prompts or settings, and name what differs."""
    wanted, found = asdict(ours), asdict(theirs)
    different = [name for name in wanted if name not in NAMES and wanted[name] != found[name]]
    if different:
        raise ConfigError(f"{path}: is of other texts: {', '.join(different)} differ; record it anew")


def kept_texts(
    path: Path,
    target: Model,
    plan: Plan,
    sampling: Sampling,
    source: TextSource,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[Sample]:
    """Read texts from a file; if there is none, let the target write them, and keep them there.

    What is interrupted goes on at the next text.

    Parameters
    ----------
    path
        A line that says what it is of, and a line for each text.
    target, plan, sampling
        As `generate` has them.
    source
        What they are of.
    threads
        None: all processors.
    progress

    Returns
    -------
    list of Sample
        In the order of prompts and their numbers; of each its prompt, number, tokens and end.

    Raises
    ------
    ConfigError
        The file is of other texts, or damaged.
    ModelFileError, OutputError, NotEnoughMemory
    """
    if not path.exists():
        _write(path, target, plan, sampling, source, threads, progress)
    return _read(path, target, plan, source)


def _write(
    path: Path,
    target: Model,
    plan: Plan,
    sampling: Sampling,
    source: TextSource,
    threads: int | None,
    progress: Progress | None,
) -> None:
    def is_ours(header: str) -> bool:
        require_same(path, _header(header, path), source)
        return True

    with growing(path, "texts") as file:
        lines = go_on(file, header_line(source, SCHEMA), is_ours)
        there = [_sample(line, path, n, target.n_vocab) for n, line in enumerate(lines, start=2)]
        done = {(text.prompt, text.number) for text in there}
        for n, text in enumerate(generate(target, plan, sampling, threads=threads, done=done), start=1):
            entry = {
                "prompt": text.prompt, "number": text.number, "tokens": text.tokens, "finish": text.finish,
            }  # fmt: skip
            file.write(f"{json.dumps(entry)}\n".encode())
            file.flush()
            if progress:
                progress(len(done) + n, plan.n_texts)


def _read(path: Path, target: Model, plan: Plan, source: TextSource) -> list[Sample]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as texts: {error}") from None
    require_same(path, _header(lines[0] if lines else "", path), source)
    texts = [_sample(line, path, n, target.n_vocab) for n, line in enumerate(lines[1:], start=2)]
    texts.sort(key=lambda text: (text.prompt, text.number))
    wanted = [(prompt, n) for prompt in range(len(plan.prompts)) for n in range(plan.n_samples)]
    if [(text.prompt, text.number) for text in texts] != wanted:
        raise ConfigError(f"{path}: {len(texts)} texts where {len(wanted)} belong, or others; remove it")
    return texts


def _header(line: str, path: Path) -> TextSource:
    return read_header(line, path, SCHEMA, TextSource, "pyquant draft record --texts")


def _sample(line: str, path: Path, number: int, n_vocab: int) -> Sample:
    try:
        entry: Any = parse_json(line)
        tokens = [int(token) for token in entry["tokens"]]
        sample = Sample(int(entry["prompt"]), "", int(entry["number"]), tokens, finish=entry["finish"])
    except (ValueError, KeyError, TypeError, OverflowError):
        raise ConfigError(f"{path}:{number}: is damaged; remove the file") from None
    if sample.finish not in (END, LENGTH, CONTEXT) or not all(0 <= token < n_vocab for token in tokens):
        raise ConfigError(f"{path}:{number}: is damaged; remove the file")
    return sample
