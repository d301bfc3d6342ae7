"""What methods calibrate on, and where its statistics stay: in the cache, in a file, or nowhere."""

from __future__ import annotations

import re
import shutil
from itertools import groupby
from pathlib import Path

import pytest

from pyquant.calibration.calibrate import GRADIENTS
from pyquant.calibration.calibration import Calibration
from pyquant.errors import TextError, UnreadableFile
from pyquant.files.text import make_text
from pyquant.fit.evaluation import Evaluation
from pyquant.fit.method.quantize import quantize
from pyquant.fit.method.split_text import split_text
from pyquant.llama.model import Model
from pyquant.models.model_file import ModelFile
from tests.support.methods import made


def test_held_out_chunks_are_not_calibrated_on(source: Path, short: Path) -> None:
    with Model(source) as model:
        read = make_text(short, short.read_bytes())
        split = split_text(model, [read], 64, 1000)
        (taken,) = [built_in.take(model, 64, 1000) for built_in in split.texts or ()]
        seen = {chunk.tobytes() for chunk in taken.tokens}
        assert split.held_out.n_chunks == 3
        assert not seen & {chunk.tobytes() for chunk in split.held_out.tokens}
        assert len(seen) == split.n_chunks
        two = make_text(short, short.read_bytes()[:800])
        assert split_text(model, [two], 64, 1000).held_out.n_chunks == 1
        with pytest.raises(TextError, match="two are needed"):
            split_text(model, [make_text(short, short.read_bytes()[:150])], 64, 1000)


def test_statistics_are_kept_and_made_again_where_they_are_damaged(
    source: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYQUANT_CACHE", str(tmp_path / "cache"))  # another test may read the common one
    told: list[str] = []
    first = made(source, tmp_path / "out.gguf", short, method="gptq", tell=told.append)
    assert first.statistics is not None
    kept = Path(first.statistics)
    before = kept.stat().st_mtime_ns
    made(source, tmp_path / "out.gguf", short, method="gptq", force=True, tell=told.append)
    assert kept.stat().st_mtime_ns == before
    kept.write_bytes(kept.read_bytes()[:-100])
    again = made(source, tmp_path / "out.gguf", short, method="gptq", force=True, tell=told.append)
    assert any("made again" in line for line in told)
    Calibration.read(again.statistics)


def test_statistics_in_a_file_of_one_s_own(source: Path, short: Path, tmp_path: Path) -> None:
    hessian = tmp_path / "hessian.gguf"
    done = made(source, tmp_path / "out.gguf", short, method="gptq", hessian=hessian)
    assert done.statistics == str(hessian)
    assert Calibration.read(hessian).kept.are_there


def test_chunks_are_taken_from_all_texts(source: Path, short: Path, tmp_path: Path) -> None:
    words = short.read_text()
    texts = [make_text(tmp_path / f"{n}.txt", words[300 * n : 300 * n + 300].encode()) for n in range(4)]
    with Model(source) as model:
        split = split_text(model, texts, 64, 1000)
    assert split.held_out.n_chunks == 1
    assert sum(chunks.n_chunks for chunks in split.calibration) == split.n_chunks >= 3
    done = quantize(source, tmp_path / "out.gguf", "Q4_0", method="gptq", text=texts, n_ctx=64)
    assert done.stages[0].kld is not None
    assert done.stages[0].kld.error is None  # of a single chunk


def test_without_a_cache_nothing_is_kept(
    source: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYQUANT_CACHE", "")
    evaluation = Evaluation(make_text(short, short.read_bytes()), 64, 2)
    done = made(source, tmp_path / "out.gguf", short, method="gptq", evaluate=evaluation)
    assert done.statistics is None
    made(source, tmp_path / "again.gguf", short, method="gptq")
    assert (tmp_path / "again.gguf").read_bytes() == (tmp_path / "out.gguf").read_bytes()
    assert done.evaluation is not None
    assert len(done.evaluation.to_json()["candidates"]) == 2
    (tmp_path / "cache").write_text("no folder")
    monkeypatch.setenv("PYQUANT_CACHE", str(tmp_path / "cache"))
    told: list[str] = []
    made(source, tmp_path / "out.gguf", short, method="gptq", force=True, tell=told.append)
    said = f"Hessian statistics are not kept in the cache (PYQUANT_CACHE): {tmp_path / 'cache'}"
    assert any(line.startswith(said) and "Errno" not in line for line in told)


def test_a_full_cache_is_found_before_work(
    source: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    cache, told, begun = tmp_path / "cache", list[str](), list[str]()
    monkeypatch.setenv("PYQUANT_CACHE", str(cache))
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: usage._replace(free=1000) if Path(path) == cache else usage
    )
    done = made(
        source, tmp_path / "out.gguf", short, tell=told.append, progress=lambda what, *_: begun.append(what)
    )
    assert done.statistics is None
    (line,) = (line for line in told if "are not kept in the cache" in line)
    assert re.search(rf"{cache}: they take [\d,]+ bytes there, 1,000 are free", line)
    assert [what for what, _ in groupby(begun)].count(GRADIENTS) == 1
    assert not list(cache.rglob("*.gguf"))


def test_damaged_statistics_of_the_cache_are_made_again(
    source: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYQUANT_CACHE", str(tmp_path / "cache"))
    done = made(source, tmp_path / "sound.gguf", short, method="gptq")
    statistics = Path(done.statistics)
    damage(statistics)
    told: list[str] = []
    made(source, tmp_path / "out.gguf", short, method="gptq", tell=told.append)
    assert any(re.search(r"is damaged: .*: the cache's are made again", line) for line in told)
    assert (tmp_path / "out.gguf").read_bytes() == (tmp_path / "sound.gguf").read_bytes()


def test_damaged_statistics_of_a_file_are_no_reason_to_leave_gptq_out(
    source: Path, short: Path, tmp_path: Path
) -> None:
    statistics = tmp_path / "hessian.gguf"
    made(source, tmp_path / "sound.gguf", short, method="gptq", hessian=statistics)
    damage(statistics)
    with pytest.raises(UnreadableFile, match=r"hessian\.gguf: tensor '.*' is damaged"):
        made(source, tmp_path / "out.gguf", short, method="gptq", hessian=statistics)
    assert not (tmp_path / "out.gguf").exists()


def damage(statistics: Path) -> None:
    """Change a bit of a Hessian."""
    tensor = next(each for each in ModelFile(statistics).tensors if each.name.endswith(".hessian"))
    data = bytearray(statistics.read_bytes())
    data[tensor.offset] ^= 1
    statistics.write_bytes(data)


def test_best_says_that_a_file_has_no_output_side_hessians(source: Path, short: Path, tmp_path: Path) -> None:
    statistics, told = tmp_path / "hessian.gguf", list[str]()
    made(source, tmp_path / "gptq.gguf", short, method="gptq", hessian=statistics)
    done = made(source, tmp_path / "best.gguf", short, hessian=statistics, tell=told.append)
    assert "output-side Hessian" not in done.forecast.stages
    assert any(line.startswith(f"output-side Hessian: left out: {statistics} has none") for line in told)
