"""Working memory of models in llama.cpp: tokens go in, logits come out.

What llama.cpp says of a call that fails goes into the exception.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.errors import ModelFileError
from pyquant.llama.cache_types import CacheTypes
from pyquant.llama.check_causal import check_causal
from pyquant.llama.interrupt import Interrupt
from pyquant.llama.log import collect_errors, reason
from pyquant.llama.room import require_for_context

if TYPE_CHECKING:
    from pyquant.llama.model import Model  # which makes contexts

T = TypeVar("T")
Observer = (
    _core.Collector | _core.StagedPass | _core.RunningWeights | _core.ResidualStream | _core.Bf16Pass
)  # of the nodes of a model's graph

CTX_PADDING = 256  # llama.cpp gives each sequence a multiple of so many cells in its cache


def padded_ctx(n_ctx: int) -> int:
    """Return the cells that llama.cpp's cache has for a sequence of n_ctx tokens."""
    return -(-n_ctx // CTX_PADDING) * CTX_PADDING


class Context:
    """A model's working memory; a context manager, to be left before the model's."""

    def __init__(
        self,
        model: Model,
        n_ctx: int,
        n_seq: int,
        n_views: int,
        n_batch: int,
        n_ubatch: int,
        n_threads: int,
        cache: CacheTypes,
        observer: Observer | None,
    ) -> None:
        self._llama = llama = model._llama
        self.model = model
        self.n_threads = n_threads
        self.n_ctx, self.n_views = n_ctx, n_views
        self.n_batch = max(min(n_batch, n_seq * n_ctx), n_seq + n_views)  # logits of all sequences at once
        parameters = llama.llama_context_default_params()
        # llama.cpp pads by itself too, but warns where it does.
        parameters.n_ctx = n_seq * padded_ctx(n_ctx + n_views)
        parameters.n_seq_max = n_seq + n_views
        parameters.kv_unified = n_views > 0  # views see cells of another sequence
        parameters.n_batch = self.n_batch
        parameters.n_ubatch = n_ubatch
        parameters.n_threads = parameters.n_threads_batch = n_threads
        parameters.type_k, parameters.type_v = cache.numbers
        parameters.swa_full = False  # as llama.cpp's tools; llama_cpp's default is the costly one
        self._interrupt = interrupt = Interrupt()
        parameters.abort_callback = llama.ggml_abort_callback(interrupt.callback)
        parameters.abort_callback_data = interrupt.address
        self._observer = observer  # C holds no reference
        if observer is not None:
            parameters.op_offload = False  # graphs of few tokens and of many are then the same
            parameters.cb_eval = llama.ggml_backend_sched_eval_callback(observer.callback)
            parameters.cb_eval_user_data = observer.address
        require_for_context(
            model.file,
            n_seq=n_seq,
            n_ctx=n_ctx,
            n_cells=parameters.n_ctx,
            n_ubatch=min(n_ubatch, self.n_batch),
            n_vocab=model.n_vocab,
            n_threads=n_threads,
            cache=cache,
        )
        doing = f"{model.path}: llama.cpp makes no context of {n_seq} x {n_ctx} tokens"
        with collect_errors() as errors, interrupt.held(), _core.AbortGuard(os.fsencode(doing)):
            self._context = llama.llama_init_from_model(model._model, parameters)
        if not self._context:
            raise ModelFileError(f"{doing}: {reason(errors, 'out of memory?')}{model._less()}")
        try:
            check_causal(llama, self._context, model.file)
        except ModelFileError:
            llama.llama_free(self._context)
            raise

    def clear(self) -> None:
        """Forget all sequences. Raises ModelFileError: a GPU is lost."""
        self._call(_core.clear)

    def decode(self, tokens: NDArray[np.int32], begin: int, wanted: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Continue all sequences. Ctrl-C is heard between a CPU's operations, and behind all of a GPU.

        Parameters
        ----------
        tokens : (n_seq, n) int32
            Each row is at positions begin..begin+n-1 of its sequence.
        begin : int
        wanted : (n,) bool
            After which of these positions logits are wanted.

        Returns
        -------
        logits : (n_seq, n_wanted, n_vocab) float32
            A view of llama.cpp's buffer, valid until the next call.

        Raises
        ------
        ModelFileError
        """
        n_seq, n = tokens.shape
        logits = self.run(
            tokens.reshape(-1),
            np.tile(np.arange(begin, begin + n), n_seq),
            np.repeat(np.arange(n_seq), n),
            np.tile(wanted, n_seq),
        )
        return logits.reshape(n_seq, int(wanted.sum()), self.model.n_vocab)

    def run(
        self,
        tokens: NDArray[np.int32],
        positions: NDArray[np.integer[Any]],
        sequences: NDArray[np.integer[Any]],
        wanted: NDArray[np.bool_],
        counts: NDArray[np.integer[Any]] | None = None,
    ) -> NDArray[np.float32]:
        """Continue sequences, each from where it is. Ctrl-C is heard as in `decode`.

        Parameters
        ----------
        tokens, positions, sequences, wanted : (n,)
            Each token's number, its position, its sequence, and whether logits are wanted after it.
        counts : (n,)
            How many sequences each token is in; `sequences` has those of the first token, then those of the
            second, and so on. None: one. A model with states has no tokens in several.

        Returns
        -------
        logits : (n_wanted, n_vocab) float32
            A view of llama.cpp's buffer, valid until the next call.

        Raises
        ------
        ModelFileError
        """
        llama, n = self._llama, len(tokens)
        token = np.ascontiguousarray(tokens, np.int32)
        position, sequence = positions.astype(np.int32), sequences.astype(np.int32)
        n_sequences = np.ones(n, np.int32) if counts is None else counts.astype(np.int32)
        first = np.cumsum(n_sequences, dtype=np.uintp) - n_sequences.astype(np.uintp)
        own_sequences, output = sequence.ctypes.data + 4 * first, wanted.astype(np.int8)
        batch = llama.llama_batch(
            n_tokens=n,
            token=_pointer(token, ctypes.c_int32),
            pos=_pointer(position, ctypes.c_int32),
            n_seq_id=_pointer(n_sequences, ctypes.c_int32),
            seq_id=_pointer(own_sequences, ctypes.POINTER(ctypes.c_int32)),
            logits=_pointer(output, ctypes.c_int8),
        )
        with self._interrupt.held():
            self._decode(batch)
            if self.model.on_gpu:
                self._call(_core.synchronize)
        shape = (int(wanted.sum()), self.model.n_vocab)
        if 0 in shape:
            return np.empty(shape, np.float32)
        logits = llama.llama_get_logits(self._context)
        if not logits:
            raise ModelFileError(f"{self.model.path}: has no logits: it is not a language model")
        return np.ctypeslib.as_array(logits, shape)

    def copy(self, source: int, target: int) -> None:
        """Let a sequence be what another one is; what it was before is forgotten."""
        self._call(_core.forget, target, -1, -1)
        self._call(_core.share, source, target, -1, -1)

    def cut(self, sequence: int, length: int) -> bool:
        """Forget all tokens of a sequence but the first `length` ones.

        Returns
        -------
        whole : bool
            False where what is left cannot be continued: a recurrent model's state does not go back, and
            layers with a sliding window keep few more tokens than the window has, and forget those before.
            Then the sequence has to be cut to 0 and read again.
        """
        done, _ = self._call(_core.forget, sequence, length, -1)
        if not done:
            return False
        memory = self._llama.llama_get_memory(self._context)
        first: int = self._llama.llama_memory_seq_pos_min(memory, sequence)
        return not self.model.window or length == 0 or 0 <= first <= max(0, length - self.model.window)

    def view(self, sequence: int, begin: int, end: int, *, of: int = 0) -> None:
        """Let a sequence see what another one has at positions begin..end-1; what it had stays."""
        self._call(_core.share, of, sequence, begin, end)

    def take(self, giver: Context, begin: int, end: int) -> None:
        """Go on from position `begin` with keys and values that another model has computed.

        Both contexts have a single sequence, and a view at least.

        Parameters
        ----------
        giver
            Has read the same tokens. Its model has layers and heads of the same sizes.
        begin, end
            Positions of what is copied; what was there is forgotten, and all behind it.

        Raises
        ------
        ModelFileError
            The caches have other shapes.
        """
        if not self.cut(0, begin):
            raise ModelFileError(f"{self.model.path}: its state cannot go back to an earlier token")
        if begin == end:
            return
        giver.view(1, begin, end)
        done, errors = self._call(_core.take, giver._context, 1)
        giver.cut(1, 0)
        if not done:
            raise ModelFileError(
                f"{self.model.path}: cannot take keys and values of {giver.model.path}: "
                f"{reason(errors, 'their shapes differ')}"
            )
        self.view(0, begin, end, of=1)
        self.cut(1, 0)

    def feed(self, tokens: NDArray[np.int32], *, at_once: bool) -> None:
        """Continue one sequence by tokens, for the time that it takes: there are no logits.

        Parameters
        ----------
        tokens : (n,) int32
        at_once : bool
            Whether they are given all at once, or one after the other.

        Raises
        ------
        ModelFileError
        """
        llama = self._llama
        token = np.ascontiguousarray(tokens, np.int32)
        portion = self.n_batch if at_once else 1
        with self._interrupt.held():
            for begin in range(0, len(token), portion):
                part = token[begin : begin + portion]
                batch = llama.llama_batch_get_one(_pointer(part, ctypes.c_int32), len(part))
                self._decode(batch)
            self._call(_core.synchronize)

    def _call(self, function: Callable[..., T], *arguments: Any) -> tuple[T, list[str]]:
        """Call what raises RuntimeError where a device is lost, or an assertion fails.

        Returns: its result, and what llama.cpp logs as errors.
        """
        doing = f"{self.model.path}: llama.cpp cannot run it"
        with collect_errors() as errors:
            try:
                return function(self._context, *arguments, os.fsencode(doing)), errors
            except RuntimeError as error:
                raise ModelFileError(f"{doing}: {error}") from None

    def _decode(self, batch: Any) -> None:
        status, errors = self._call(_core.decode, ctypes.addressof(batch))
        if status != 0:
            raise ModelFileError(
                f"{self.model.path}: llama.cpp fails to run it: {reason(errors, str(status))}"
            )

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            if self.model.on_gpu:
                self._call(_core.synchronize)
        except ModelFileError:
            self.model.is_lost = True
        else:
            self._llama.llama_free(self._context)


def _pointer(array: NDArray[Any], element: Any) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(element))
