"""Readers, and how all of a file is read: the list of all mutations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from pyquant.calibration.imatrix import read_imatrix
from pyquant.calibration.sensitivity_file import Sensitivity
from pyquant.card.results import read_results as read_printed
from pyquant.card.write import write_card
from pyquant.evaluate.accuracy import measure_accuracy
from pyquant.evaluate.perplexity import measure_perplexity
from pyquant.evaluate.questions.binary_file import read_multiple_choice
from pyquant.evaluate.questions.text_files import read_hellaswag, read_winogrande
from pyquant.files.text import read_text
from pyquant.generation.grammar.grammar import Language
from pyquant.generation.speculative.policies.costs import read_costs
from pyquant.inspect.histogram import code_counts, count_codes
from pyquant.llama.check_types import check_types
from pyquant.llama.check_vocabulary import check_vocabulary
from pyquant.models.info import model_info
from pyquant.models.model_file import ModelFile
from pyquant.models.pqz.as_gguf import as_gguf
from pyquant.models.pqz.pqz_file import PqzFile, scratch_file
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.fold_table import read_table
from pyquant.schemes.recipe_file import read_recipe
from pyquant.schemes.settings import make_mode, read_config
from pyquant.schemes.table_set import read_table_set
from pyquant.schemes.tensor_types import read_tensor_types
from pyquant.study.config import read_study
from pyquant.study.items import read_items
from pyquant.study.report.html import report
from pyquant.study.report.tables import results_table
from pyquant.study.results.read import read_results
from pyquant.study.sources import read_sources
from pyquant.study.store import Store
from tests.support.stats import everything
from tests.trial.binary_mutations import HeaderMutation, PqzMutation, StatsMutation
from tests.trial.folder_mutations import FolderMutation, RunMutation
from tests.trial.generation import asked, cached, generated, imported, measured_on, read_search, templated
from tests.trial.grammars import followed
from tests.trial.language_mutations import GBNF, JINJA, LARK, REGEX, LanguageMutation, SchemaMutation
from tests.trial.left_behind import gone_on, stopped_early, stopped_gradients, stopped_late
from tests.trial.mutations import Mutation, Use
from tests.trial.npz_mutations import NpzMutation
from tests.trial.samples import Samples
from tests.trial.text_mutations import JsonLinesMutation, JsonMutation, TextMutation

STAGES, GRADIENTS = "killed/.out.gguf.stages", "stopped-gradients"
MOST = 1 << 26  # bytes that are expanded


def mutations() -> list[Mutation]:
    """One for each kind of file, the cheap ones more often."""
    return [
        HeaderMutation("gguf", "GGUF: header, metadata, info", 5, "model.gguf", always(read_model)),
        HeaderMutation("gguf-quantized", "GGUF in blocks: histogram", 20, "quantized.gguf", always(count)),
        HeaderMutation("gguf-table", "GGUF of Q4_T: histogram", 20, "table.gguf", always(count)),
        HeaderMutation("gguf-quantize", "GGUF: quantize", 50, "model.gguf", always(quantized)),
        HeaderMutation("gguf-llama", "GGUF: llama.cpp runs it", 500, "model.gguf", scored),
        PqzMutation(
            "pqz", "pqz of a stock type, checksums right", 20, "quantized.pqz", expanded("quantized.pqz")
        ),
        PqzMutation("pqz-uniform", "pqz of mode ecsq, checksums right", 20, "ecsq.pqz", expanded("ecsq.pqz")),
        StatsMutation("stats", "HESSIAN, checksums right", 20, "stats.gguf", always(everything)),
        HeaderMutation("imatrix", "importance matrix", 10, "imatrix.gguf", always(read_imatrix)),
        HeaderMutation("imatrix-quantize", "importance matrix: quantize", 50, "imatrix.gguf", weighted),
        Mutation("imatrix-legacy", "importance matrix, old format", 10, "imatrix.dat", always(read_imatrix)),
        Mutation("spool", "sums of a stopped calibration", 5000, "stopped/.stats.spool", stopped_early),
        NpzMutation(
            "squares", "sums of squares of one", 2000, "stopped-late/.stats.squares.npz", stopped_late
        ),
        NpzMutation(
            "gradients",
            "sums of gradients of one",
            2000,
            f"{GRADIENTS}/.stats.output-side.npz",
            stopped_gradients,
        ),
        JsonMutation("stages", "work folder of a killed run", 1000, f"{STAGES}/state.json", gone_on),
        TextMutation("tensors", "checkpoint of a killed stage", 1000, f"{STAGES}/GPTQ.tensors", gone_on),
        TextMutation("mode", "TOML: configuration of a mode", 10, "mode.toml", always(read_mode)),
        TextMutation("study", "TOML: study", 20, "study.toml", always(read_study)),
        TextMutation("table", "TOML: table", 10, "table.toml", always(read_tables)),
        TextMutation("tables", "TOML: tables by tensor", 10, "set.toml", always(read_table_set)),
        TextMutation("sensitivity", "TOML: sensitivities", 10, "sensitivity.toml", always(Sensitivity.read)),
        JsonMutation("histogram", "JSON: counted codes", 50, "histogram.json", always(code_counts)),
        JsonMutation("hashes", "results folder: hashes.json", 50, "results/hashes.json", hashed),
        FolderMutation("study-json", "results folder: study.json", 100, "results/study.json", always(shown)),
        RunMutation(
            "run-json", "results folder: a result, digest right", 200, "results/quality", always(shown)
        ),
        RunMutation(
            "drafting", "results folder: of drafts", 500, "generation/results/drafting", always(reported)
        ),
        RunMutation(
            "structured", "results folder: of forms", 500, "generation/results/structured", always(reported)
        ),
        RunMutation("report", "results folder: the report of it", 10000, "results/quality", always(reported)),
        NpzMutation("items", "results folder: results per item", 10, "items.npz", always(read_items)),
        TextMutation("text", "a text to evaluate on", 20, "text.txt", always(read_text)),
        TextMutation("hellaswag", "HellaSwag's questions", 20, "hellaswag.txt", asks(read_hellaswag)),
        TextMutation("winogrande", "Winogrande's questions", 20, "winogrande.csv", asks(read_winogrande)),
        Mutation("choices", "multiple-choice questions", 20, "choices.bin", asks(read_multiple_choice)),
        Mutation("choices-asked", "multiple-choice questions, asked", 1000, "choices.bin", answered),
        JsonMutation("printed", "JSON: results for a card", 20, "compared.json", always(read_card)),
        JsonMutation("card", "JSON: results, the card of them", 1000, "compared.json", always(carded)),
        TextMutation("recipe", "TOML: recipe", 20, "recipe.toml", typed),
        TextMutation("types", "types by patterns, as llama-quantize reads them", 50, "types.txt", matched),
        TextMutation("study-wing", "TOML: study that generates", 20, "generating.toml", always(read_study)),
        JsonLinesMutation(
            "prompts", "JSON lines: prompts and chats, their tokens", 10, "prompts.jsonl", asked
        ),
        LanguageMutation("template", "chat template", 10, "template.jinja", templated, JINJA),
        HeaderMutation("gguf-generate", "GGUF: it answers, by its template", 200, "chat.gguf", generated),
        JsonMutation("draft-costs", "JSON: costs of drafting", 20, "costs.json", always(read_costs)),
        JsonMutation(
            "draft-search", "JSON: policies that were found", 20, "search.json", always(read_search)
        ),
        JsonLinesMutation(
            "series", "JSON lines: completions of a stopped run", 2000, "series.jsonl", measured_on
        ),
        LanguageMutation(
            "lark", "grammar in Lark: llguidance", 20, "grammar.lark", followed("llguidance"), LARK
        ),
        LanguageMutation("lark-lr", "grammar in Lark: lr", 100, "grammar.lark", followed("lr"), LARK),
        LanguageMutation(
            "lark-import", "grammar that another imports: lr", 100, "words.lark", imported, LARK
        ),
        LanguageMutation("gbnf", "grammar in GBNF: llama.cpp", 20, "grammar.gbnf", followed("gbnf"), GBNF),
        LanguageMutation(
            "regex", "regular expression", 20, "regex.txt", followed("llguidance", Language.REGEX), REGEX
        ),
        SchemaMutation(
            "schema", "JSON schema", 20, "schema.json", followed("llguidance", Language.JSON_SCHEMA)
        ),
        Mutation("grammar-cache", "a grammar in the cache", 50, "*.grammar", cached),
    ]


def pqz(name: str, what: str, sample: str) -> Mutation:
    """Damages a pqz file."""
    return PqzMutation(name, what, 20, sample, expanded(sample))


def always(use: Use) -> Callable[[Samples], Use]:
    """A use that needs no other samples."""
    return lambda samples: use


def asks(read: Callable[[Path, bytes], object]) -> Callable[[Samples], Use]:
    return always(lambda path: read(path, path.read_bytes()))


def read_model(path: Path) -> None:
    opened = ModelFile(path)
    for key in opened.keys:
        opened.get(key)
    check_types(opened)
    check_vocabulary(opened)
    json.dumps(model_info(opened).to_json(), allow_nan=False)


def count(path: Path) -> None:
    count_codes(path, threads=1)


def expanded(source: str) -> Callable[[Samples], Use]:
    """Expands a damaged pqz file; where that works, the bytes have to be those of the sound one, `source`."""

    def make(samples: Samples) -> Use:
        with as_gguf(ModelFile(samples.folder / source)) as stock:
            sound = stock.read_bytes()

        def use(path: Path) -> None:
            read_model(path)
            packed = PqzFile(path)
            if packed.n_bytes > MOST:
                return
            packed.verify(1)
            with scratch_file() as file:
                packed.expand(file.fileno(), 1)
                if file.read() != sound:
                    raise AssertionError("expanded to other bytes without an error")

        return use

    return make


def read_mode(path: Path) -> None:
    make_mode(read_config(path), str(path))


def read_tables(path: Path) -> None:
    read_table(path)
    read_table_set(path)


def typed(samples: Samples) -> Use:
    """A recipe, and the types that it gives a model."""
    model = ModelFile(samples.model_gguf)
    return lambda path: read_recipe(path).types_for(model, path)


def matched(samples: Samples) -> Use:
    """Patterns of tensors, and the recipe that they amount to."""
    model = ModelFile(samples.model_gguf)
    return lambda path: read_tensor_types(path, model, "Q4_K_M")


def quantized(path: Path) -> None:
    mode = make_mode({"mode": "ggml:Q4_K"})
    quantize_model(path, path.with_name("out.gguf"), mode, threads=1, force=True)


def weighted(samples: Samples) -> Use:
    """A quantization that an importance matrix weighs."""

    def use(path: Path) -> None:
        mode = make_mode({"mode": "ggml:Q4_K", "imatrix": path})
        quantize_model(samples.model_gguf, path.with_name("out.gguf"), mode, threads=1, force=True)

    return use


def scored(samples: Samples) -> Use:
    return lambda path: measure_perplexity(path, samples.text_txt, n_ctx=64, n_chunks=1, threads=1)


def answered(samples: Samples) -> Use:
    """Questions, and a model's answers."""

    def use(path: Path) -> None:
        measure_accuracy(samples.model_gguf, [], {"multiple_choice": path}, n_questions=3, threads=1)

    return use


def read_card(path: Path) -> None:
    read_printed([path])


def carded(path: Path) -> None:
    write_card([path], path.with_name("card.md"), force=True)


def hashed(samples: Samples) -> Use:
    return lambda path: read_sources([samples.model_gguf], path, None)


def shown(path: Path) -> None:
    """All that `study ls`, `show` and `validate` read."""
    store = Store(_folder_of(path))
    for key in store.finished():
        store.problem(key)
    results_table(read_results(store))
    for key in store.finished():
        store.read(key)


def reported(path: Path) -> None:
    report(Store(_folder_of(path)))


def _folder_of(path: Path) -> Path:
    return next(folder for folder in path.parents if folder.name == "results")
