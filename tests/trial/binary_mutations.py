"""pqz files and statistics, damaged under checksums that are right: what a checksum alone would refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyquant.models.model_file import ModelFile
from pyquant.models.pqz.index import HEAD_BYTES
from pyquant.models.pqz.pqz_file import PqzFile
from tests.support.models import resealed as pqz_resealed
from tests.support.stats import resealed as stats_resealed
from tests.trial.damage import damage
from tests.trial.mutations import Damage, Mutation

PREFIX = 8  # bytes that say that it is such a file at all


class HeaderMutation(Mutation):
    """A GGUF, of which mostly the header is damaged."""

    def damage_of(self, source: Path) -> Damage:
        end = ModelFile(source).header.data_offset

        def change(whole: bytes, rng: np.random.Generator) -> bytes:
            if rng.random() < 0.1:
                return damage(whole, rng)
            return damage(whole[:end], rng) + whole[end:]

        return change


class PqzMutation(Mutation):
    """A pqz file: half of the time its head and index, half of the time a frame."""

    def damage_of(self, source: Path) -> Damage:
        frames = PqzFile(source)._frames

        def change(whole: bytes, rng: np.random.Generator) -> bytes:
            if rng.random() < 0.5:
                end = frames[0].coded_begin
                changed = whole[:PREFIX] + damage(whole[PREFIX:end], rng) + whole[end:]
            else:
                frame = frames[rng.integers(len(frames))]
                end = frame.coded_begin + frame.coded_bytes
                begin = frame.coded_begin + int(rng.integers(0, max(1, frame.coded_bytes - 200)))
                coded = damage(whole[begin : min(end, begin + 200)], rng)[: end - begin]
                changed = whole[:begin] + coded + whole[begin + len(coded) :]
            return pqz_resealed(changed) if len(changed) > HEAD_BYTES else changed

        return change


class StatsMutation(Mutation):
    """Statistics: their header, or the values in them."""

    def damage_of(self, source: Path) -> Damage:
        file = ModelFile(source)
        end = file.header.data_offset

        def change(whole: bytes, rng: np.random.Generator) -> bytes:
            if rng.random() < 0.5:
                header = damage(whole[:end], rng)
                return (
                    (header + bytes(end))[:end] + whole[end:] if rng.random() < 0.5 else header + whole[end:]
                )
            begin = int(rng.integers(end, len(whole)))
            changed = damage(whole[begin : begin + 200], rng)[: len(whole) - begin]
            whole = whole[:begin] + changed + whole[begin + len(changed) :]
            return stats_resealed(whole, file)

        return change
