"""Tokens of a text of any length in bounded memory: in pieces, each of which begins where a word does, and no further
than anyone could use.

A byte-level BPE splits text into words from left to right, and looks no further ahead than the word after. So what
comes before a word's start is tokenized as if the text ended far behind it, and what comes after as if it began there.
"""

from typing import Any

import numpy as np
from tokenizers import Tokenizer

PIECE_CHARS = 1 << 16
MARGIN_CHARS = 512
"""Left to the next piece: the end of a piece may have cut a word, or the text of a special token, in two."""
TOKEN = np.dtype("<u4")


class TooManyTokens(Exception):
    """`tokens`: as many as were found by then."""

    def __init__(self, tokens: int) -> None:
        super().__init__(tokens)
        self.tokens = tokens


def encode_long(tokenizer: Tokenizer, text: str, most_tokens: int, longest: int) -> bytes:
    """`longest`: the most bytes of a token. Raises TooManyTokens as soon as there are more than `most_tokens`."""
    if (least := len(text) // longest) > most_tokens:
        raise TooManyTokens(least)
    found, at, count, length = bytearray(), 0, 0, PIECE_CHARS
    while at < len(text):
        piece = text[at : at + length]
        (encoding,) = tokenizer.encode_batch([piece], add_special_tokens=False)
        chars, tokens = (len(piece), len(encoding)) if at + length >= len(text) else _last_cut(encoding, len(piece))
        if not chars:  # one word, so far
            length *= 2
            continue
        if (count := count + tokens) > most_tokens:
            raise TooManyTokens(count)
        found += np.array(encoding.ids[:tokens], dtype=TOKEN).tobytes()
        at, length = at + chars, PIECE_CHARS
    return bytes(found)


def longest_token(tokenizer: Tokenizer) -> int:
    """In bytes: byte-level BPE writes each as a character."""
    return max(map(len, tokenizer.get_vocab()))


def _last_cut(encoding: Any, chars: int) -> tuple[int, int]:
    """(characters, tokens) before the last word that may begin a piece; nothing where there is none."""
    for place in range(chars - MARGIN_CHARS, 0, -1):
        word = encoding.char_to_word(place)
        if word is None or encoding.word_to_chars(word)[0] != place:
            continue
        first, _ = encoding.word_to_tokens(word)
        # Some tokenizers trim spaces off a word's offsets: then it begins earlier than they say.
        if first and encoding.token_to_chars(first - 1)[1] == place:
            return place, first
    return 0, 0
