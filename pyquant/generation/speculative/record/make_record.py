"""Make a record: let the target write, and run the draft over what it wrote, in large batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from pyquant.errors import ConfigError
from pyquant.files.growing import go_on, growing
from pyquant.files.output_file import check_output
from pyquant.files.sha256 import files_sha256
from pyquant.generation.sampling.generate import Plan, generate, make_plan
from pyquant.generation.sampling.prompt import read_prompts
from pyquant.generation.sampling.result import Sample
from pyquant.generation.sampling.sampling import Sampling
from pyquant.generation.speculative.record.along import along, along_ngrams
from pyquant.generation.speculative.record.predictions import readers
from pyquant.generation.speculative.record.record import SCHEMA, Along, Source, read_line, read_source
from pyquant.generation.speculative.record.target_texts import header_line, kept_texts
from pyquant.generation.speculative.write.pair import NGRAM, check_pair, require_for_pair
from pyquant.llama.model import Model
from pyquant.models.model_file import AnyModel, open_model

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
            for n, text in enumerate(_along(target, draft, plan, written, wanted, threads), start=1):
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
    wanted: Wanted,
    threads: int | None,
) -> Iterator[Along]:
    if draft is None:
        for sample in written:
            yield along_ngrams(plan.prompts[sample.prompt], sample, wanted.max_tokens)
        return
    with readers(target, draft, plan.n_ctx, threads) as both:
        for sample in written:
            yield along(both, plan.prompts[sample.prompt], sample, wanted.max_tokens, wanted.temperature)
