"""Small random models of architectures that llama.cpp's test-llama-archs leaves out, from metadata alone.

cmake/oracle/fill_model.cpp gives each the tensors that llama.cpp makes for it.
"""

from __future__ import annotations

from pathlib import Path

from gguf import GGUFWriter

from pyquant.data.generated import GeneratedModel
from tests.support.gguf_file import Value, add_keys, finish
from tests.support.oracle import Oracle

N_VOCAB, WIDTH, FF = 320, 256, 384
COMMON: dict[str, Value] = {
    "context_length": 256, "embedding_length": WIDTH, "feed_forward_length": FF, "block_count": 2,
    "vocab_size": N_VOCAB, "attention.head_count": 2, "attention.head_count_kv": 2,
    "attention.layer_norm_epsilon": 1e-5, "attention.layer_norm_rms_epsilon": 1e-5,
}  # fmt: skip
EXPERTS: dict[str, Value] = {"expert_count": 2, "expert_used_count": 2, "expert_feed_forward_length": FF}
RWKV: dict[str, Value] = {
    "attention.head_count": 0, "attention.head_count_kv": 0, "wkv.head_size": 64, "token_shift_count": 2,
    "time_mix_extra_dim": 32, "time_decay_extra_dim": 64, "attention.decay_lora_rank": 32,
    "attention.iclr_lora_rank": 32, "attention.value_residual_mix_lora_rank": 32,
    "attention.gate_lora_rank": 64,
}  # fmt: skip
WINDOWS: dict[str, Value] = {
    "attention.sliding_window": 32, "attention.sliding_window_pattern": [True, False],
    "attention.key_length_swa": 128, "attention.value_length_swa": 128, "rope.freq_base_swa": 1e4,
}  # fmt: skip
EVERY_OTHER: dict[str, Value] = WINDOWS | {"attention.sliding_window_pattern": 2}

# What their metadata have beside `COMMON`; a name that begins with "/" is of no architecture.
FILLED: dict[str, dict[str, Value]] = {
    "apertus": {"/xielu.alpha_n": 1.0, "/xielu.alpha_p": 1.0, "/xielu.beta": 1.0, "/xielu.eps": 1e-7},
    "arwkv7": RWKV | {"token_shift_count": 1},
    "bitnet": {},
    "deepseek2-ocr": EXPERTS | {"expert_shared_count": 1, "leading_dense_block_count": 1},
    "dflash": {"target_layers": [0, 1], "block_size": 4},
    "eagle3": {"target_layers": [0, 1, 2], "target_hidden_size": WIDTH, "block_count": 1},
    "eurobert": {},
    "gemma-embedding": EVERY_OTHER,
    "gemma4": WINDOWS | {"embedding_length_per_layer_input": 64, "attention.shared_kv_layers": 0},
    "graniteswitch": {
        "logit_scale": 1.0, "adapters.count": 1, "adapters.lora_rank": 8,
        "adapters.token_ids_activate": [5], "adapters.token_ids_substitute": [6],
    },
    "jina-bert-v2": {},
    "jina-bert-v3": {},
    "llama-embed": {},
    "modern-bert": EVERY_OTHER,
    "neo-bert": {},
    "nomic-bert": {},
    "nomic-bert-moe": EXPERTS | {"moe_every_n_layers": 2},
    "plm": {
        "attention.kv_lora_rank": 64, "rope.dimension_count": 32, "attention.head_count": 4,
        "attention.head_count_kv": 4, "attention.key_length": 96, "attention.value_length": 64,
    },
    "rwkv6": RWKV,
    "rwkv6qwen2": RWKV | {"token_shift_count": 1},
    "rwkv7": RWKV,
    "step35": WINDOWS | EXPERTS | {"expert_shared_feed_forward_length": FF // 2},
    "t5encoder": {"attention.relative_buckets_count": 8},
    "wavtokenizer-dec": {
        "features_length": WIDTH, "attention.group_norm_epsilon": 1e-5, "attention.group_norm_groups": 8,
        "posnet.embedding_length": WIDTH, "posnet.block_count": 2, "convnext.embedding_length": WIDTH,
        "convnext.block_count": 2,
    },
}  # fmt: skip
# chameleon lets no token of a small vocabulary be predicted; clip is in tests/files; llama.cpp loads no gptj,
# and makes no gemma4-assistant from metadata.
NOT_MADE = {"chameleon", "clip", "gemma4-assistant", "gptj"}
LEFT_OUT = {"rwkv6qwen2": "time_mix_first"}  # a tensor that only RWKV 6 has, whose graph it chooses


def fill(oracle: Oracle, architecture: str, path: Path) -> Path:
    """Write a model of an architecture of FILLED."""
    metadata = path.with_suffix(".metadata")
    writer = GGUFWriter(metadata, architecture)
    keys = COMMON | FILLED[architecture]
    add_keys(
        writer,
        {key[1:] if key[0] == "/" else f"{architecture}.{key}": value for key, value in keys.items()},
    )
    writer.add_token_type_count(2)
    GeneratedModel(n_vocab=keys["vocab_size"]).add_tokenizer(writer)
    finish(writer)
    oracle.run("fill-model", metadata, path, *LEFT_OUT.get(architecture, "").split())
    return path
