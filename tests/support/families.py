"""Families of models that people run: what they are called, and where they differ."""

from __future__ import annotations

from gguf import MODEL_ARCH, GGMLQuantizationType

from tests.support.family import EXPERTS, Family

CTX, CHUNKS = 64, 64  # what tests calibrate on

WIDE = {"embedding_length": 256, "feed_forward_length": 256, "block_count": 1}
ODD = {"embedding_length": 160, "feed_forward_length": 288, "block_count": 1, "attention.key_length": 40}
NO_GROUPS = {"attention.head_count_kv": 4}
WINDOW = {"attention.sliding_window": 32}

FAMILIES = {
    "Llama": Family(
        MODEL_ARCH.LLAMA,
        {**WIDE, "attention.key_length": 64, "attention.head_count": 2, "attention.head_count_kv": 1},
        tied=True,
    ),
    "Mistral": Family(MODEL_ARCH.LLAMA, {**ODD, **WINDOW}, type=GGMLQuantizationType.BF16),
    "Mixtral": Family(MODEL_ARCH.LLAMA, EXPERTS),
    "Qwen2": Family(MODEL_ARCH.QWEN2, biases=("attn_q", "attn_k", "attn_v"), tied=True, pairs=True),
    "Qwen3": Family(MODEL_ARCH.QWEN3, {"attention.key_length": 32}, tied=True, pairs=True),
    "Qwen3-MoE": Family(
        MODEL_ARCH.QWEN3MOE,
        {**EXPERTS, "expert_feed_forward_length": 64, "attention.key_length": 32},
        pairs=True,
    ),
    "Gemma 2": Family(
        MODEL_ARCH.GEMMA2,
        {
            **WINDOW, "attention.key_length": 64, "attention.head_count_kv": 1,
            "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
        },
        tied=True,
    ),
    "Gemma 3": Family(
        MODEL_ARCH.GEMMA3,
        {
            **WINDOW, "attention.key_length": 64, "attention.head_count": 2, "attention.head_count_kv": 1,
            "embedding_length": 64, "feed_forward_length": 96, "block_count": 6,
        },
        tied=True,
    ),
    "GPT-2": Family(
        MODEL_ARCH.GPT2, NO_GROUPS, biases=("attn_qkv", "attn_output", "ffn_up", "ffn_down"),
        layer_norm=True, pairs=True, tied=True,
    ),
    "Phi-3": Family(MODEL_ARCH.PHI3, {**ODD, **NO_GROUPS}, shapes={"ffn_up": ("ff twice", "width")}),
    "StarCoder2": Family(
        MODEL_ARCH.STARCODER2, ODD,
        biases=("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down"),
        layer_norm=True, pairs=True,
    ),
    "OLMo2": Family(
        MODEL_ARCH.OLMO2, NO_GROUPS, shapes={"attn_q_norm": ("q",), "attn_k_norm": ("kv",)}, pairs=True
    ),
    "Mamba": Family(
        MODEL_ARCH.MAMBA,
        {
            "feed_forward_length": 0, "attention.head_count": 0, "attention.head_count_kv": 0,
            "ssm.conv_kernel": 4, "ssm.inner_size": 192, "ssm.state_size": 16, "ssm.time_step_rank": 6,
        },
        biases=("ssm_conv1d", "ssm_dt"), pairs=True, tied=True,
    ),
}  # fmt: skip
