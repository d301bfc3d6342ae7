"""What a method has to do, counted from a model's header and a short pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyquant.calibration.calibration import Calibration
from pyquant.calibration.gradients.llama_graph import output_side_bytes, why_unknown
from pyquant.calibration.random_tokens import RANDOM_SHARE
from pyquant.calibration.sample import MOST_CHUNKS
from pyquant.fit.method.hessian import (
    MOST_BYTES,
    OUTPUT_SIDE_CHUNKS,
    has_output_hessians,
    output_side_matrices,
)
from pyquant.fit.method.probe import Probe
from pyquant.fit.method.split_text import SplitText
from pyquant.fit.method.stages import BY_GPTQ, PROPAGATION_CHUNKS, stages_of
from pyquant.fit.mix_model import by_gradients
from pyquant.models.model_file import ModelFile
from pyquant.models.tensor import Tensor
from pyquant.models.type_policy import quantizable
from pyquant.rounding.correction import ENOUGH


@dataclass(frozen=True)
class Entered:
    """Matrices that share an input.

    n_in: how long it is. matrices: the tensors. n_used: experts that a token is sent to; 1 without experts.
    in_stream: whether what it gives is added to the residual stream.
    """

    n_in: int
    matrices: Sequence[Tensor]
    n_used: int
    in_stream: bool

    @property
    def n_out(self) -> int:
        """What the first of them gives for a token."""
        return self.matrices[0].shape[1]

    @property
    def n_hessians(self) -> int:
        """One for each expert."""
        return self.matrices[0].n_experts


@dataclass(frozen=True)
class Work:
    """A file to be made by a method, and how much there is to do.

    Attributes
    ----------
    model, method, texts
        What is quantized by "imatrix", "gptq" or "best", calibrated on what.
    output_bytes
        Of a stage's file.
    probed
        What `probe` gives.
    in_file
        Whether Hessian statistics are kept in a file of the user's, whatever they take.
    given
        Those that are in it already; None: they are made.
    mixed
        Whether types are mixed for a size, which is measured on files that are tried.
    high_effort
        Whether scales are trained when all is rounded, where gradients are known.
    n_evaluated
        Tokens that the output is evaluated on, by "gptq" and "best" beside llama-quantize's file.
    memory
        Bytes that what is kept of tokens between layers may take; None: 512 MiB.
    threads
        None: one for each core.
    """

    model: ModelFile
    method: str
    texts: SplitText
    output_bytes: int
    probed: Probe
    in_file: bool
    given: Calibration | None
    mixed: bool
    high_effort: bool
    n_evaluated: int
    memory: int | None
    threads: int | None

    @property
    def n_ctx(self) -> int:
        """Tokens of a chunk."""
        return self.texts.held_out.n_ctx

    @property
    def n_chunks(self) -> int:
        """Chunks of texts to calibrate on."""
        return self.texts.n_chunks

    @property
    def by_gptq(self) -> bool:
        """Whether errors are fed back."""
        return self.method in BY_GPTQ

    @cached_property
    def by_name(self) -> dict[str, Tensor]:
        """The model's tensors."""
        return {tensor.name: tensor for tensor in self.model.tensors}

    @cached_property
    def inputs(self) -> list[Entered]:
        """What enters matrices."""
        n_used, width = self.model.hyperparameter("expert_used_count", 1), self.width
        return [
            Entered(
                each.n_in, [self.by_name[name] for name in each.matrices], n_used if each.routed else 1,
                in_stream=not each.routed
                and [self.by_name[name].n_rows for name in each.matrices] == [width],
            )
            for each in self.probed.collector.inputs
        ]  # fmt: skip

    @property
    def width(self) -> int:
        """Numbers of the residual stream, for a token."""
        return self.model.hyperparameter("embedding_length")

    @property
    def matrices(self) -> list[Tensor]:
        """All that inputs enter."""
        return [tensor for each in self.inputs for tensor in each.matrices]

    @property
    def experts(self) -> list[Tensor]:
        """Matrices of experts."""
        return [tensor for tensor in self.matrices if tensor.n_experts > 1]

    @cached_property
    def has_gradients(self) -> bool:
        """Whether the model's gradients are known."""
        return why_unknown(self.model) is None

    @cached_property
    def all_hessians(self) -> int:
        """Bytes of the Hessians of all matrices, output-side ones too."""
        return 4 * sum(self.probed.collector.sizes) + self._bytes_of(self._output_side(whole=True))

    @property
    def n_tokens(self) -> int:
        """Tokens of texts that are calibrated on."""
        if self.given and (origin := self.given.origin):
            return origin.chunk_size * sum(text.n_chunks for text in origin.texts if text.sha256)
        return self.n_chunks * self.n_ctx

    @property
    def keeps(self) -> bool:
        """Whether Hessians are kept: those of experts are shrunk towards each other, so collected anew."""
        if self.given:
            return not self.given.is_collected_later
        fits = self.by_gptq and not self.experts and self.all_hessians <= MOST_BYTES
        return self.in_file or fits

    @cached_property
    def rows(self) -> list[str]:
        """Matrices that output-side Hessians are made of."""
        return [] if self.given else self._output_side(whole=self.keeps)

    @property
    def sums(self) -> int:
        """Bytes of what is made and kept of inputs: Hessians, or their diagonals."""
        if self.given:
            return 0
        if self.keeps:
            return 4 * sum(self.probed.collector.sizes)
        return 4 * sum(each.n_in * each.n_hessians for each in self.inputs)

    @property
    def output_hessians(self) -> int:
        """Bytes of output-side Hessians."""
        return self._bytes_of(self.rows)

    @property
    def hessian_bytes(self) -> int:
        """Bytes of the statistics that are made."""
        return self.sums + self.output_hessians

    @property
    def making_bytes(self) -> int:
        """Bytes on disk while the statistics are made: sums twice, output-side ones twice, whole."""
        return 2 * self.sums + 4 * self.output_hessians

    @property
    def n_output_side(self) -> int:
        """Chunks that output-side Hessians are made on."""
        return min(OUTPUT_SIDE_CHUNKS, self.n_chunks) if self.rows else 0

    @property
    def has_output_side(self) -> bool:
        """Whether the statistics have output-side Hessians."""
        if self.given:
            return self.method == "best" and has_output_hessians(self.given)
        return self.n_output_side > 0

    @property
    def knows_gradients(self) -> bool:
        """Whether the statistics have what spares sensitivities their measurement."""
        return bool(by_gradients(self.model, self.given)) if self.given else self.n_output_side > 0

    @property
    def n_tried(self) -> int:
        """Count the files that are made to find a mix of types.

        They are of one round or two, and a stock mixture's: gradients spare a round.
        """
        return 2 if self.knows_gradients else 3

    @property
    def propagates(self) -> bool:
        """Whether errors are propagated: there are tokens enough to correct the narrowest matrices by."""
        return self.method == "best" and self._n_running * self.n_ctx >= self.needed_to_propagate

    @cached_property
    def needed_to_propagate(self) -> int:
        """The fewest tokens that errors are propagated over."""
        rounded = quantizable(self.model)
        widths = (each.n_in for each in self.inputs if any(t.name in rounded for t in each.matrices))
        return ENOUGH * min(widths, default=0)

    @property
    def n_propagated(self) -> int:
        """Chunks that errors are propagated over."""
        return self._n_running if self.propagates else 0

    @property
    def n_collected(self) -> int:
        """Chunks that Hessians are collected on while the model is rounded, without error propagation."""
        return self._n_kept if self.by_gptq and not (self.keeps or self.n_propagated) else 0

    @property
    def trains_scales(self) -> bool:
        """Whether scales are trained."""
        return self.high_effort and self.has_gradients

    @cached_property
    def stages(self) -> list[str]:
        """Names of the stages that are tried, if each applies."""
        stages = stages_of(
            self.method, Path(), output_side=self.has_output_side, collected=not self.keeps,
            propagates=self.propagates, trains_scales=self.trains_scales,
        )  # fmt: skip
        return [stage.name for stage in stages if not stage.instead]

    @property
    def peer_bytes(self) -> int:
        """Bytes of llama-quantize's file that the output is evaluated beside."""
        return self.output_bytes if self.n_evaluated and self.by_gptq else 0

    @property
    def _n_running(self) -> int:
        return min(PROPAGATION_CHUNKS if self.keeps else MOST_CHUNKS, self._n_kept)

    @property
    def _n_kept(self) -> int:
        n_chunks = self.n_tokens / self.n_ctx
        return min(MOST_CHUNKS, round(n_chunks * (1 + RANDOM_SHARE)))  # random tokens are among them

    def _output_side(self, *, whole: bool) -> list[str]:
        has = self.method == "best" and self.has_gradients
        return output_side_matrices(self.model, whole=whole) if has else []

    def _bytes_of(self, rows: Sequence[str]) -> int:
        return output_side_bytes(self.by_name[name] for name in rows)
