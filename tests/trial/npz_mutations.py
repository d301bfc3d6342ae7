"""Arrays in an npz file, damaged within an archive whose checksums are right."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np

from tests.trial.damage import damage
from tests.trial.mutations import Damage, Mutation


class NpzMutation(Mutation):
    """An npz file: as bytes, or one of its arrays is gone, doubled, damaged or another."""

    def damage_of(self, source: Path) -> Damage:
        return damage_npz


def damage_npz(content: bytes, rng: np.random.Generator) -> bytes:
    if rng.random() < 0.3:
        return damage(content, rng)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    names = list(members)
    name = names[rng.integers(len(names))]
    kind = rng.integers(0, 5)
    if kind == 0:
        del members[name]
    elif kind == 1:
        members[name] = members[names[rng.integers(len(names))]]
    elif kind == 2:
        members[name] = _array(rng)
    else:
        members[name] = damage(members[name], rng)
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for its, data in members.items():
            archive.writestr(its, data)
    return written.getvalue()


def _array(rng: np.random.Generator) -> bytes:
    """Another array than was there: of another shape, type or value."""
    shapes = [(), (0,), (1,), (3, 2), (1, 1, 1), (64,)]
    types = ["f4", "f8", "i8", "u1", "?", "U3", "c8", "M8[s]"]
    values = np.full(shapes[rng.integers(len(shapes))], rng.choice([-1, 0, 1, 2**31, 1 << 62]))
    file = io.BytesIO()
    np.save(file, values.astype(str(rng.choice(types))))
    return file.getvalue()
