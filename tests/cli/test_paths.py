"""No command replaces what it reads, whatever it is told to write, and by whichever name."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer

from pyquant.cli import paths
from pyquant.files.text import Text
from tests.support.command import commands, run
from tests.support.costs import write_costs
from tests.support.models import Model


def parameters() -> Iterator[tuple[str, str, object, object]]:
    """Command, parameter, type, and what typer is told about it; of every command."""
    for command, function in commands().items():
        for name, hint in typing.get_type_hints(function, include_extras=True).items():
            if name != "return":
                kind, marker = typing.get_args(hint)[:2]
                yield command, name, kind, marker


def names(kind: object) -> set[object]:
    """The types within Optional and list."""
    return {kind}.union(*(names(inner) for inner in typing.get_args(kind)))


def test_every_option_that_is_a_path_is_an_input_or_an_output():
    files = [
        (command, name, marker.parser)
        for command, name, kind, marker in parameters()
        if names(kind) & {Path, Text} or marker.parser in paths.PARSERS
    ]
    assert len(files) > 40
    assert [(command, name) for command, name, parser in files if parser not in paths.PARSERS] == []
    outputs = {(command, name) for command, name, parser in files if parser is paths.output}
    assert outputs == {
        ("quantize", "output"), ("histogram", "plot"), ("error", "plot"), ("compare", "plot"),
        ("calibrate", "output"),
        ("calibrate", "imatrix"), ("sensitivity", "output"), ("pack", "output"), ("unpack", "output"),
        ("tables build", "output"), ("tables learn", "output"), ("study export", "output"),
        ("dequantize", "output"), ("structured", "texts"), ("mix", "output"), ("recipe", "output"),
        ("draft costs", "output"), ("draft search", "output"), ("equalize", "output"),
        ("equalize", "hessian_out"), ("card", "output"),
        ("mix", "gguf"),
    }  # fmt: skip


TABLE = "values = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]\n"
SEARCHED = ["--prompts", "prompts.jsonl", "--costs"]

# Files that a command reads beside the model, each in turn to be written over.
READS = [
    (["quantize", "M", "OUT", "--mode", "ecsq", "--step", "1", "--hessian", "VICTIM"], "stats.gguf"),
    (["quantize", "M", "OUT", "--mode", "ggml:Q4_K", "--imatrix", "VICTIM"], "imatrix.gguf"),
    (["quantize", "M", "OUT", "--mode", "q8_table", "--table", "VICTIM"], "table.toml"),
    (["quantize", "M", "OUT", "--config", "VICTIM"], "mode.toml"),
    (["quantize", "M", "OUT", "--config", "mode.toml"], "table.toml"),
    (["quantize", "M", "OUT", "--mode", "q8_table", "--set", "table=VICTIM"], "table.toml"),
    (
        ["quantize", "M", "OUT", "--mode", "ecsq", "--set", "hessian=stats.gguf", "--like", "Q4_0",
         "--text", "VICTIM"],
        "text.txt",
    ),
    (
        ["quantize", "M", "OUT", "--mode", "ecsq", "--step", "0.05", "--hessian", "stats.gguf",
         "--sensitivity", "VICTIM"],
        "sensitivity.toml",
    ),
    (["tables", "learn", "M", "--hessian", "VICTIM", "-o", "OUT"], "stats.gguf"),
    (["tables", "build", "VICTIM", "-o", "OUT"], "model.gguf"),
    (["calibrate", "M", "--text", "VICTIM", "--ctx", "64", "-o", "OUT"], "text.txt"),
    (["calibrate", "M", "--text", "VICTIM", "--ctx", "64", "-o", "new.gguf", "--imatrix", "OUT"], "text.txt"),
    (["sensitivity", "M", "--hessian", "VICTIM", "--text", "text.txt", "-o", "OUT"], "stats.gguf"),
    (["sensitivity", "M", "--hessian", "stats.gguf", "--text", "VICTIM", "-o", "OUT"], "text.txt"),
    (["quantize", "M", "OUT", "--recipe", "VICTIM"], "recipe.toml"),
    (
        ["mix", "M", "--hessian", "VICTIM", "--text", "text.txt", "--target-bpw", "6", "-o", "OUT"],
        "stats.gguf",
    ),
    (
        ["mix", "M", "--hessian", "stats.gguf", "--text", "text.txt", "--target-bpw", "6", "--sensitivity",
         "VICTIM", "-o", "OUT"],
        "sensitivity.toml",
    ),
    (["recipe", "M", "VICTIM", "-o", "OUT"], "types.txt"),
    (["error", "M", "VICTIM", "--plot", "OUT"], "copy.png"),
    (["error", "M", "M", "--imatrix", "VICTIM", "--plot", "OUT"], "imatrix.png"),
    (["pack", "VICTIM", "OUT"], "model.gguf"),
    (["draft", "costs", "VICTIM", "ngram", "-o", "OUT"], "model.gguf"),
    (["draft", "costs", "M", "VICTIM", "-o", "OUT"], "copy.gguf"),
    (["draft", "search", "M", "VICTIM", *SEARCHED, "costs.json", "-o", "OUT"], "copy.gguf"),
    (
        ["draft", "search", "M", "M", "--costs", "costs.json", "--prompts", "VICTIM", "-o", "OUT"],
        "prompts.jsonl",
    ),
    (["draft", "search", "M", "M", *SEARCHED, "VICTIM", "-o", "OUT"], "costs.json"),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(generated: Callable[[str], Path], stats_of, text: Path, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    model = generated("f32, rows of 64 and 96")
    shutil.copy(model, folder / "model.gguf")
    for copy in ("copy.png", "copy.gguf"):
        shutil.copy(model, folder / copy)
    stats = stats_of("f32, rows of 64 and 96")
    shutil.copy(stats, folder / "stats.gguf")
    shutil.copy(stats.with_name("imatrix.gguf"), folder / "imatrix.gguf")
    shutil.copy(stats.with_name("imatrix.gguf"), folder / "imatrix.png")
    shutil.copy(text, folder / "text.txt")
    (folder / "table.toml").write_text(TABLE)
    (folder / "mode.toml").write_text('mode = "q8_table"\ntable = "table.toml"\n')
    (folder / "recipe.toml").write_text('version = 1\nbase = "Q4_0"\n')
    (folder / "types.txt").write_text("attn_v=q8_0\n")
    (folder / "prompts.jsonl").write_text('{"prompt": "the"}\n')
    write_costs(folder / "costs.json", (model, model))
    (folder / "sensitivity.toml").write_text("[sensitivity]\nattn_q = 1.0\n")
    return folder


@pytest.mark.ci
@pytest.mark.parametrize(
    ("arguments", "victim", "link"),
    [(*reads, link) for reads, link in zip(READS, itertools.cycle([None, "symbolic", "hard"]))],
)
def test_an_input_is_not_replaced(arguments, victim, link, folder: Path, tmp_path: Path):
    for file in folder.iterdir():
        shutil.copy(file, tmp_path / file.name)
    before = (tmp_path / victim).read_bytes()
    output = victim
    if link:
        output = f"link{Path(victim).suffix}"
        getattr(tmp_path / output, f"{'symlink' if link == 'symbolic' else 'hardlink'}_to")(tmp_path / victim)
    words = {"M": "model.gguf", "OUT": output, "VICTIM": victim, "table=VICTIM": f"table={victim}"}
    refused = run(*(words.get(word, word) for word in arguments), "--force", cwd=tmp_path)
    assert refused.returncode == 1, refused.stderr
    assert f"{output}: is the input, which is never overwritten" in refused.stderr
    assert (tmp_path / victim).read_bytes() == before


@pytest.mark.parametrize(
    "command",
    [
        "tables build M -o OUT", "tables learn M -o OUT",
        "sensitivity M --hessian stats.gguf --text text.txt -o OUT",
        "mix M --hessian stats.gguf --text text.txt --target-bpw 6 -o OUT",
    ],
)  # fmt: skip
def test_a_shard_of_the_input_is_not_replaced(command: str, folder: Path, tmp_path: Path) -> None:
    first = Model().write(tmp_path / "m.gguf", tensors_per_shard=8)
    second = min(tmp_path.glob("m-00002-of-*"))
    before = second.read_bytes()
    words = {"M": first, "OUT": second}
    refused = run(*(words.get(word, word) for word in command.split()), "--force", cwd=folder)
    assert refused.returncode == 1, refused.stderr
    assert f"{second}: is the input, which is never overwritten" in refused.stderr
    assert second.read_bytes() == before


def test_an_input_under_the_name_of_the_unfinished_output(folder: Path, tmp_path: Path):
    source = tmp_path / ".out.gguf.partial"
    shutil.copy(folder / "model.gguf", source)
    refused = run("quantize", source, tmp_path / "out.gguf", "--mode", "q4_0", "--force")
    assert refused.returncode == 1
    assert "is an input" in refused.stderr
    assert source.read_bytes() == (folder / "model.gguf").read_bytes()
    source.unlink()
    (tmp_path / "precious").write_text("precious")
    source.symlink_to(tmp_path / "precious")
    refused = run("quantize", folder / "model.gguf", tmp_path / "out.gguf", "--mode", "q4_0", "--force")
    assert refused.returncode == 1
    assert (tmp_path / "precious").read_text() == "precious"


def test_two_outputs_have_two_names(folder: Path, tmp_path: Path):
    model, text, output = folder / "model.gguf", folder / "text.txt", tmp_path / "out"
    refused = run("calibrate", model, "--text", text, "-o", output, "--imatrix", output)
    assert refused.returncode == 2
    assert "is named for another output too" in refused.stderr
    assert not output.exists()


def test_a_text_can_come_from_standard_input(folder: Path):
    model, text = folder / "model.gguf", folder / "text.txt"
    read = run("perplexity", model, "--text", text, "--ctx", 64, "--chunks", 4, "--json")
    piped = run(
        "perplexity", model, "--text", "-", "--ctx", 64, "--chunks", 4, "--json", input=text.read_text()
    )
    assert piped.returncode == 0, piped.stderr
    assert '"ppl"' in read.stdout
    ppl = [line for line in read.stdout.splitlines() if '"ppl"' in line]
    assert ppl == [line for line in piped.stdout.splitlines() if '"ppl"' in line]


def test_a_closed_standard_input_is_no_text(folder: Path) -> None:
    line = f"{sys.executable} -m pyquant perplexity {folder}/model.gguf --text - <&-"
    refused = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
    assert refused.returncode in (1, 2), refused.stderr
    assert "-: standard input is closed; give a file, or a pipe" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["quantize", "M", "-", "--mode", "q4_0"], "results go to a file"),
        (["pack", "M", "-"], "results go to a file"),
        (["pack", "-", "out.pqz"], "only a text can come from standard input"),
    ],
)
def test_a_model_is_no_stream(arguments, says, folder: Path, tmp_path: Path):
    refused = run(*(folder / "model.gguf" if word == "M" else word for word in arguments), cwd=tmp_path)
    assert refused.returncode == 2
    assert says in " ".join(refused.stderr.split())
    assert not list(tmp_path.iterdir())


PIPED = ["info P", "quantize P OUT --mode q4_0", "pack P OUT", "perplexity P --text T"]


@pytest.mark.parametrize("command", PIPED)
def test_a_model_from_a_pipe_is_refused_with_a_way_out(command: str, folder: Path, tmp_path: Path):
    model = folder / "model.gguf"
    words = {"OUT": f"{tmp_path}/out.pqz", "T": f"{folder}/text.txt"}
    for pipe, more in ((f"<(cat {model})", ""), ("/dev/stdin", f"< <(cat {model})")):
        line = " ".join({**words, "P": pipe}.get(word, word) for word in command.split())
        shell = ["bash", "-c", f"{sys.executable} -m pyquant {line} {more}"]
        refused = subprocess.run(shell, capture_output=True, text=True, timeout=60)
        assert refused.returncode == 1, refused.stderr
        assert "a pipe or device, which is read only once" in refused.stderr
        assert "write it to a file first" in refused.stderr
    assert not list(tmp_path.iterdir())


def test_parsers_are_typer_markers():
    # Else the tests above would look at nothing.
    assert all(isinstance(marker, (typer.models.OptionInfo, typer.models.ArgumentInfo))
               for _, _, _, marker in parameters())  # fmt: skip


def test_force_without_a_figure_is_refused(folder: Path) -> None:
    refused = run("histogram", "--mode", "q8_0", folder / "model.gguf", "--force")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--force: replaces a figure; give --plot FILE" in refused.stderr
