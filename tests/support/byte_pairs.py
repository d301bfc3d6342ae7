"""A small tokenizer that merges pairs of bytes, of GPT-2's sort."""

from __future__ import annotations

from gguf import GGUFWriter, TokenType

MERGES = ["t h", "h e", "i n", "e r", "a n", "Ġ t", "Ġ a", "r e", "o n", "Ġt he", "Ġ i", "Ġ o"]


def add_byte_pairs(writer: GGUFWriter, n_vocab: int) -> None:
    """Add the tokenizer: bytes, merged pairs of them, and tokens that are not in use. It puts no BOS."""
    letters = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    tokens = [chr(byte) for byte in letters] + [chr(256 + i) for i in range(256 - len(letters))]
    tokens += [merge.replace(" ", "") for merge in MERGES]
    n_used = len(tokens)
    tokens += ["<|endoftext|>", *(f"<unused{i}>" for i in range(n_vocab - n_used - 1))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    types = [TokenType.NORMAL] * n_used + [TokenType.CONTROL]
    writer.add_token_types(types + [TokenType.UNUSED] * (n_vocab - n_used - 1))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(n_used)
    writer.add_eos_token_id(n_used)
    writer.add_add_bos_token(False)
