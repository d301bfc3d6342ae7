"""Kernels without intrinsics for ARM: clang makes NEON of their loops."""

from __future__ import annotations

import shutil

import pytest

from tests.support.vector_loops import KERNELS, OBJDUMP, OBJECTS, densest_loop


@pytest.mark.slow
@pytest.mark.skipif(
    not (OBJECTS.exists() and shutil.which(OBJDUMP)), reason=f"needs a wheel for aarch64, and {OBJDUMP}"
)
@pytest.mark.parametrize("kernel", KERNELS)
def test_most_instructions_of_a_loop_are_of_vectors(kernel: str) -> None:
    of_neon, together = densest_loop(OBJECTS, kernel)
    assert of_neon >= 0.5 * together
