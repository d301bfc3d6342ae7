"""Small models that do not predict tokens from those before, and one with attention in a latent space."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import MODEL_ARCH, GGUFWriter

from pyquant.data.generated import GeneratedModel
from tests.support.family import Family
from tests.support.gguf_file import Value, add_keys, finish

WIDTH, FF, LATENT, ROPE, HEAD = 64, 96, 64, 16, 32
N_VOCAB = 320
SIZES = {
    "context_length": 64, "embedding_length": WIDTH, "feed_forward_length": FF, "block_count": 1,
    "vocab_size": N_VOCAB,
}  # fmt: skip


def write(path: Path, architecture: str, keys: dict[str, Value], shapes: dict[str, tuple[int, ...]]) -> Path:
    """Write a model of random weights; shapes: in numpy's order."""
    writer, rng = GGUFWriter(path, architecture), np.random.default_rng(3)
    add_keys(writer, {f"{architecture}.{key}": value for key, value in {**SIZES, **keys}.items()})
    GeneratedModel(n_vocab=N_VOCAB).add_tokenizer(writer)
    if "token_types.weight" in shapes:
        writer.add_token_type_count(2)
    for name, shape in shapes.items():
        x = rng.normal(size=shape).astype(np.float32)
        writer.add_tensor(name, x / 8 if len(shape) > 1 else 1 + x / 8)
    finish(writer)
    return path


def dream(path: Path) -> Path:
    """A diffusion model."""
    return Family(MODEL_ARCH.DREAM).write(path)


def embedding(path: Path) -> Path:
    """A language model's graph whose tokens see all of a text, as models of embeddings have it."""
    writer = GGUFWriter(path, "llama")
    writer.add_bool("llama.attention.causal", False)
    return _generated(writer, path)


def without_logits(path: Path) -> Path:
    """The same graph without its output, as llama.cpp has it for an embedding model."""
    return _generated(GGUFWriter(path, "llama-embed"), path)


def _generated(writer: GGUFWriter, path: Path) -> Path:
    GeneratedModel(n_vocab=N_VOCAB, n_layer=1).add_to(writer)
    finish(writer)
    return path


def bert(path: Path) -> Path:
    """An encoder."""
    square, norms = (WIDTH, WIDTH), ("attn_output_norm", "layer_output_norm")
    matrices = {"attn_q": square, "attn_k": square, "attn_v": square, "attn_output": square}
    matrices |= {"ffn_up": (FF, WIDTH), "ffn_down": (WIDTH, FF)}
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (N_VOCAB, WIDTH), "token_types.weight": (2, WIDTH),
        "position_embd.weight": (64, WIDTH), "token_embd_norm.weight": (WIDTH,),
        "token_embd_norm.bias": (WIDTH,),
    }  # fmt: skip
    for kind, shape in {**matrices, **dict.fromkeys(norms, (WIDTH,))}.items():
        shapes |= {f"blk.0.{kind}.weight": shape, f"blk.0.{kind}.bias": shape[:1]}
    keys = {"attention.head_count": 2, "attention.layer_norm_epsilon": 1e-5, "attention.causal": False}
    return write(path, "bert", keys, shapes)


def t5(path: Path) -> Path:
    """An encoder and a decoder."""
    square = (WIDTH, WIDTH)
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (N_VOCAB, WIDTH)}
    for half, attentions in {"enc": ("attn",), "dec": ("attn", "cross_attn")}.items():
        shapes[f"{half}.output_norm.weight"] = (WIDTH,)
        for attention in attentions:
            shapes[f"{half}.blk.0.{attention}_norm.weight"] = (WIDTH,)
            shapes[f"{half}.blk.0.{attention}_rel_b.weight"] = (8, 2)
            for kind in ("q", "k", "v", "o"):
                shapes[f"{half}.blk.0.{attention}_{kind}.weight"] = square
        shapes[f"{half}.blk.0.ffn_norm.weight"] = (WIDTH,)
        for kind, shape in {"gate": (FF, WIDTH), "up": (FF, WIDTH), "down": (WIDTH, FF)}.items():
            shapes[f"{half}.blk.0.ffn_{kind}.weight"] = shape
    keys = {
        "attention.head_count": 2, "attention.key_length": 32, "attention.value_length": 32,
        "attention.layer_norm_epsilon": 1e-5, "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.relative_buckets_count": 8, "decoder_start_token_id": 0,
    }  # fmt: skip
    return write(path, "t5", keys, shapes)


def latent(path: Path) -> Path:
    """DeepSeek 2's attention with a single head, whose matrices have two dimensions."""
    block = {
        "attn_norm": (WIDTH,), "attn_q_a": (64, WIDTH), "attn_q_a_norm": (64,),
        "attn_q_b": (HEAD + ROPE, 64), "attn_kv_a_mqa": (LATENT + ROPE, WIDTH), "attn_kv_a_norm": (LATENT,),
        "attn_k_b": (LATENT, HEAD), "attn_v_b": (HEAD, LATENT), "attn_output": (WIDTH, HEAD),
        "ffn_norm": (WIDTH,), "ffn_gate": (FF, WIDTH), "ffn_up": (FF, WIDTH), "ffn_down": (WIDTH, FF),
    }  # fmt: skip
    keys = {
        "attention.head_count": 1, "attention.head_count_kv": 1, "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.kv_lora_rank": LATENT, "attention.q_lora_rank": 64, "rope.dimension_count": ROPE,
        "attention.key_length": LATENT + ROPE, "attention.value_length": LATENT,
        "attention.key_length_mla": HEAD + ROPE, "attention.value_length_mla": HEAD,
        "leading_dense_block_count": 1, "expert_count": 0, "expert_used_count": 0,
        "expert_feed_forward_length": FF, "expert_shared_count": 0, "expert_weights_scale": 1.0,
    }  # fmt: skip
    shapes = {"token_embd.weight": (N_VOCAB, WIDTH), "output_norm.weight": (WIDTH,)}
    shapes |= {"output.weight": (N_VOCAB, WIDTH)}
    shapes |= {f"blk.0.{kind}.weight": shape for kind, shape in block.items()}
    return write(path, "deepseek2", keys, shapes)


def gemma3n(path: Path) -> Path:
    """Gemma 3n: four streams side by side (AltUp), matrices of low rank beside attention (LAuReL), inputs of
    every layer."""
    heads, n_layer = 2, 2
    altup, per_layer, rank = 4, 256, 64  # as llama.cpp has them, whatever a file says
    block = {
        "attn_norm": (WIDTH,), "attn_q": (heads * HEAD, WIDTH), "attn_k": (HEAD, WIDTH),
        "attn_v": (HEAD, WIDTH), "attn_output": (WIDTH, heads * HEAD), "attn_q_norm": (HEAD,),
        "attn_k_norm": (HEAD,), "post_attention_norm": (WIDTH,), "ffn_norm": (WIDTH,),
        "ffn_gate": (FF, WIDTH), "ffn_up": (FF, WIDTH), "ffn_down": (WIDTH, FF), "post_ffw_norm": (WIDTH,),
        "inp_gate": (per_layer, WIDTH), "proj": (WIDTH, per_layer), "post_norm": (WIDTH,),
        "altup_correct_coef": (altup, altup), "altup_correct_scale": (WIDTH,),
        "altup_predict_coef": (altup * altup, altup), "altup_router": (altup, WIDTH),
        "altup_router_norm": (WIDTH,), "laurel_l": (rank, WIDTH), "laurel_r": (WIDTH, rank),
        "laurel_post_norm": (WIDTH,),
    }  # fmt: skip
    keys = {
        "block_count": n_layer, "attention.head_count": heads, "attention.head_count_kv": 1,
        "attention.key_length": HEAD, "attention.value_length": HEAD, "attention.sliding_window": 32,
        "attention.layer_norm_rms_epsilon": 1e-6, "rope.dimension_count": HEAD,
    }  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (N_VOCAB, WIDTH), "output_norm.weight": (WIDTH,),
        "altup_proj.weight": (altup - 1, WIDTH, WIDTH), "altup_unembd_proj.weight": (altup - 1, WIDTH, WIDTH),
        "per_layer_token_embd.weight": (N_VOCAB, per_layer * n_layer),
        "per_layer_model_proj.weight": (per_layer * n_layer, WIDTH),
        "per_layer_proj_norm.weight": (per_layer,),
    }  # fmt: skip
    for layer in range(n_layer):
        shapes |= {f"blk.{layer}.{kind}.weight": shape for kind, shape in block.items()}
    return write(path, "gemma3n", keys, shapes)


def glm4(path: Path) -> Path:
    """GLM 4 with a layer that predicts one more token (MTP), which llama.cpp does not run."""
    block = {
        "attn_norm": (WIDTH,), "attn_q": (WIDTH, WIDTH), "attn_k": (HEAD, WIDTH), "attn_v": (HEAD, WIDTH),
        "attn_output": (WIDTH, WIDTH), "post_attention_norm": (WIDTH,), "ffn_norm": (WIDTH,),
        "ffn_up": (2 * FF, WIDTH), "ffn_down": (WIDTH, FF), "post_ffw_norm": (WIDTH,),
    }  # fmt: skip
    keys = {
        "block_count": 2, "nextn_predict_layers": 1, "attention.head_count": 2, "attention.head_count_kv": 1,
        "attention.key_length": HEAD, "attention.value_length": HEAD, "rope.dimension_count": HEAD,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (N_VOCAB, WIDTH), "output_norm.weight": (WIDTH,),
        "output.weight": (N_VOCAB, WIDTH), "blk.1.nextn.eh_proj.weight": (WIDTH, 2 * WIDTH),
        "blk.1.nextn.enorm.weight": (WIDTH,), "blk.1.nextn.hnorm.weight": (WIDTH,),
    }  # fmt: skip
    for layer in range(2):
        shapes |= {f"blk.{layer}.{kind}.weight": shape for kind, shape in block.items()}
    return write(path, "glm4", keys, shapes)


# What test-llama-archs does not save, by architecture.
OTHERS = {"bert": bert, "t5": t5, "gemma3n": gemma3n, "glm4 with MTP": glm4}
