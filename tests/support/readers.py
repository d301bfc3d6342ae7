"""Gives readers damaged files of every sort: `readers.py N SEED FOLDER [SORT...]`, N of each sort.

Only a PyquantError of one line may come out, within 10 s, and with memory for twice the file and 200 MB
more. Damage is random bytes and edges of numbers, in a text also words of its format. Where a format has
checksums, they are made right again for half of the files, so that damage comes to what is behind them.
Prints for each sort what came out how often; a file that ends the run is left in FOLDER.
"""

from __future__ import annotations

import resource
import signal
import struct
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pyquant.calibration.calibrate import calibrate_model
from pyquant.calibration.imatrix import read_imatrix
from pyquant.calibration.sensitivity_file import Sensitivity
from pyquant.errors import PyquantError
from pyquant.inspect.histogram import code_counts, count_codes
from pyquant.llama.check_vocabulary import check_vocabulary
from pyquant.machine import free_address_space
from pyquant.models.info import model_info
from pyquant.models.model_file import ModelFile
from pyquant.models.pqz.pack import pack_model
from pyquant.models.pqz.pqz_file import PqzFile, scratch_file
from pyquant.schemes.settings import make_mode, read_config
from pyquant.study.config import read_study
from pyquant.tables.table_set import named_tables
from tests.support import ROOT, models, stats
from tests.support.fuzz import damage
from tests.support.models import Model

SECONDS = 10
MEMORY = 200 << 20  # beside twice the file
WORDS = ["nan", "-inf", "1e999", "-1", "0x" + "f" * 40, "[]", "{}", '""', "true", "[[a]]", "[a]", "\n", ","]
WORDS += [
    "1979-05-27",
    '"\\u0000"',
    "[" * 70,
    "{a=" * 70,
    "a.b.c=1\n",
    "2",
    "16",
    "[1, 2]",
    '"x"',
    "'",
    '"""',
]


@dataclass(frozen=True)
class Sort:
    """A sort of files.

    name: of the file, as its reader wants it. whole: a sound one. use: reads all of it. reseal: makes
    checksums right. is_text: whether words are put into it. n_damaged: bytes at its beginning that are
    damaged; 0: all.
    """

    name: str
    whole: bytes
    use: Callable[[Path], object]
    reseal: Callable[[bytes], bytes] | None = None
    is_text: bool = False
    n_damaged: int = 0


def use_model(path: Path) -> None:
    model = ModelFile(path)
    model_info(model)
    check_vocabulary(model)


def use_pqz(stock: bytes) -> Callable[[Path], None]:
    def use(path: Path) -> None:
        use_model(path)
        packed = PqzFile(path)
        if packed.n_bytes > 1 << 26:
            return
        count_codes(ModelFile(path), make_mode({"mode": "q4_0"}), threads=1)
        with scratch_file() as file:
            packed.expand(file.fileno(), 1)
            if file.read() != stock:
                raise AssertionError("expanded without an error to other bytes")

    return use


def use_study(model: Path, text: Path) -> Callable[[Path], object]:
    calibration = [("matched", text), ("mismatched", text)]
    return lambda path: read_study(path, models=[model], texts=[text], calibration_texts=calibration)


def resealed_pqz(data: bytes) -> bytes:
    return models.resealed(data) if len(data) > 80 else data


def resealed_stats(data: bytes) -> bytes:
    """As far as its header can still be read."""
    with scratch_file() as file:
        file.write(data)
        try:
            return stats.resealed(data, ModelFile(f"/dev/fd/{file.fileno()}"))
        except (PyquantError, ValueError, IndexError, ZeroDivisionError):
            return data


def legacy_imatrix(names: list[str]) -> bytes:
    values = np.linspace(0.5, 2, 32, dtype=np.float32)
    data = struct.pack("<i", len(names))
    for name in names:
        data += struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", 2, 32) + values.tobytes()
    return data + struct.pack("<ii", 2, 4) + b"text"


def sorts(folder: Path) -> dict[str, Sort]:
    """Make a sound file of each sort."""
    small = Model(n_embd=32, n_ff=32, n_layer=1, n_head=2, n_head_kv=2, tied=True, n_vocab=300)
    model = small.write(folder / "model.gguf")
    pack_model(model, folder / "model.pqz", force=True)
    text = folder / "text.txt"
    text.write_text("the animal in the house " * 60)
    made = {"imatrix": folder / "imatrix", "force": True}
    calibrate_model(model, [text], folder / "stats", n_ctx=64, n_chunks=2, threads=1, **made)
    sensitivities = b'[sensitivity]\n"attn_q" = 1.5\nffn_down = 2'
    study = (ROOT / "configs" / "compression.toml").read_bytes()
    stock, n_header = model.read_bytes(), ModelFile(model).header.data_offset
    names = ["blk.0.attn_q.weight", "output.weight"]
    by_kind = f"values = {list(range(-8, 8))}\n[tables]\nattn_q = {list(range(1, 17))}\n"
    mode = 'mode = "uniform"\nstep = 0.01\ncalibration = "stats"\ndamping = 0.1\nsensitivity = "s.toml"\n'
    return {
        "gguf": Sort("m.gguf", stock, use_model, n_damaged=n_header),
        "pqz": Sort("m.pqz", (folder / "model.pqz").read_bytes(), use_pqz(stock), resealed_pqz),
        "stats": Sort("stats", (folder / "stats").read_bytes(), stats.everything, resealed_stats),
        "imatrix": Sort("i.gguf", (folder / "imatrix").read_bytes(), read_imatrix),
        "legacy imatrix": Sort("i.dat", legacy_imatrix(names), read_imatrix),
        "tables": Sort("t.toml", by_kind.encode(), lambda path: named_tables(str(path)), is_text=True),
        "sensitivity": Sort("s.toml", sensitivities, Sensitivity.read, is_text=True),
        "mode": Sort("c.toml", mode.encode(), lambda path: make_mode(read_config(path)), is_text=True),
        "study": Sort("study.toml", study, use_study(model, text), is_text=True),
        "histogram": Sort("h.json", histogram(model), lambda path: code_counts(path), is_text=True),
    }  # fmt: skip


def histogram(model: Path) -> bytes:
    import json

    counted = count_codes(ModelFile(model), make_mode({"mode": "q8_0", "pure": True}), threads=1)
    return json.dumps(counted.to_json()).encode()


def damaged(sort: Sort, rng: np.random.Generator) -> bytes:
    """One damaged file."""
    end = sort.n_damaged or len(sort.whole)
    data = sort.whole[:end]
    if sort.is_text and rng.integers(4):
        for _ in range(rng.integers(1, 4)):
            begin = int(rng.integers(len(data) + 1))
            stop = begin + int(rng.integers(0, 30)) * int(rng.integers(2))
            data = data[:begin] + WORDS[rng.integers(len(WORDS))].encode() + data[stop:]
    else:
        data = damage(data, rng)
    data += sort.whole[end:]
    return sort.reseal(data) if sort.reseal and rng.integers(2) else data


def too_long(number: int, frame: object) -> None:
    raise AssertionError(f"not done after {SECONDS} s")


def attack(sort: Sort, n: int, seed: int, folder: Path) -> Counter[str]:
    """Give n damaged files to a reader; what came out, by the error's type."""
    rng = np.random.default_rng(seed)
    path = folder / sort.name
    path.write_bytes(sort.whole)
    sort.use(path)
    outcomes: Counter[str] = Counter()
    signal.signal(signal.SIGALRM, too_long)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    for _ in range(n):
        data = damaged(sort, rng)
        path.write_bytes(data)
        used = -(free_of_limit() - LIMIT)
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY + 2 * len(data), hard))
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            sort.use(path)
            outcomes["sound"] += 1
        except PyquantError as error:
            outcomes[type(error).__name__] += 1
            if "\n" in str(error):
                sys.exit(f"more than a line: {error}")
        except BaseException:
            traceback.print_exc()
            sys.exit(f"not a PyquantError; {path} is the file")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            resource.setrlimit(resource.RLIMIT_AS, (LIMIT, hard))
    path.unlink()
    return outcomes


LIMIT = 1 << 40


def free_of_limit() -> int:
    free = free_address_space()
    return LIMIT if free is None else free


def main() -> None:
    n, seed, folder, *wanted = sys.argv[1:]
    warnings.simplefilter("ignore")
    made = sorts(Path(folder))
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, resource.getrlimit(resource.RLIMIT_AS)[1]))
    for name in wanted or made:
        print(name, dict(attack(made[name], int(n), int(seed), Path(folder))), flush=True)


if __name__ == "__main__":
    main()
