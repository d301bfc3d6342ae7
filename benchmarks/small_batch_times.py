"""Process that times passes of a few tokens on the llama.cpp that LLAMA_CPP_LIB_PATH points to.

python -m benchmarks.small_batch_times MODEL DEPTH THREADS, then numbers of tokens on stdin, one a line. Each
is answered by the seconds of a pass behind DEPTH tokens, all of whose logits are wanted. A pass before it is
not timed: threads of the process that ran before go on waiting for a while, and take a core.
"""

from __future__ import annotations

import ctypes
import sys
import time
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as llama

N_MOST = 64  # tokens of a pass


def main() -> None:
    path, depth, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    silent = llama.llama_log_callback(lambda *_: None)
    llama.llama_log_set(silent, ctypes.c_void_p())
    llama.llama_backend_init()
    context = open_context(path, depth, threads)
    memory = llama.llama_get_memory(context)
    batch = llama.llama_batch_init(max(depth, N_MOST), 0, 1)
    vocab = llama.llama_model_get_vocab(llama.llama_get_model(context))
    tokens = np.random.default_rng(0).integers(0, llama.llama_vocab_n_tokens(vocab), depth + N_MOST)
    decode(context, batch, tokens[:depth], 0)
    for text in sys.stdin:
        n = int(text)
        for _ in range(2):
            begin = time.perf_counter()
            decode(context, batch, tokens[depth : depth + n], depth)
            seconds = time.perf_counter() - begin
            llama.llama_memory_seq_rm(memory, 0, depth, -1)
        print(seconds, flush=True)


def open_context(path: str, depth: int, threads: int) -> Any:
    model = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
    parameters = llama.llama_context_default_params()
    parameters.n_ctx, parameters.n_batch = depth + N_MOST, max(depth, N_MOST)
    parameters.n_threads = parameters.n_threads_batch = threads
    return llama.llama_init_from_model(model, parameters)


def decode(context: Any, batch: Any, tokens: np.ndarray, position: int) -> None:
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.logits[i] = int(token), position + i, True
        batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
    if llama.llama_decode(context, batch) != 0:
        raise SystemExit("llama_decode failed")
    llama.llama_get_logits(context)


if __name__ == "__main__":
    main()
