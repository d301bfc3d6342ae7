"""Sizes that mode `ecsq` can reach: said before the work where a plan already knows it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyquant.errors import ConfigError
from pyquant.fit.target import LARGEST_CODE_BITS
from pyquant.models.pqz.pack import PackResult, pack_model
from pyquant.models.tensor import Tensor
from pyquant.models.tensor_type import TensorType as Type
from pyquant.rounding.make_plan import only
from pyquant.rounding.plan import Plan
from pyquant.rounding.quantize_model import write_plan

LEAST_CODE_BITS = 0.1  # even codes that are nearly all 0 take something


@dataclass(frozen=True)
class FileParts:
    """A .pqz file of mode `ecsq`: codes, whose size the step decides, and all else."""

    model: Path  # to be named in errors
    calibration: Path
    n_weights: int  # weights of the model, and codes
    n_codes: int
    rest_bytes: int  # bytes of all else: metadata, and tensors whose input was not collected

    def code_bits(self, n_bytes: int) -> float:
        """Return the bits that a file of n_bytes leaves for each code."""
        return 8 * (n_bytes - self.rest_bytes) / self.n_codes

    def in_bits(self, n_bytes: float) -> str:
        """Say a file's size in bytes and in bits per weight."""
        return f"{n_bytes:,.0f} bytes ({8 * n_bytes / self.n_weights:.2f} bits per weight)"

    def check(self, n_bytes: int, wanted: str) -> None:
        """Refuse a size that no step gives.

        Raises ConfigError: it says what is reachable. wanted: what the user asked for.
        """
        bits = self.code_bits(n_bytes)
        if bits < LEAST_CODE_BITS:
            raise ConfigError(
                f"{wanted}: not reachable: without any codes the file has {self.in_bits(self.rest_bytes)}, "
                f"of metadata and of tensors whose input is not in {self.calibration}"
            )
        if bits > LARGEST_CODE_BITS:
            most = self.rest_bytes + LARGEST_CODE_BITS * self.n_codes / 8
            raise ConfigError(
                f"{wanted}: leaves {bits:.2f} bits for each code, and more than {LARGEST_CODE_BITS:g} do not "
                f"fit into int8: at most {self.in_bits(most)} are reachable; mode q8_0 is for more"
            )


def check_before(plan: Plan, n_bytes: int, wanted: str, folder: Path, threads: int | None) -> None:
    """Refuse a size that no step gives, before any matrix is rounded.

    What is not codes is at most as large as in a GGUF, and that the plan knows. Only where it might not
    leave enough for the codes, it is made: the tensors whose input was not collected, and the metadata.

    n_bytes, wanted: the size, and what the user asked for.
    Raises ConfigError.
    """
    at_most = _parts(plan, plan.output_bytes - sum(plan.n_bytes(tensor) for tensor in _coded(plan)), wanted)
    if at_most.code_bits(n_bytes) > LARGEST_CODE_BITS:
        at_most.check(n_bytes, wanted)
    if at_most.code_bits(n_bytes) < LEAST_CODE_BITS:
        _parts(plan, _rest_bytes(plan, folder, threads), wanted).check(n_bytes, wanted)


def parts_of(plan: Plan, result: PackResult, wanted: str) -> FileParts:
    """Return the parts of a file that was made. Raises ConfigError if it has no codes."""
    codes = sum(use.coded_bytes for use in result.streams if _is_code(use.type, use.content))
    return _parts(plan, result.output_bytes - codes, wanted)


def _is_code(type_name: str | None, content: str) -> bool:
    return (type_name, content) == (Type.Q8_0.name, "codes")


def _coded(plan: Plan) -> list[Tensor]:
    return [tensor for tensor in plan.model.tensors if plan.types[tensor.name] == Type.Q8_0]


def _parts(plan: Plan, rest_bytes: int, wanted: str) -> FileParts:
    n_codes = sum(tensor.n_weights for tensor in _coded(plan))
    if not n_codes:
        raise ConfigError(f"{wanted}: no tensor of {plan.model.path} is rounded by ecsq")
    assert plan.mode.hessian is not None  # mode ecsq has one
    return FileParts(plan.model.path, plan.mode.hessian, plan.model.n_weights, n_codes, rest_bytes)


def _rest_bytes(plan: Plan, folder: Path, threads: int | None) -> int:
    rest = only(plan, [tensor for tensor in plan.model.tensors if plan.types[tensor.name] != Type.Q8_0])
    made, pqz = folder / "rest.gguf", folder / "rest.pqz"
    write_plan(rest, made, threads, force=True, progress=None)
    return pack_model(made, pqz, force=True, threads=threads).output_bytes
