"""Types that tensors may get: stock mixtures, candidates, floors, and the bytes that each takes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyquant import _core, limits
from pyquant.errors import ConfigError
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor, padded
from pyquant.models.tensor_name import EMBEDDINGS, OUTPUT, kind_of
from pyquant.models.tensor_type import TensorType as Type
from pyquant.models.type_policy import quantizable
from pyquant.rounding.factors import GPTQ_TYPES, GRID_TYPES
from pyquant.rounding.make_plan import make_plan
from pyquant.rounding.metadata import most_method_bytes
from pyquant.rounding.shards import Sharding, ShardTooSmall, Split
from pyquant.rounding.types import choose_types
from pyquant.schemes.ggml_type import FP4, KNOWN, file_type_of
from pyquant.schemes.recipe_file import MADE, Choice, Recipe, divides
from pyquant.schemes.settings import make_mode

# Mixtures that llama-quantize is asked for, in about the order of size.
STOCK = (
    "Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "IQ4_XS", "IQ4_NL", "Q4_0", "Q4_K_S", "Q4_1", "Q4_K_M", "Q5_0",
    "Q5_K_S", "Q5_K_M", "Q5_1", "Q6_K", "Q8_0",
)  # fmt: skip

# Without --types: FP4 has the sizes of IQ4_XS and IQ4_NL, and more error; CPUs take long for grids.
IN_MIXES = tuple(type_ for type_ in GPTQ_TYPES if type_.name not in FP4 and type_ not in GRID_TYPES)
FLOORED = frozenset({EMBEDDINGS, OUTPUT})  # tensors that all tokens meet
FLOOR_BITS = 4.0  # of these, where mixtures do not give them fewer
NEAREST = 3  # mixtures below the size, which may do so


@dataclass(frozen=True)
class Mixture:
    """Types of all quantized tensors.

    name: llama-quantize's name for it. n_bytes: of the file.
    """

    name: str
    types: Mapping[str, Type]
    n_bytes: int


@dataclass(frozen=True)
class WantedSize:
    """Size that a file is to have, given in one of these ways.

    target_size: bytes. target_bpw: bits per weight of the whole file. like: a type of llama-quantize's.
    spare: bytes of it that are left to metadata which plans do not know.
    """

    target_size: int | None = None
    target_bpw: float | None = None
    like: str | None = None
    spare: int = 0

    def __post_init__(self) -> None:
        if [self.target_size, self.target_bpw, self.like].count(None) != 2:
            raise ConfigError("size: give one of target_size, target_bpw and like")

    def __str__(self) -> str:
        if self.target_bpw is not None:  # all digits, as results are kept by this name
            return f"{self.target_bpw!r} bits".replace(".0 ", " ")
        return self.like or f"{self.target_size:,} bytes"

    def n_bytes(self, model: ModelFile, bytes_of: Callable[[str], int]) -> int:
        """Give the bytes that the file has at most. bytes_of: gives those of a mixture's file."""
        if self.target_size is not None:
            return self.target_size
        if self.target_bpw is not None:
            return int(self.target_bpw * model.n_weights / 8)
        assert self.like is not None
        return bytes_of(self.like)


def read_wanted_size(name: str, text: str) -> WantedSize:
    """Read the size of a file: a mixture's name, bytes such as 92MB, or bits per weight such as 4.5.

    name: where it was given, for errors.
    Raises ConfigError: it is none of them.
    """
    if text.upper() in KNOWN:
        return WantedSize(like=text.upper())
    with suppress(ValueError):
        return WantedSize(target_bpw=limits.BITS.parse(text))
    try:
        return WantedSize(target_size=limits.parse_size(name, text))
    except ConfigError:
        raise ConfigError(
            f"{name}: {text!r} is none of a size such as 92MB, bits per weight such as 4.5, and a type: "
            f"{', '.join(STOCK)}"
        ) from None


class Files:
    """Sizes of the files that recipes give, to the byte.

    calibration: what they are rounded by; None: it is still to be made, and metadata are of the most bytes.
    split: how they are divided; None: into one. spare: as of `WantedSize`.
    """

    def __init__(
        self,
        model: ModelFile,
        calibration: Path | None,
        folder: Path,
        *,
        split: Split | None = None,
        spare: int = 0,
        threads: int | None = None,
    ) -> None:
        self.model, self.calibration, self._folder, self._spare = model, calibration, folder, spare
        self._most = split if isinstance(split, int) else sys.maxsize  # bytes of a shard's tensors
        sharding = None if split is None else Sharding.of(model, split)
        self._plan = partial(make_plan, model, threads=threads, sharding=sharding)
        names = quantizable(model)
        self.tensors = [tensor for tensor in model.tensors if tensor.name in names]

    def n_bytes(self, types: Mapping[str, Type], base: str) -> int:
        """Give the size of a file: the larger of those rounded by GPTQ and by error propagation."""
        path = self._folder / "sized.toml"
        path.write_text(recipe_of(types, base).to_toml())
        recipe = {"mode": "recipe", "recipe": path}
        if self.calibration is None:
            plan = self._plan(make_mode(recipe), calibrates=True)
            return plan.output_bytes + most_method_bytes(self.model) + self._spare
        by_gptq = {**recipe, "hessian": self.calibration}
        modes = (make_mode(by_gptq), make_mode({**by_gptq, "error_propagation": 1}))
        return max(self._plan(mode).output_bytes for mode in modes) + self._spare

    def data_bytes(self, tensor: Tensor, type_: Type) -> int:
        """Give the bytes that a tensor takes in a file, with those that align the next."""
        return padded(tensor.n_rows * _core.row_bytes(int(type_), tensor.n_per_row))

    def fitting_shards(self, options: Mapping[str, Sequence[Type]]) -> dict[str, list[Type]]:
        """Leave out the types in which a tensor does not fit into a shard.

        options: by name. Raises ConfigError: none is left of one.
        """
        fitting = {}
        for tensor in self.tensors:
            types = [t for t in options[tensor.name] if self.data_bytes(tensor, t) <= self._most]
            if not types:
                raise ConfigError(
                    f"split-max-size: tensor {tensor.name!r} fits into {self._most:,} bytes in none of the "
                    "types that it may get; give a larger size"
                )
            fitting[tensor.name] = types
        return fitting

    def other_bytes(self, types: Mapping[str, Type], base: str) -> int:
        """Give the bytes of a file that are none of the quantized tensors'."""
        data = sum(self.data_bytes(tensor, types[tensor.name]) for tensor in self.tensors)
        return self.n_bytes(types, base) - data

    def stock(self) -> list[Mixture]:
        """Give the mixtures of llama-quantize that shards hold as recipes, by the size of their files."""
        mixtures = []
        for name in STOCK:
            with suppress(ShardTooSmall):
                mixtures.append(self.mixture(name))
        return sorted(mixtures, key=lambda mixture: mixture.n_bytes)

    def mixture(self, name: str) -> Mixture:
        """Give a mixture of llama-quantize as a recipe. Raises ConfigError."""
        try:
            file_type_of(name)
        except ValueError:
            raise ConfigError(f"like: {name} is no mixture that recipes begin with; give its size") from None
        mode = make_mode({"mode": f"ggml:{name}"}, "like")
        chosen = choose_types(self.model, mode, has_importance=True).chosen
        types = {tensor.name: chosen[tensor.name] for tensor in self.tensors}
        return Mixture(name, types, self.n_bytes(types, name))


def recipe_of(types: Mapping[str, Type], base: str) -> Recipe:
    """Make a recipe that says nothing but types."""
    return Recipe(base, {name: Choice(type_) for name, type_ in types.items()})


def candidates(
    tensors: Iterable[Tensor],
    allowed: Sequence[Type] | None,
    stock: Sequence[Mixture],
    floored: Collection[str] = FLOORED,
) -> dict[str, list[Type]]:
    """List the types that each tensor may get, fewest bits first.

    Parameters
    ----------
    tensors
        Those that are quantized.
    allowed
        Types that may be used; None: all that GPTQ rounds to.
    stock
        Mixtures that fit, by size: what they give a tensor is possible as well.
    floored
        Names of tensors that have a floor, of `FLOOR_BITS` or what the largest of the mixtures give.

    Returns
    -------
    By name. A tensor's own type is always among them.

    Raises
    ------
    ConfigError
        None of the allowed types divides the rows of a tensor.
    """
    listed = {}
    for tensor in tensors:
        has_floor = tensor.name in floored
        its_own = {mixture.types[tensor.name] for mixture in (stock[-NEAREST:] if has_floor else stock)}
        types = {type_ for type_ in allowed or IN_MIXES if divides(type_, tensor)}
        if not types | its_own:
            raise ConfigError(
                f"types: blocks of none of them divide the rows of {tensor.name}, of {tensor.n_per_row:,} "
                f"weights; allow a type such as Q4_0 or Q8_0"
            )
        if has_floor:
            types = {type_ for type_ in types if bits_of(type_, tensor) >= FLOOR_BITS}
        usable = types | its_own | {tensor.type}
        usable = {type_ for type_ in usable if bits_of(type_, tensor) <= bits_of(tensor.type, tensor)}
        listed[tensor.name] = sorted(usable, key=lambda type_: (bits_of(type_, tensor), int(type_)))
    return listed


def bits_of(type_: Type, tensor: Tensor) -> float:
    """Give the bits per weight that a tensor has in a type."""
    return 8 * _core.row_bytes(int(type_), tensor.n_per_row) / tensor.n_per_row


def usable_at(
    files: Files, n_bytes: int, allowed: Sequence[Type] | None, floored: Collection[str]
) -> tuple[list[Mixture], dict[str, list[Type]]]:
    """List the stock mixtures that fit into a size, and the types that tensors may get (`candidates`)."""
    types = {*(allowed or MADE), *(tensor.type for tensor in files.tensors)}
    stock = [
        mixture
        for mixture in files.stock()
        if mixture.n_bytes <= n_bytes and set(mixture.types.values()) <= types
    ]
    return stock, files.fitting_shards(candidates(files.tensors, allowed, stock, floored))


def base_of(stock: Sequence[Mixture]) -> str:
    """Name the mixture that a recipe begins with, of those that fit: it has a type for every tensor."""
    return stock[-1].name if stock else STOCK[0]


def check_reachable(files: Files, n_bytes: int, options: Mapping[str, Sequence[Type]], base: str) -> None:
    """Refuse a size that no choice of types has, and one that needs none.

    options: by tensor, the types that it may get, fewest bits first. base: of the recipe.
    Raises ConfigError.
    """
    smallest = {name: types[0] for name, types in options.items()}
    least = files.n_bytes(smallest, base)
    if least > n_bytes:
        raise refuse_size(files, n_bytes, least, smallest)
    whole = least
    for tensor in files.tensors:
        whole += padded(tensor.n_bytes) - files.data_bytes(tensor, smallest[tensor.name])
    if whole <= n_bytes:
        raise ConfigError(
            f"size: {n_bytes:,} bytes hold all of {files.model.path} as it is: nothing is to be quantized"
        )


def refuse_size(files: Files, n_bytes: int, least: int, smallest: Mapping[str, Type]) -> ConfigError:
    """Make the error that says why a size is not reachable.

    n_bytes, least: the size that is wanted, and the least.
    """

    def in_bits(size: int) -> str:
        return f"{size:,} bytes ({8 * size / files.model.n_weights:.2f} bits per weight)"

    bounds: dict[tuple[str, str, int], int] = {}
    for tensor in files.tensors:
        key = kind_of(tensor.name), smallest[tensor.name].name, tensor.n_per_row
        bounds[key] = bounds.get(key, 0) + tensor.n_bytes
    largest = sorted(bounds, key=lambda key: -bounds[key])
    said = ", ".join(f"{kind} {type_} (rows of {n_per_row:,})" for kind, type_, n_per_row in largest[:4])
    return ConfigError(
        f"size: not reachable: {in_bits(n_bytes)} are wanted, and {in_bits(least)} are the least that types "
        f"which may be used give; what bounds it: {said}"
    )


def read_types(names: str | os.PathLike[str] | None) -> list[Type] | None:
    """Read types between commas. Raises ConfigError."""
    from pyquant.schemes.recipe_file import read_type

    return None if names is None else [read_type(name.strip(), "types") for name in str(names).split(",")]
