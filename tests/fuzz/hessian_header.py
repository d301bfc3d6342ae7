"""The header of a Hessian file after magic number and version, from any bytes.

All values after it are zeros, and checksums are right. The file is read to its end, or refused.
"""

from __future__ import annotations

import os
from pathlib import Path

from pyquant.calibration import calibration, hessian_file, hessian_rows, soundness
from pyquant.errors import PyquantError
from pyquant.files import json
from pyquant.models import model_file, tensor
from pyquant.models.model_file import ModelFile
from tests.fuzz.watched import watch
from tests.support.stats import everything, resealed

BEGIN = b"GGUF\x03\0\0\0"  # magic number and version
CODE = [calibration, soundness, hessian_file, hessian_rows, json, model_file, tensor]
VALUES = 1 << 16  # bytes after the header


def make(data: bytes) -> bytes:
    """Make a Hessian file of a header: where it is one, with the checksums that it asks for."""
    whole = BEGIN + data + bytes(VALUES)
    file = os.memfd_create("unsealed")
    try:
        os.pwrite(file, whole, 0)
        return resealed(whole, ModelFile(Path(f"/proc/self/fd/{file}")))
    except (PyquantError, ValueError, IndexError):  # no header, or none with tensors
        return whole
    finally:
        os.close(file)


if __name__ == "__main__":
    watch(everything, make, CODE)
