"""The trained model as a GGUF file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, LlamaFileType, TokenType
from numpy.typing import NDArray
from tokenizers import Tokenizer

from recipe.shape import Shape

NAME = "pylm-5M"


def write(path: Path, shape: Shape, weights: dict[str, NDArray[np.float32]], tokenizer: Tokenizer) -> None:
    """Matrices as F16, norms as F32, both under the names that `weights` gives them.

    The recipe rotates neighboring pairs, as llama.cpp does for this architecture, so rows of
    attn_q and attn_k need no permutation.
    """
    writer = GGUFWriter(path, "llama")
    writer.add_name(NAME)
    writer.add_description("trained on CPython's standard library; see pyquant's recipe/MODEL_CARD.md")
    writer.add_license("PSF-2.0")
    writer.add_file_type(LlamaFileType.MOSTLY_F16)
    writer.add_vocab_size(shape.n_vocab)
    writer.add_context_length(shape.n_ctx)
    writer.add_embedding_length(shape.n_embd)
    writer.add_block_count(shape.n_layer)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.n_head)
    writer.add_head_count_kv(shape.n_head_kv)
    writer.add_layer_norm_rms_eps(shape.norm_eps)
    writer.add_rope_dimension_count(shape.head)
    writer.add_rope_freq_base(shape.rope_base)
    _add_tokenizer(writer, tokenizer)
    for name, weight in weights.items():
        writer.add_tensor(name, weight.astype(np.float16 if weight.ndim == 2 else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: GGUFWriter, tokenizer: Tokenizer) -> None:
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    types = [TokenType.CONTROL] + [TokenType.NORMAL] * (len(tokens) - 1)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(True)
