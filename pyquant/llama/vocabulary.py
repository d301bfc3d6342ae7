"""A model's vocabulary in llama.cpp: texts to tokens, and tokens to bytes."""

from __future__ import annotations

import ctypes
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from pyquant.errors import ModelFileError, TextError

LONGEST_TEXT = 2**31 - 3  # bytes


class Vocabulary:
    """The tokens that a model knows. It lives as long as its model.

    path: the model's file, for messages.
    bos: the token that begins every text; None where the model has none put there.
    """

    def __init__(self, llama: ModuleType, model: Any, path: Path) -> None:
        self.llama, self._path = llama, path
        self._vocab = llama.llama_model_get_vocab(model)
        self.n_tokens: int = llama.llama_vocab_n_tokens(self._vocab)
        self.bos: int | None = (
            llama.llama_vocab_bos(self._vocab) if llama.llama_vocab_get_add_bos(self._vocab) else None
        )

    def tokenize(self, text: bytes, *, ends: bool = True, special: bool = False) -> NDArray[np.int32]:
        """Cut UTF-8 text into tokens.

        Parameters
        ----------
        text
            UTF-8.
        ends
            Whether special tokens are added at the text's ends, as the model wants them.
        special
            Whether special tokens that are spelled in the text are taken as such.

        Returns
        -------
        tokens : (n,) int32

        Raises
        ------
        ModelFileError
            The model has no vocabulary.
        TextError
            The text is too long, or the vocabulary cannot write it; the character is named.
        """
        self._check_is_there()
        if len(text) > LONGEST_TEXT:
            raise TextError(f"{len(text):,} bytes of text; llama.cpp takes less than 2 GiB at once")
        if ends:
            self._check_ends()
        try:
            return self._tokenize(text, ends, special)
        except ValueError as error:
            raise TextError(f"{self._path}: {self._unwritable(text, str(error))}") from None

    def continuing(self, tokens: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the tokens of a text that goes on: without the one that some vocabularies end texts by."""
        last = self._added_at_the_end
        return tokens[:-1] if last is not None and tokens[-1:].tolist() == [last] else tokens

    def _tokenize(self, text: bytes, ends: bool, special: bool) -> NDArray[np.int32]:
        address = self._address_of("llama_tokenize")
        return _core.tokenize(address, self.address, text, add_special=ends, parse_special=special)

    def _unwritable(self, text: bytes, why: str) -> str:
        """Say which character has neither a token nor tokens of its bytes."""
        for character in dict.fromkeys(" " + text.decode(errors="replace")):
            try:
                self._tokenize(character.encode(), ends=False, special=False)
            except ValueError:
                of = "the blank that it puts before texts" if character == " " else f"{character!r}"
                return f"its vocabulary has no token for {of}, and none for single bytes; leave it out"
        return f"llama.cpp cannot tokenize this text: {why}"

    def _check_is_there(self) -> None:
        """Refuse a model without tokens: llama.cpp asserts that it is never asked for one."""
        if self.llama.llama_vocab_type(self._vocab) == self.llama.LLAMA_VOCAB_TYPE_NONE:
            raise ModelFileError(f"{self._path}: has no vocabulary, so texts cannot be evaluated")

    def _check_ends(self) -> None:
        """Refuse a vocabulary that wants a token at the ends of texts, and has none: llama.cpp asserts it."""
        llama, vocab = self.llama, self._vocab
        words = llama.llama_vocab_type(vocab) == llama.LLAMA_VOCAB_TYPE_WPM  # BERT's: always begin and end
        wanted = {
            "bos_token_id": (words or self.bos is not None, llama.llama_vocab_bos(vocab)),
            "eos_token_id": (
                llama.llama_vocab_get_add_eos(vocab) and not words,
                llama.llama_vocab_eos(vocab),
            ),
            "seperator_token_id": (words, llama.llama_vocab_sep(vocab)),  # spelled so in GGUF
        }
        for name, (is_wanted, token) in wanted.items():
            if is_wanted and not 0 <= token < self.n_tokens:
                raise ModelFileError(f"{self._path}: tokenizer.ggml.{name} names no token, and texts need it")

    @cached_property
    def _added_at_the_end(self) -> int | None:
        llama, vocab = self.llama, self._vocab
        if llama.llama_vocab_type(vocab) == llama.LLAMA_VOCAB_TYPE_WPM:
            return int(llama.llama_vocab_sep(vocab))
        return int(llama.llama_vocab_eos(vocab)) if llama.llama_vocab_get_add_eos(vocab) else None

    def ordinary_tokens(self) -> NDArray[np.int32]:
        """Return the tokens that texts are made of: none that controls, is unknown or is not in use.

        Returns (n,) int32.
        """
        self._check_is_there()
        llama = self.llama
        other = (
            llama.LLAMA_TOKEN_ATTR_UNKNOWN | llama.LLAMA_TOKEN_ATTR_UNUSED | llama.LLAMA_TOKEN_ATTR_CONTROL
        )
        attributes = [llama.llama_vocab_get_attr(self._vocab, token) for token in range(self.n_tokens)]
        return np.flatnonzero((np.array(attributes) & other) == 0).astype(np.int32)

    def end_tokens(self) -> NDArray[np.int32]:
        """Return the tokens that end a completion: of the text, of the model's turn.

        Returns (n,) int32: always the same array, which cannot be written to.
        """
        return self._ends

    @cached_property
    def _ends(self) -> NDArray[np.int32]:
        is_end = self._address_of("llama_vocab_is_eog")
        tokens = _core.tokens_that_end(is_end, self.address, self.n_tokens)
        tokens.setflags(write=False)
        return tokens

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """Return the bytes that a token stands for; they may be part of a character.

        special: whether a token that controls is spelled; without, it stands for nothing.
        """
        self._check_is_there()
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            n = self.llama.llama_token_to_piece(self._vocab, token, buffer, size, 0, special)
            if n >= 0:
                return buffer.raw[:n]
            size = -n

    def pieces(self) -> tuple[bytes, ...]:
        """Return the bytes of every token, without those of tokens that control."""
        return self._pieces

    @cached_property
    def _pieces(self) -> tuple[bytes, ...]:
        self._check_is_there()
        to_piece = self._address_of("llama_token_to_piece")
        return tuple(_core.token_pieces(to_piece, self.address, self.n_tokens))

    def special_tokens(self) -> dict[int, bytes]:
        """Return the tokens that print nothing, those that control or are unknown, and their spelling."""
        silent = [token for token, piece in enumerate(self.pieces()) if not piece]
        spelled = {token: self.piece(token, special=True) for token in silent}
        return {token: piece for token, piece in spelled.items() if piece}

    @property
    def address(self) -> int:
        """llama.cpp's handle, for libraries that call it themselves."""
        return int(self._vocab)

    def _address_of(self, function: str) -> int:
        address = ctypes.cast(getattr(self.llama._lib, function), ctypes.c_void_p).value
        assert address is not None
        return address

    def begin_and_end(self) -> tuple[str, str]:
        """Return how the tokens are spelled that begin and end texts; "" where there is none."""
        llama = self.llama
        tokens = llama.llama_vocab_bos(self._vocab), llama.llama_vocab_eos(self._vocab)
        begin, end = (
            self.piece(token, special=True).decode(errors="replace") if token >= 0 else "" for token in tokens
        )
        return begin, end
