"""Named texts, chats and caches in a study: what `pyquant compare` says of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pyquant.errors import ConfigError, ModelFileError, TextError
from pyquant.evaluate.bundled import OWN_CHAT
from pyquant.evaluate.compare import compare_models
from pyquant.llama.cache_types import CacheTypes
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from pyquant.study.config import read_study
from pyquant.study.plan import make_plan
from pyquant.study.results.paired import paired_rows, paired_table, ranked
from pyquant.study.results.read import ModelResults, read_results
from pyquant.study.run import run_study
from pyquant.study.store import Store
from pyquant.study.study_text import study_texts
from tests.support.chat import ChatModel, turns, write_chat
from tests.support.models import Model
from tests.support.studies import contents

STUDY = """
ctx = 64
chunks = 3
measure = ["size", "quality"]
caches = ["q8_0/q4_0"]
[texts]
rain = "text.txt"
[[quantizer]]
mode = ["q4_0", "q8_0"]
"""
NAMES = ["rain", "code", "prose", "chinese", OWN_CHAT]  # of the bundled texts beside
CHUNKS = {"n_ctx": 64, "n_chunks": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that has run: heads have 32 numbers, a block of the cache's types."""
    folder = tmp_path_factory.mktemp("texts")
    Model(n_embd=128, n_ff=128, n_head_kv=2, n_layer=1).write(folder / "model.gguf")
    (folder / "text.txt").write_text("the hen ate in the rain and then the tin ant ate the tea\n" * 60)
    write_chat(folder / "chat.jsonl", turns("the rain", "then ate the hen"))
    (folder / "study.toml").write_text(STUDY)
    run(folder, folder / "results")
    return folder


def run(folder: Path, results: Path) -> int:
    study = read_study(folder / "study.toml", models=[folder / "model.gguf"])
    return run_study(study, results, workers=1).made


def model_of(folder: Path) -> ModelResults:
    return read_results(Store(folder / "results")).models[0]


def test_it_is_what_compare_says(folder: Path, tmp_path: Path) -> None:
    model = model_of(folder)
    assert model.texts == ["rain", "rain, KV q8_0/q4_0"]
    files = [tmp_path / f"{mode}.gguf" for mode in ("q4_0", "q8_0")]
    for file in files:
        quantize_model(folder / "model.gguf", file, make_mode({"mode": file.stem}))
    said = compare_models(
        folder / "model.gguf", files, folder / "text.txt", caches=[CacheTypes("q8_0", "q4_0")], **CHUNKS
    )
    of_study = [model.row(label).result("quality", 0) for label in ("q4_0", "q8_0")]
    of_study += [model.row(label).result("quality", 1) for label in ("unquantized", "q4_0", "q8_0")]
    assert [one["kld"] for one in of_study] == [one["kld"] for one in said.to_json()["candidates"]]
    (pair,) = (pair for pair in said.paired if {pair.model, pair.other} == set(map(str, files)))
    (ours,) = paired_rows(ranked(model, 0))
    assert abs(pair.difference) == pytest.approx(ours["difference"], rel=1e-5)
    assert pair.error == pytest.approx(ours["error"], rel=1e-5)
    assert bool(ours["apart"]) is pair.apart


def test_pairs_have_the_nearest_first(folder: Path) -> None:
    results = read_results(Store(folder / "results"))
    assert [row.label for row, _ in ranked(results.models[0], 0)] == ["q8_0", "q4_0"]
    rows = paired_table(results)
    assert len(rows) == 1 + 3  # with the other cache, the model itself is one of them
    assert all(row["difference"] >= 0 for row in rows)
    chunk = results.models[0].rows[1].measurement("quality").items()["chunk"]
    assert np.bincount(chunk).tolist() == [31, 31, 31]


def test_a_cache_that_is_missing_is_run_alone(folder: Path, tmp_path: Path) -> None:
    before = contents(folder / "results")
    key = model_of(folder).row("q4_0").keys["quality"][1]
    (folder / "results" / "runs" / f"{key}.json").unlink()
    assert run(folder, folder / "results") == 1
    assert contents(folder / "results") == before


@pytest.mark.ci
def test_models_without_a_template_have_no_answers(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "bundled.toml").write_text(STUDY.replace("ctx = 64", "ctx = 64\nbundled = true"))
    study = read_study(folder / "bundled.toml", models=[folder / "model.gguf"], chunks=1)
    run_study(study, tmp_path / "results", workers=1)
    results = read_results(Store(tmp_path / "results"))
    assert results.complete
    texts = [name for name in NAMES if name != OWN_CHAT]
    assert results.models[0].texts == [*texts, *(f"{text}, KV q8_0/q4_0" for text in texts)]
    assert f"model.gguf: has no chat template, so there is no text {OWN_CHAT}" in caplog.text


def test_of_two_models_that_without_a_template_has_no_answers(folder: Path, tmp_path: Path) -> None:
    asked = ChatModel(n_embd=128, n_ff=128, n_head_kv=2, n_layer=1).write(tmp_path / "asked.gguf")
    (folder / "bundled.toml").write_text(STUDY.replace("ctx = 64", "ctx = 64\nbundled = true"))
    study = read_study(folder / "bundled.toml", models=[folder / "model.gguf", asked])
    with Store(tmp_path / "results") as store:
        models = make_plan(study, store).to_json()["models"]
    keys = [dict(zip(NAMES, model["rows"][0]["quality"])) for model in models]
    assert [bool(of_texts[OWN_CHAT]) for of_texts in keys] == [False, True]


@pytest.mark.parametrize(
    "texts", ['[{path = "rain.txt", name = "rain"}]', '{rain = {path = "rain.txt"}}', '{rain = "rain.txt"}']
)
def test_texts_are_beside_the_toml(folder: Path, tmp_path: Path, texts: str) -> None:
    path = tmp_path / "study.toml"
    path.write_text(f'texts = {texts}\n[[quantizer]]\nmode = "q4_0"\n')
    (text,) = read_study(path, models=[folder / "model.gguf"]).texts
    assert (text.path, text.name) == (tmp_path / "rain.txt", "rain")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ('caches = ["q9"]', "cache-type-k: expected one of f32"),
        ("caches = [1]", "caches.0"),
        ('texts = ["no.txt"]', "no.txt"),
        ('chats = ["text.txt"]', "text.txt:1"),
        ('texts = ["a\\u0000b"]', "embedded null byte"),
        ('[texts]\n"" = "text.txt"', "texts.0.name: string should have at least 1 character"),
        ('chats = ["chat.jsonl"]', "has no chat template, which `chats` need"),
        ('caches = ["f16"]', "f16 for both is always run"),
        ('bundled = true\n[texts]\ncode = "text.txt"', "two have the name 'code'"),
    ],
)
def test_what_is_wrong_is_said(folder: Path, tmp_path: Path, key: str, words: str) -> None:
    beginning, _, end = STUDY.partition("caches")
    quantizers = end[end.index("[[quantizer]]") :]
    path = folder / "wrong.toml"
    more = "" if "texts" in key else 'texts = ["text.txt"]\n'
    path.write_text(beginning + more + key + "\n" + quantizers)
    with pytest.raises((ConfigError, ModelFileError, TextError)) as error:
        run_study(read_study(path, models=[folder / "model.gguf"]), tmp_path / "results", workers=1)
    assert words in str(error.value)


def test_a_cache_that_does_not_fit_a_model_is_refused_before_work(folder: Path, tmp_path: Path) -> None:
    model = Model(n_layer=1).write(tmp_path / "model.gguf")
    study = read_study(folder / "study.toml", models=[model])
    with pytest.raises(
        ConfigError, match=r"caches: KV q8_0/q4_0: .*model\.gguf has heads of 16 numbers, and 32"
    ):
        run_study(study, tmp_path / "results", workers=1)
    assert not (tmp_path / "results").exists()


def test_a_text_that_is_a_link_has_the_name_of_the_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "linked.txt").symlink_to(folder / "text.txt")
    (text,) = study_texts([(None, tmp_path / "linked.txt")], [], bundled=False, caches=[])
    assert text.name == "linked.txt"


def test_a_name_that_is_not_utf8_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"texts\.1\.name: input should be a valid string"):
        read_study(folder / "study.toml", texts=[("\udcff", folder / "text.txt")])
