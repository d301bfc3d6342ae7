"""Small random models of llama.cpp's architectures, as its own test-llama-archs saves them.

Each has a vocabulary of 128 tokens or more, and a tokenizer that makes a token of any five bytes.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.filled_models import FILLED, fill
from tests.support.oracle import Oracle
from tests.support.other_models import OTHERS

SEED, SPREAD = 1, 0.15  # weights of this standard deviation make logits that differ by less than 16
CTX = 64  # tokens of a chunk; windows are of 32

# One of each kind of graph.
UNLIKE = {
    "llama-dense": "dense",
    "qwen3moe-moe": "experts",
    "deepseek2-moe": "compressed keys and values (MLA)",
    "mamba2-dense": "states",
    "smallthinker-moe": "experts that are chosen before attention",
    "lfm2-dense": "convolutions and attention in turns",
    "dream-dense": "attention to what follows",
    "gemma2-dense": "sliding windows",
    "phi3-dense": "queries, keys and values in one matrix",
    "hrm_text-dense": "layers that run several times",
    "rwkv7": "states that a rule of low rank changes",
    "gemma4": "inputs of every layer, and heads of two sizes",
    "bert": "an encoder",
}

NAMES = [
    "afmoe-moe", "arcee-dense", "arctic-moe", "baichuan-dense", "bailingmoe-moe", "bailingmoe2-moe",
    "bailingmoe3-moe", "bloom-dense", "chatglm-dense", "codeshell-dense", "cogvlm-dense",
    "cohere2-dense", "cohere2moe-moe", "command-r-dense", "dbrx-moe", "deci-dense", "deepseek-moe",
    "deepseek2-moe", "deepseek32-moe", "deepseek4-moe", "dots1-moe", "dots3note-moe", "dream-dense",
    "ernie4_5-moe", "ernie4_5-moe-moe", "exaone-dense", "exaone-moe-moe", "exaone4-dense",
    "falcon-dense", "falcon-h1-dense", "gemma-dense", "gemma2-dense", "gemma3-dense", "glm-dsa-moe",
    "glm4-dense", "glm4moe-moe", "glm5-next-moe", "gpt-oss-moe", "gpt2-dense", "gptneox-dense",
    "granite-dense", "granite-moe", "granite_swa-dense", "granitehybrid-dense", "granitemoe-dense",
    "granitemoe-moe", "grok-moe", "grovemoe-moe", "hrm_text-dense", "hunyuan-dense-dense",
    "hunyuan-moe-moe", "hunyuan_vl-dense", "hy_v3-moe", "hy_v4-moe", "internlm2-dense", "jais-dense",
    "jais2-dense", "jamba-dense", "kimi-k3-moe", "kimi-linear-moe", "laguna-moe", "lfm2-dense",
    "lfm2moe-moe", "llada-dense", "llada-moe-moe", "llama-dense", "llama-moe", "llama4-moe",
    "maincoder-dense", "mamba-dense", "mamba2-dense", "maple-moe", "mellum-moe", "mimo2-moe",
    "minicpm-dense", "minicpm-moe", "minicpm3-dense", "minimax-01-moe", "minimax-m2-moe",
    "minimax-m3-moe", "mistral3-dense", "mistral3-moe", "mistral4-moe", "mpt-dense",
    "muse-glimmer-dense", "nanbeige-dense", "nemotron-dense", "nemotron_h-dense",
    "nemotron_h_moe-dense", "olmo-dense", "olmo2-dense", "olmoe-moe", "openelm-dense", "orion-dense",
    "paddleocr-moe", "pangu-embedded-dense", "phi2-dense", "phi3-dense", "phimoe-moe", "plamo-dense",
    "plamo2-dense", "plamo3-dense", "pockettts-dense", "qwen-dense", "qwen2-dense", "qwen2moe-moe",
    "qwen2vl-dense", "qwen3-dense", "qwen35-dense", "qwen35moe-moe", "qwen3moe-moe", "qwen3next-moe",
    "qwen3tts-dense", "qwen3vl-dense", "qwen3vlmoe-moe", "qwen4exp-moe", "refact-dense", "refact-moe",
    "rnd1-moe", "seed_oss-dense", "smallthinker-moe", "smollm3-dense", "spark2_5-dense",
    "stablelm-dense", "starcoder-dense", "starcoder2-dense", "talkie-dense", "xverse-dense",
]  # fmt: skip
EVERY = [*NAMES, *OTHERS, *FILLED]


def architecture_of(name: str) -> str:
    """Give what llama.cpp calls the architecture of a name of EVERY."""
    return name if name in FILLED else re.sub("-(moe|dense)$| with MTP$", "", name)


def write(oracle: Oracle, folder: Path, name: str) -> Path:
    """Write the model of a name of EVERY."""
    if name in FILLED:
        return fill(oracle, name, folder / f"{name}.gguf")
    if name in OTHERS:
        return OTHERS[name](folder / f"{name}.gguf")
    return save(oracle, folder, name)[name]


def save(oracle: Oracle, folder: Path, name: str | None = None) -> dict[str, Path]:
    """Save the models of an architecture, or of all, by their names: ARCHITECTURE-dense or -moe."""
    one = ["-a", name.rpartition("-")[0]] if name else []
    oracle.run("test-llama-archs", "-s", SEED, "-d", SPREAD, "-o", folder, *one)
    return {path.stem: path for path in sorted(folder.glob("*.gguf"))}
