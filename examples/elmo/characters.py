"""The characters of words as ELMo reads them: the bytes of UTF-8 between marks, padded (allenai/bilm-tf).

M characters of a word, marks included.
"""

import numpy as np

# Each number is that of the published code, from 0, plus one, since 0 is the padding of a row.
BEGIN = 257  # of a text, as the only character of a word
END = 258
WORD_BEGIN = 259
WORD_END = 260
PADDING = 261  # of a word
SIZE = 262


def mark(code: int, size: int) -> list[int]:
    """Returns the characters int[M] of the word that begins or ends a text. code: BEGIN or END; size: M."""
    return pad([code], size)


def encode(word: str, size: int) -> list[int]:
    """Returns the characters int[M] of a word, which is cut to fit. size: M."""
    return pad([byte + 1 for byte in word.encode("utf-8", "replace")[: size - 2]], size)


def pad(codes: list[int], size: int) -> list[int]:
    """Returns codes between the marks of a word, and padding."""
    return [WORD_BEGIN, *codes, WORD_END, *[PADDING] * (size - len(codes) - 2)]


def encode_text(words: list[str], size: int) -> np.ndarray:
    """Returns int32[2 + W, M]: the characters of the words of a text, between those of its marks."""
    rows = [mark(BEGIN, size), *(encode(word, size) for word in words), mark(END, size)]
    return np.array(rows, np.int32)
