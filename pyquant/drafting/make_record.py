"""Make a record: let the target write, and run both models over what it wrote, in large batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.drafting.ngram_draft import NgramDraft
from pyquant.drafting.pair import NGRAM, check_pair, require_for_pair
from pyquant.drafting.record import SCHEMA, Along, Source, read_line, read_source
from pyquant.drafting.target_texts import header_line, kept_texts
from pyquant.errors import ConfigError, ModelFileError
from pyquant.files.growing import go_on, growing
from pyquant.files.output_file import check_output
from pyquant.files.sha256 import files_sha256
from pyquant.generate.generate import Plan, generate, make_plan
from pyquant.generate.prompt import read_prompts
from pyquant.generate.result import END, Sample
from pyquant.generate.sampling import Sampling
from pyquant.llama.model import Context, Model
from pyquant.models.model_file import AnyModel, open_model

REPEATED = 6  # tokens that come again are a repetition, as in entropy drafting's experiments
PORTION = 128  # tokens whose logits of both models are in memory at a time

# (texts done, all texts)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Wanted:
    """What a record is to be made of.

    Attributes
    ----------
    target, draft
        Models with one vocabulary; the draft may be "ngram".
    prompts : Path
        A JSON object in each line.
    chat : bool
        Ask by the target's chat template.
    n_samples, max_tokens : int
        Texts for each prompt, and tokens of a text at most.
    temperature : float
        At which the target draws, from all tokens; 0: its most likely one.
    seed : int
    """

    target: AnyModel
    draft: AnyModel
    prompts: Path
    chat: bool = False
    n_samples: int = 1
    max_tokens: int = 128
    temperature: float = 0.0
    seed: int = 0

    def source(self) -> Source:
        """Return what the record will say that it is of; hashes all files."""
        target = open_model(self.target)
        draft = None if self.draft == NGRAM else open_model(self.draft)
        return Source(
            version=version("pyquant"),
            target=target.path.name,
            draft=draft.path.name if draft else NGRAM,
            target_sha256=files_sha256(list(target.paths)),
            draft_sha256=files_sha256(list(draft.paths)) if draft else NGRAM,
            prompts_sha256=files_sha256([self.prompts]),
            chat=self.chat,
            n_samples=self.n_samples,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            seed=self.seed,
        )

    @property
    def sampling(self) -> Sampling:
        """How the target draws."""
        return Sampling(self.temperature, top_k=0, top_p=1, min_p=0, seed=self.seed)


def make_record(
    wanted: Wanted,
    path: Path,
    *,
    texts: Path | None = None,
    force: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> int:
    """Write a record; one that was interrupted goes on at the next text.

    Until it is complete it stands beside, as `.NAME.partial`.

    Parameters
    ----------
    wanted
    path
        A file to be written: a line that says what it is of, and a line for each text.
    texts
        A file with the target's texts, which is written if there is none: records of several drafts share it.
        None: the target writes them for this record.
    force
        Replace an existing file, and begin anew where one was interrupted that is of something else.
    threads
        None: all processors.
    progress

    Returns
    -------
    int
        Texts that were there already.

    Raises
    ------
    ConfigError
        The vocabularies differ, or `texts` or what was interrupted is of something else.
    ModelFileError, TextError, OutputError, NotEnoughMemory
    """
    sampling = wanted.sampling
    check_output(path, sources=[texts] if texts else [], force=force)
    of_ngrams = wanted.draft == NGRAM
    if not of_ngrams:
        check_pair(wanted.target, wanted.draft)
    prompts = read_prompts(wanted.prompts)
    asked = [prompt.chat() for prompt in prompts] if wanted.chat else prompts
    source = wanted.source()
    with Model(wanted.target) as target, nullcontext() if of_ngrams else Model(wanted.draft) as draft:
        plan = make_plan(target, asked, n_samples=wanted.n_samples, max_tokens=wanted.max_tokens)
        if not of_ngrams:
            require_for_pair(wanted.target, wanted.draft, plan.n_ctx)
        n_to_write = plan.n_texts if texts and not texts.exists() else 0

        def tell(done: int) -> None:
            if progress:
                progress(done, n_to_write + plan.n_texts)

        with growing(path, "a record") as file:
            lines = go_on(file, header_line(source, SCHEMA), lambda line: _is_of(line, path, source, force))
            there = [read_line(line, path, n) for n, line in enumerate(lines, start=2)]
            done = {(text.prompt, text.sample) for text in there}
            if texts is None:
                written: Iterable[Sample] = generate(target, plan, sampling, threads=threads, done=done)
            else:
                kept = kept_texts(
                    texts, target, plan, sampling, source.of_texts(),
                    threads=threads, progress=lambda n, of: tell(n),
                )  # fmt: skip
                written = [text for text in kept if (text.prompt, text.number) not in done]
            for n, text in enumerate(_along(target, draft, plan, written, sampling, threads), start=1):
                file.write(text.to_line().encode())
                file.flush()
                tell(n_to_write + len(done) + n)
    return len(done)


def _is_of(header: str, path: Path, source: Source, force: bool) -> bool:
    try:
        if read_source(header, path) == source:
            return True
    except ConfigError:
        if not force:
            raise
    if not force:
        raise ConfigError(
            f"{path}: an interrupted record of other models, prompts or settings, or by another version, is "
            f"beside it; give the same ones to go on, --force to begin anew, or another name"
        )
    return False


def _along(
    target: Model,
    draft: Model | None,
    plan: Plan,
    written: Iterable[Sample],
    sampling: Sampling,
    threads: int | None,
) -> Iterator[Along]:
    with (
        target.context(n_ctx=plan.n_ctx, threads=threads) as of_target,
        draft.context(n_ctx=plan.n_ctx, threads=threads) if draft else nullcontext() as of_draft,
    ):
        for sample in written:
            prompt = plan.prompts[sample.prompt]
            if of_draft is None:
                yield along_ngrams(of_target, prompt, sample)
            else:
                yield along(of_target, of_draft, prompt, sample, sampling.temperature)


def along(
    target: Context, draft: Context, prompt: NDArray[np.int32], sample: Sample, temperature: float
) -> Along:
    """Run a target and a draft over a text of the target's, as if nothing had been run before.

    Parameters
    ----------
    target, draft
        With one sequence each, and room for the prompt and its text.
    prompt : (n,) int32
    sample
        What the target wrote after it.
    temperature
        At which it drew.

    Raises
    ------
    ModelFileError
        Logits are not finite.
    """
    text = np.array(sample.tokens, np.int32)
    columns: dict[str, list[NDArray[np.float64]]] = {
        name: [] for name in ("entropy", "top_p", "token_p", "accepted", "overlap")
    }
    at = 0
    for both in _predictions([target, draft], prompt, sample):
        tokens = text[at : at + len(both[0])]
        at += len(tokens)
        if len(tokens) < len(both[0]):  # the text's end, whose token is not among the sample's
            tokens = np.append(tokens, both[0][-1].argmax()).astype(np.int32)
        _measure(columns, both[0], both[1], tokens, temperature, target.n_threads)
    joined = {name: np.concatenate(parts) if parts else np.empty(0) for name, parts in columns.items()}
    if not all(np.isfinite(values).all() for values in joined.values()):
        raise ModelFileError(f"{draft.model.path}: not finite logits: the model is broken")
    fresh = _first_repetition(prompt.tolist(), sample.tokens)
    return Along(sample.prompt, sample.number, sample.finish == END, **joined, fresh=fresh)


def along_ngrams(target: Context, prompt: NDArray[np.int32], sample: Sample) -> Along:
    """Look up along a text of a target's what followed the same tokens before.

    Parameters
    ----------
    target
        With one sequence, and room for the prompt and its text; it says how likely it takes what is proposed.
    prompt : (n,) int32
    sample
        What the target wrote after it.

    Raises
    ------
    ModelFileError
        Logits are not finite.
    """
    draft, tokens = NgramDraft(), prompt.tolist()
    written = [*sample.tokens, *([None] if sample.finish == END else [])]
    found = []
    for token in written:
        found.append(draft.propose(tokens, None, 0.0))
        tokens.append(token)
    arrays = {
        name: np.array([getattr(each, name) if each else 0.0 for each in found], float)
        for name in ("entropy", "top_p", "token_p")
    }
    accepted = np.array([each is not None and each.token == token for each, token in zip(found, written)])
    looked_up = np.array([each.token if each else 0 for each in found], np.int32)
    overlap, at = np.zeros(len(found)), 0
    for (logits,) in _predictions([target], prompt, sample):
        part = slice(at, at + len(logits))
        unlikely = _core.negative_log_likelihood(logits, looked_up[part], target.n_threads)
        overlap[part] = np.exp(-unlikely) * (arrays["top_p"][part] > 0)
        at += len(logits)
    if not np.isfinite(overlap).all():
        raise ModelFileError(f"{target.model.path}: not finite logits: the model is broken")
    fresh = _first_repetition(prompt.tolist(), sample.tokens)
    ended = sample.finish == END
    return Along(
        sample.prompt, sample.number, ended, **arrays,
        accepted=accepted.astype(float), overlap=overlap, fresh=fresh,
    )  # fmt: skip


def _predictions(
    contexts: Sequence[Context], prompt: NDArray[np.int32], sample: Sample
) -> Iterator[list[NDArray[np.float32]]]:
    """Yield what each context says of the tokens behind a prompt: (n, n_vocab) float32, some at a time."""
    for context in contexts:
        context.clear()
    text = np.array(sample.tokens, np.int32)
    n_written = len(text) + (sample.finish == END)
    read = np.concatenate([prompt, text])[: len(prompt) + n_written - 1]
    # Portions of one size: a short last one would be computed by other kernels, those for few tokens.
    size = math.ceil(len(read) / math.ceil(len(read) / PORTION))
    for begin in range(0, len(read), size):
        positions = np.arange(len(read))[begin : begin + size]
        wanted = positions >= len(prompt) - 1
        said = [
            context.run(read[positions], positions, np.zeros_like(positions), wanted) for context in contexts
        ]
        if wanted.any():
            yield said


def _first_repetition(prompt: list[int], text: list[int]) -> int | None:
    """Return which token of a text is the first to end REPEATED tokens that were there before."""
    tokens, seen = prompt + text, set()
    for end in range(REPEATED, len(tokens) + 1):
        last = tuple(tokens[end - REPEATED : end])
        if last in seen and end > len(prompt):
            return end - 1 - len(prompt)
        seen.add(last)
    return None


def _measure(
    columns: dict[str, list[NDArray[np.float64]]],
    target: NDArray[np.float32],
    draft: NDArray[np.float32],
    tokens: NDArray[np.int32],
    temperature: float,
    threads: int,
) -> None:
    top = draft.argmax(axis=1).astype(np.int32)
    top_p = np.exp(-_core.negative_log_likelihood(draft, top, threads))
    columns["entropy"].append(_core.entropy(draft, threads))
    columns["top_p"].append(top_p)
    if temperature == 0:
        columns["token_p"].append(top_p)
        columns["accepted"].append((top == tokens).astype(np.float64))
    else:
        target, draft = (
            logits if temperature == 1 else (logits / temperature).astype(np.float32)
            for logits in (target, draft)
        )
        in_target, in_draft = (
            _core.negative_log_likelihood(logits, tokens, threads) for logits in (target, draft)
        )
        columns["token_p"].append(np.exp(-in_draft))
        columns["accepted"].append(np.exp(np.minimum(0, in_target - in_draft)))
    columns["overlap"].append(_core.compare_logits(target, draft, tokens, threads)[3])
