"""Models in llama.cpp: weights, vocabulary, and contexts to run them in.

What llama.cpp logs goes to the logger `pyquant.llama`; what it says of a call that fails goes into the
exception.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from pathlib import Path

from pyquant import _core
from pyquant.errors import ConfigError, ModelFileError
from pyquant.llama.cache_types import F16_CACHE, CacheTypes
from pyquant.llama.check_causal import check_decoder
from pyquant.llama.check_types import check_types
from pyquant.llama.check_vocabulary import check_vocabulary
from pyquant.llama.context import Context, Observer
from pyquant.llama.interrupt import Interrupt
from pyquant.llama.library import bindings
from pyquant.llama.log import collect_errors, reason
from pyquant.llama.offload import ON_CPU, Offload, offload_here, say_once
from pyquant.llama.room import require_for_model
from pyquant.llama.vocabulary import Vocabulary
from pyquant.machine.cpu import n_threads
from pyquant.models.check_numbers import check_numbers
from pyquant.models.model_file import AnyModel, ModelFile, open_model
from pyquant.models.pqz.as_gguf import as_gguf

logger = logging.getLogger("pyquant.llama.context")

LEARNED_POSITIONS = "position_embd.weight"  # a row for each; llama.cpp ends the process at one more


def path_of(model: AnyModel) -> Path:
    """Return where a model is: the file, of a split model the first shard."""
    return model.path if isinstance(model, ModelFile) else Path(model)


@cache
def warn_of_length(path: Path, n_ctx_train: int) -> None:
    """Say once of a model that a context is longer than those that it was trained with."""
    logger.warning(
        "%s: was trained with contexts of %d tokens; behind these, what it says may be nonsense",
        path,
        n_ctx_train,
    )


class Model:
    """A model's weights, mapped into memory, and its vocabulary; a context manager.

    Parameters
    ----------
    model
        A GGUF or .pqz file, or a ModelFile.
    changing
        Let `RunningWeights` change its matrices: they are mapped as they are in the file, on the CPU.
    as_stored
        Let them be mapped as they are in the file: else llama.cpp may put some types in another order.
    on_cpu
        Keep it off GPUs.
    staged
        Let passes stop inside, and be taken up there: on a GPU only if one has all layers.

    Attributes
    ----------
    on_gpu
        Whether some of its layers are on a GPU.
    is_lost
        Whether that GPU is gone: llama.cpp would end the process where what it holds is freed.
    path : Path
    file : ModelFile
        Its headers.
    vocabulary : Vocabulary
    n_vocab : int
        Tokens of the vocabulary.
    n_ctx_train : int
        Tokens of context that it was trained with.
    has_states : bool
        Whether it keeps a state beside keys and values, as recurrent and hybrid models do.
    window : int
        Tokens that layers with a sliding window see; 0 where all layers see all.

    Raises
    ------
    ModelFileError
        With llama.cpp's reason.
    NotEnoughMemory
        Its weights do not fit into what this process may use.
    RuntimeLibraryError
    OutputError
        There is no room to expand a .pqz file.
    """

    def __init__(
        self,
        model: AnyModel,
        *,
        changing: bool = False,
        as_stored: bool = False,
        on_cpu: bool = False,
        staged: bool = False,
    ) -> None:
        self._llama = llama = bindings()
        self.path = path_of(model)
        self.file = file = open_model(model)
        check_numbers(file)
        check_types(file)
        check_vocabulary(file)
        require_for_model(file)
        parameters = llama.llama_model_default_params()
        parameters.load_mode = llama.LLAMA_LOAD_MODE_MMAP
        parameters.use_extra_bufts = not changing and not as_stored
        offload = ON_CPU if on_cpu else _offload_of(file, changing=changing, staged=staged)
        held = offload.place(llama, parameters)
        if offload.gpu_layers and any(tensor.type.name == "Q4_T" for tensor in file.tensors):
            say_once(f"{self.path}: tensors of type Q4_T are computed on the CPU")
        interrupt = Interrupt()
        continues = llama.llama_progress_callback(lambda _share, _data: not interrupt.heard)
        parameters.progress_callback = continues
        doing = f"{self.path}: llama.cpp cannot load it"
        with (
            as_gguf(file) as stock,
            collect_errors() as errors,
            interrupt.held(),
            _core.AbortGuard(os.fsencode(doing)),
        ):
            self._model = llama.llama_model_load_from_file(os.fsencode(stock), parameters)
        del held
        self.on_gpu = offload.gpu_layers != 0
        self.is_lost = False
        if not self._model:
            raise ModelFileError(f"{doing}: {reason(errors, 'it does not say why')}{self._less()}")
        self.vocabulary = Vocabulary(llama, self._model, self.path)
        self.n_vocab = self.vocabulary.n_tokens
        self.n_ctx_train = llama.llama_model_n_ctx_train(self._model)
        self.has_states = bool(
            llama.llama_model_is_recurrent(self._model) or llama.llama_model_is_hybrid(self._model)
        )
        self.window: int = llama.llama_model_n_swa(self._model)
        self._n_positions = next((t.shape[1] for t in file.tensors if t.name == LEARNED_POSITIONS), None)

    def _less(self) -> str:
        """Say what takes less memory on a GPU, where layers are there."""
        return "; fewer --gpu-layers take less memory of the GPU" if self.on_gpu else ""

    def chat_template(self, name: str | None = None) -> str | None:
        """Return the Jinja template by which the model wants conversations written; None without one.

        name: of one beside the usual one, such as "tool_use".
        """
        text = self._llama.llama_model_chat_template(self._model, name.encode() if name else None)
        return text.decode(errors="replace") if text else None

    def context(
        self,
        *,
        n_ctx: int,
        n_seq: int = 1,
        n_views: int = 0,
        n_batch: int = 2048,
        n_ubatch: int = 512,
        threads: int | None = None,
        cache: CacheTypes = F16_CACHE,
        observer: Observer | None = None,
    ) -> Context:
        """Make a place to run it.

        Parameters
        ----------
        n_ctx, n_seq
            Tokens of a sequence, and how many sequences there are.
        n_views
            Sequences 1, 2, ... beside a single one: they see parts of it (`Context.view`), and have room for
            one token each. A model with states has none.
        n_batch
            Tokens that are given at a time.
        n_ubatch
            Tokens of them that are computed together.
        threads
            None: all cores.
        cache
            Types that keys and values are kept in.
        observer
            What sees the nodes of the model's graph; it may end a pass before there are logits.

        Raises
        ------
        ConfigError
            A sequence is longer than the positions that the model has learned.
        ModelFileError
            With llama.cpp's reason; or the model does not predict each token from those before it.
        """
        check_decoder(self._llama, self._model, self.file)
        if self._n_positions is not None and n_ctx > self._n_positions:
            raise ConfigError(
                f"ctx: {self.path} has learned {self._n_positions:,} positions, so a chunk has no more "
                f"tokens; got {n_ctx:,}"
            )
        if n_ctx > self.n_ctx_train > 0:
            warn_of_length(self.path, self.n_ctx_train)
        n_views = 0 if self.has_states else n_views
        return Context(self, n_ctx, n_seq, n_views, n_batch, n_ubatch, n_threads(threads), cache, observer)

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *raised: object) -> None:
        if not self.is_lost:
            self._llama.llama_model_free(self._model)


def _offload_of(file: ModelFile, *, changing: bool, staged: bool) -> Offload:
    offload = offload_here()
    if offload.gpu_layers and changing:
        say_once("what changes a model's weights again and again is computed on the CPU")
        return ON_CPU
    if offload.gpu_layers and staged and not offload.is_whole(file.hyperparameter("block_count")):
        say_once(
            "rounding's passes stop at each matrix: on the CPU, as no GPU has all layers "
            "(--gpu-layers all, of several GPUs --main-gpu N)"
        )
        return ON_CPU
    return offload
