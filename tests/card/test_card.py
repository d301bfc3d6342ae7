"""Model cards: what results say, where it stands in the page, and what is refused."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from pyquant.card import page
from pyquant.card.listed_file import ListedFile
from pyquant.card.markdown import cell, command, yaml
from pyquant.card.results import Compared, Results, Speed, read_results
from pyquant.card.write import write_card
from pyquant.errors import ConfigError, OutputError
from pyquant.rounding.quantize_model import quantize_model
from pyquant.schemes.settings import make_mode
from tests.support.card import accuracy, compare, speed
from tests.support.command import run
from tests.support.models import Model

NAMES = ("q4_0.gguf", "q8_0.gguf")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Models, and results that say what they might have measured of them."""
    model = Model().write(tmp_path / "base.gguf")
    for name in NAMES:
        quantize_model(model, tmp_path / name, make_mode({"mode": name.removesuffix(".gguf")}))
    results = {"kld": compare(NAMES), "accuracy": accuracy(NAMES), "speed": speed(["base.gguf", *NAMES])}
    for name, result in results.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(result))
    return tmp_path


def results_of(folder: Path) -> list[Path]:
    return [folder / f"{name}.json" for name in ("kld", "accuracy", "speed")]


def rows(text: str) -> list[list[str]]:
    """All rows of all tables, as a reader of Markdown finds them."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text.split("---\n", 2)[-1])
    found: list[list[str]] = []
    for i, token in enumerate(tokens):
        if token.type == "tr_open":
            found.append([])
        if token.type in ("td_open", "th_open"):
            found[-1].append("".join(child.content for child in tokens[i + 1].children or []))
    return found


def test_a_card_has_what_a_hub_shows(folder: Path) -> None:
    done = write_card(results_of(folder), folder / "README.md", license="mit", base_model="org/base")
    text = (folder / "README.md").read_text()
    head = text.split("---\n")[1]
    assert 'license: "mit"\nbase_model: "org/base"\nbase_model_relation: quantized\n' in head
    cells = rows(text)
    assert ["q4_0.gguf", "0.04000 ± 0.00100", "0.3000", "0.9000", "1.5"] in [
        [row[0], *row[3:7]] for row in cells
    ]
    for name in NAMES:
        data = (folder / name).read_bytes()
        assert [name, str(len(data)), hashlib.sha256(data).hexdigest()] in [
            [row[0], *row[2:4]] for row in cells
        ]
    assert ["hellaswag, 40 questions", "q8_0.gguf", "45.00 ± 2.00", "3", "1", "0.625"] in cells
    assert "![Mean KLD over the size of the file](README.kld.png)" in text
    assert (folder / "README.kld.png").read_bytes().startswith(b"\x89PNG")
    assert "pyquant compare base.gguf q4_0.gguf q8_0.gguf --text wiki.txt --ctx 512 --chunks 20" in text
    assert "pyquant accuracy base.gguf q4_0.gguf q8_0.gguf --hellaswag hellaswag.txt --questions 40" in text
    assert (
        "pyquant speed base.gguf q4_0.gguf q8_0.gguf --prompt 512 --generate 128 --threads 2 --rounds 3"
        in text
    )
    assert "With pyquant 9.8.7:" in text
    assert ["wiki.txt", "5,100 tokens in 20 chunks of 512", "a" * 64] in cells
    assert text.endswith("```\n")
    assert [file["name"] for file in done["files"]] == list(NAMES)


def listed(sizes: dict[str, int]) -> dict[str, ListedFile]:
    return {
        name: ListedFile([(name, size, "")], size, size / 2e8, "", {}, {}) for name, size in sizes.items()
    }


def test_files_are_listed_by_size_behind_their_base() -> None:
    files = listed({"base.gguf": 3_000_000_000, "large.gguf": 2_000_000_000, "small.gguf": 900_000_000})
    compared = Compared.model_validate(compare(["large.gguf", "small.gguf"]))
    title, base, *others = rows(page.kld_table(compared, files, cached=False))
    assert title[:4] == ["file", "size", "bits per weight", "mean KLD"]
    assert base == ["base.gguf", "3.00 GB", "15.00", "", "", "", "", "", "19.5000 ± 0.5000"]
    assert [row[:4] for row in others] == [
        ["small.gguf", "900.0 MB", "4.50", "0.02000 ± 0.00100"],
        ["large.gguf", "2.00 GB", "10.00", "0.04000 ± 0.00100"],
    ]
    assert [row[-1] for row in others] == ["21.0000 ± 0.5000 (+5.00 %)", "20.0000 ± 0.5000 (+0.00 %)"]


def test_shares_stand_below_what_they_come_of() -> None:
    klds = {"weights": 0.04, "activations": 0.02, "cache": 0.01, "total": 0.07}
    parts = {name: {"kld": kld, "error": kld / 10} for name, kld in klds.items()}
    compared = Compared.model_validate(compare(NAMES) | {"shares": [{"model": "a.gguf", **parts}]})
    assert rows(page.shares_table(compared)) == [
        ["file", "weights", "8-bit activations", "cache", "mean KLD"],
        ["a.gguf", "0.04000 ± 0.00400", "0.02000 ± 0.00200", "0.01000 ± 0.00100", "0.07000"],
    ]


def test_speeds_are_medians_with_the_least_and_the_most() -> None:
    measured = speed(["a.gguf"])
    measured["models"][0]["generation"] = {"tokens_per_second": 9, "low": 8, "high": 11, "rounds": [8, 9, 11]}
    results = Results([], [], [Speed.model_validate(measured)], [], set())
    assert rows(page.speed_tables(results, listed({"a.gguf": 1_000_000_000}))) == [
        ["file", "size", "bits per weight", "prompt 512, t/s", "generation 128, t/s"],
        ["a.gguf", "1.00 GB", "5.00", "100.0 (90.0 to 110.0)", "9.0 (8.0 to 11.0)"],
    ]


def test_caches_shares_and_several_texts_have_tables_of_their_own(folder: Path) -> None:
    one = compare(NAMES)
    cached = {
        **one["candidates"][0],
        "model": "q4_0.gguf (KV q8_0/q4_0)",
        "file": "q4_0.gguf",
        "cache_type_k": "q8_0",
        "cache_type_v": "q4_0",
    }
    part = {"kld": 0.01, "error": 0.001}
    share = {"model": "q4_0.gguf", "weights": part, "activations": part, "cache": None, "total": part}
    of_cache = {name: cached[name] for name in ("cache_type_k", "cache_type_v")} | {"cache": part}
    named = {"model": "folder/q4_0.gguf (KV q8_0/q4_0)", "file": "folder/q4_0.gguf"}
    shares = [share, {**share, **named, **of_cache}]
    texts = [
        {**one, "name": "wiki", "candidates": [*one["candidates"], cached], "shares": shares},
        {**one, "name": "code", "text": "code.txt"},
    ]
    (folder / "kld.json").write_text(json.dumps({"schema": one["schema"], "texts": texts}))
    write_card([folder / "kld.json"], folder / "README.md")
    text = (folder / "README.md").read_text()
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert headings[:4] == [
        "## KLD on wiki",
        "## KLD on wiki, cache of other types",
        "## KLD on wiki: what it comes of",
        "## KLD on code",
    ]
    assert [row[0] for row in rows(text)].count("q4_0.gguf (KV q8_0/q4_0)") == 2
    assert "--text wiki=wiki.txt --ctx 512 --chunks 20 -ctk q8_0 -ctv q4_0 --shares\n" in text


def test_commands_of_a_card_measure_what_was_measured(folder: Path) -> None:
    one = compare(NAMES)
    texts = [
        {**one, "name": "talk", "kind": "chat", "text": "a/talk.jsonl", "n_ctx": 77, "n_chunks": 3},
        {**one, "name": "code", "kind": "bundled", "text": "b/code.txt", "n_ctx": 256, "n_chunks": 8},
        {**one, "name": "prose", "kind": "bundled", "text": "b/prose.txt", "n_ctx": 256, "n_chunks": 9},
        {**one, "name": "own-chat", "kind": "answers", "text": "answers of a/base.gguf", "n_chunks": 16},
    ]
    (folder / "kld.json").write_text(json.dumps({"schema": one["schema"], "texts": texts}))
    write_card([folder / "kld.json"], folder / "README.md")
    text = (folder / "README.md").read_text()
    models = "pyquant compare base.gguf q4_0.gguf q8_0.gguf"
    assert [line for line in text.splitlines() if line.startswith("pyquant compare")] == [
        f"{models} --chat talk=talk.jsonl --chunks 3",
        f"{models} --bundled --ctx 256 --chunks 16",
    ]
    assert "own-chat" in [row[0] for row in rows(text)]
    said = "The hash of a plain text is of its bytes without a newline at the end."
    assert said in text
    (folder / "kld.json").write_text(json.dumps(texts[0]))
    write_card([folder / "kld.json"], folder / "README.md", force=True)
    assert said not in (folder / "README.md").read_text()


def test_the_pack_of_a_new_type_has_what_llama_cpp_asks_for(folder: Path) -> None:
    write_card(results_of(folder), folder / "pack.md", new_type="q4_0.gguf")
    text = (folder / "pack.md").read_text()
    names = [row[0] for row in rows(text)]
    assert names.count("q4_0.gguf") == 3  # KLD, speed, files
    assert "| **q4_0.gguf** |" in text
    assert names.count("q8_0.gguf") == 2  # its neighbour
    assert "| prompt 512, t/s | generation 128, t/s |" in text
    with pytest.raises(ConfigError, match=r"new-type: results have no 'q5_0.gguf', but q4_0.gguf, q8_0.gguf"):
        write_card(results_of(folder), folder / "other.md", new_type="q5_0.gguf")
    with pytest.raises(ConfigError, match="give a result of `pyquant speed --json`"):
        write_card([folder / "kld.json"], folder / "other.md", new_type="q4_0.gguf")
    with pytest.raises(ConfigError, match="give a result of `pyquant compare --json`"):
        write_card(
            [folder / "accuracy.json", folder / "speed.json"], folder / "other.md", new_type="q4_0.gguf"
        )
    assert not (folder / "other.md").exists()


def test_names_of_unknown_origin_stay_texts() -> None:
    hostile = "a|b\n# c `d` <script> [x](http://e) $(f) ![i](j)\u202e"
    assert cell("_q4_0_.gguf") == r"\_q4_0\_.gguf"
    assert "\n" not in cell(hostile) + yaml(hostile) + command("echo", hostile)
    (token,) = [
        t for t in MarkdownIt("commonmark").enable("table").parse(cell(hostile)) if t.type == "inline"
    ]
    assert {child.type for child in token.children or []} <= {"text", "text_special"}
    assert json.loads(yaml(hostile)).startswith("a|b # c")
    assert command("echo", "a b", "$(rm x)") == "echo 'a b' '$(rm x)'"


def change(result: dict[str, Any], value: object, *keys: str | int) -> dict[str, Any]:
    """A copy with another value at a place."""
    changed = copy.deepcopy(result)
    place: Any = changed
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return changed


REFUSED: dict[str, Callable[[], object]] = {
    "the schema 'pyquant.info/2'; a card is made of pyquant.compare/1": lambda: {"schema": "pyquant.info/2"},
    "has the schema \"\\['x'\\]\"": lambda: {"schema": ["x"]},
    "it has no schema": lambda: [1],
    "'candidates': list should have at least 1 item": lambda: change(compare(NAMES), [], "candidates"),
    "kld.json: 'text_sha256' is missing; print it anew with --json": lambda: {
        key: value for key, value in compare(NAMES).items() if key != "text_sha256"
    },
    "'candidates.1.kld.mean'": lambda: change(compare(NAMES), 1e308, "candidates", 1, "kld", "mean"),
    "'text_sha256'": lambda: change(compare(NAMES), "a\nb", "text_sha256"),
    "'n_chunks'": lambda: change(compare(NAMES), -1, "n_chunks"),
    "'nowhere', of the results, is not there": lambda: change(
        compare(NAMES), "nowhere", "candidates", 0, "model"
    ),
    "is not there": lambda: change(compare(NAMES), "a\0b" + "c" * 5000, "candidates", 0, "model"),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_other_results_are_refused_in_a_line_and_nothing_is_written(folder: Path, message: str) -> None:
    (folder / "kld.json").write_text(json.dumps(REFUSED[message]()))
    with pytest.raises(ConfigError, match=message) as refusal:
        write_card([folder / "kld.json"], folder / "README.md")
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 500
    assert not list(folder.glob("README*"))


def test_what_exists_is_kept_and_bases_are_one(folder: Path) -> None:
    (folder / "README.kld.png").write_text("mine")
    with pytest.raises(OutputError, match=r"README.kld.png: exists; --force replaces it"):
        write_card(results_of(folder), folder / "README.md")
    assert not (folder / "README.md").exists()
    write_card(results_of(folder), folder / "README.md", force=True)
    (folder / "other.json").write_text(
        json.dumps(change(accuracy(["base.gguf"]), "q8_0.gguf", "files", 0, "base", "model"))
    )
    with pytest.raises(ConfigError, match=r"results of several bases, base.gguf, q8_0.gguf: a card has one"):
        write_card([folder / "kld.json", folder / "other.json"], folder / "card.md")
    with pytest.raises(ConfigError, match="give a result of `pyquant compare --json` or `pyquant accuracy"):
        read_results([folder / "speed.json"])


def test_a_card_may_have_any_name_but_a_folder_s(folder: Path) -> None:
    output = folder / os.fsdecode(b"R\xff.md")
    write_card([folder / "kld.json"], output)
    assert "](R%FF.kld.png)" in output.read_text()
    for name in (Path("."), Path("/"), folder):
        with pytest.raises(OutputError, match="a folder; give the file's name too"):
            write_card([folder / "kld.json"], name)


def test_a_card_replaces_no_model_of_its_results(folder: Path) -> None:
    victim = folder / "q4_0.gguf"
    before = victim.read_bytes()
    with pytest.raises(OutputError, match=r"q4_0.gguf: is the input, which is never overwritten"):
        write_card(results_of(folder), victim, force=True)
    assert victim.read_bytes() == before


def test_a_file_that_was_made_anew_since_is_refused(folder: Path) -> None:
    size = (folder / "q4_0.gguf").stat().st_size
    results = {
        "speed": change(speed(["base.gguf", "q4_0.gguf"]), size + 1, "models", 1, "n_bytes"),
        "kld": change(compare(["q4_0.gguf"]), size + 1, "candidates", 0, "size"),
    }
    for name, result in results.items():
        (folder / f"{name}.json").write_text(json.dumps(result))
        with pytest.raises(
            ConfigError, match=f"q4_0.gguf: has {size:,} bytes, and a result is of {size + 1:,}"
        ):
            write_card([folder / f"{one}.json" for one in ("accuracy", name)], folder / "README.md")


def test_the_command_reads_what_commands_print(folder: Path) -> None:
    (folder / "wiki.txt").write_text("the hen ate the tin in the rain and then the ant\n" * 30)
    options = ["--text", "wiki.txt", "--ctx", "64", "--chunks", "2", "--threads", "1", "--json"]
    measured = run("compare", "base.gguf", *NAMES, *options, cwd=folder)
    (folder / "kld.json").write_text(measured.stdout)
    done = run("card", "kld.json", "-o", "README.md", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "the card names no license" in done.stderr
    mean = json.loads(measured.stdout)["candidates"][0]["kld"]["mean"]
    assert f"{mean:.5f}" in (folder / "README.md").read_text()
    again = run("card", "kld.json", "-o", "README.md", cwd=folder)
    assert again.returncode == 1
    assert again.stderr.endswith("README.md: exists; --force replaces it\n")


@pytest.mark.parametrize("command", ["compare", "speed"])
def test_another_file_of_the_same_name_and_size_is_refused(folder: Path, command: str) -> None:
    (folder / "wiki.txt").write_text("the hen ate the tin in the rain and then the ant\n" * 30)
    options = {
        "compare": ["--text", "wiki.txt", "--ctx", "64", "--chunks", "1"],
        "speed": ["--prompt", "8", "--generate", "2", "--rounds", "1"],
    }
    measured = run(command, "base.gguf", *NAMES, *options[command], "--threads", "1", "--json", cwd=folder)
    (folder / "measured.json").write_text(measured.stdout)
    results = [folder / "accuracy.json", folder / "measured.json"]
    write_card(results, folder / "README.md")
    with (folder / "q4_0.gguf").open("r+b") as file:
        file.seek(-100, os.SEEK_END)
        file.write(b"x" * 100)
    with pytest.raises(ConfigError, match=r"q4_0.gguf: is not the file that a result is of: measure it"):
        write_card(results, folder / "card.md")
