"""What the machine has no room for is refused before work, with options that would fit."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from pyquant.errors import ConfigError
from pyquant.fit.method import room
from pyquant.fit.method.forecast import Forecast
from pyquant.fit.method.room import require_room
from tests.support.methods import made

GB = 10**9


class Usage(NamedTuple):
    free: int


def expected(n_chunks: int, memory: int | None) -> Forecast:
    """A tenth of a GB for each chunk, in memory up to a bound, the rest on the disk."""
    states = n_chunks * GB // 10
    kept = min(states, GB if memory is None else memory)
    return Forecast(
        stages=[], parts=[], memory=GB // 2 + kept, hessian=2 * GB, making=4 * GB, beside=states - kept + GB,
        temporary=0, all_hessians=0, keeps_hessians=True, lacks_tokens=0, output_side=[], columns=1,
        tokens_per_column=100,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("memory", "disk", "said"),
    [
        (8, 80, None),
        (
            0.8,
            80,
            r"memory: about 1\.50 GB are needed, and 0\.80 GB are available; it fits with --memory 256MiB",
        ),
        (0.6, 80, r"memory: .*; it fits with --memory 64MiB"),
        (0.4, 80, r"memory: .*; with 8 chunks it does not fit either"),
        (8, 5, r"disk: about 12\.80 GB are needed in .*, and 5\.00 GB are free; .* --calibration-chunks 32"),
        (0.8, 5, r"memory: .*; it fits with --calibration-chunks 32 --memory 256MiB"),
        (8, 0.9, r"disk: .*; with 8 chunks it does not fit either"),
    ],
)
def test_what_would_fit_is_said(
    memory: float, disk: float, said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "available_memory", lambda: int(memory * GB))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(int(disk * GB)))
    call = (expected, 128, None, tmp_path / "out.gguf", None)
    if said is None:
        require_room(*call)
        return
    with pytest.raises(ConfigError, match=said):
        require_room(*call)


def test_a_file_of_statistics_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(14 * GB))
    require_room(expected, 128, None, tmp_path / "out.gguf", None)
    with pytest.raises(ConfigError, match=r"disk: about 16\.80 GB are needed"):  # they are spooled too
        require_room(expected, 128, None, tmp_path / "out.gguf", tmp_path / "stats")


def test_temporary_files_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(14 * GB))
    temporary = (lambda *few: replace(expected(*few), temporary=13 * GB), 128, None)
    with pytest.raises(
        ConfigError, match=r"disk: about 25\.80 GB are needed in .*, 13\.00 GB of them in TMPDIR, and"
    ):
        require_room(*temporary, tmp_path / "out.gguf", None)
    require_room(*temporary, Path("/dev/shm/out.gguf"), None)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage((12 if folder == tmp_path else 99) * GB))
    lacking = r"about 13\.00 GB are needed in .*, 13\.00 GB of them in TMPDIR, and 12\.00 GB are free"
    with pytest.raises(ConfigError, match=lacking):
        require_room(*temporary, Path("/dev/shm/out.gguf"), None)


def test_what_a_run_of_before_left_is_not_needed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(GB - 4096))
    small = (lambda n_chunks, memory: expected(0, memory), 8, None, tmp_path / "out.gguf", None)
    with pytest.raises(ConfigError, match="disk"):
        require_room(*small)
    (tmp_path / ".out.gguf.stages").mkdir()
    (tmp_path / ".out.gguf.stages" / "imatrix.gguf").write_bytes(b"a" * 8192)
    require_room(*small)


def test_a_call_is_refused_before_its_work(
    source: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "available_memory", lambda: 10**6)
    begun: list[str] = []
    with pytest.raises(ConfigError, match=r"memory: about 0\.\d\d GB are needed, and 0\.00 GB are available"):
        made(source, tmp_path / "out.gguf", short, progress=lambda what, *_: begun.append(what))
    assert begun == []
    assert list(tmp_path.iterdir()) == []
