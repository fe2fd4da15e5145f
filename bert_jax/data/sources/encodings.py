"""Names the likely encoding of text that is not UTF-8."""

import contextlib
import re

# The encodings that an error may name. Code pages of Latin letters are hard to tell apart, so only the most common of
# them is here.
ENCODINGS = """
    utf_16 utf_16_le utf_16_be utf_32 cp1252 cp1251 cp1253 cp1255 cp1256 cp874
    koi8_r koi8_u iso8859_5 iso8859_6 cp866
""".split()
# Those of two bytes a character, by the bytes of common characters: punctuation, kana, the first part of each table.
# CP949 and CP932 have more characters than the encoding before them.
PAIRS = {
    rb"[\xa1\xa3\xb0-\xc8][\xa1-\xfe]": ("EUC-KR", "CP949"),
    rb"[\xa1\xa3-\xa5\xb0-\xcf][\xa1-\xfe]": ("EUC-JP",),
    rb"[\xa1\xa3\xb0-\xd7][\xa1-\xfe]": ("GB18030",),
    rb"[\xa1\xa4-\xc6][\x40-\x7e\xa1-\xfe]": ("BIG5",),
    rb"[\x81-\x83\x88-\x97][\x40-\xfc]": ("SHIFT-JIS", "CP932"),
}
COMMON = 0.85  # share of the characters
# Encodings that write all characters in ASCII, by their mark of other characters.
ESCAPES = {
    "ISO-2022-JP": rb"\x1b\$",
    "ISO-2022-JP-2": rb"\x1b\$",
    "ISO-2022-KR": rb"\x1b\$",
    "HZ": rb"~\{",
    "UTF-7": rb"\+[A-Za-z]",
}
# Other characters of such a text, at least: in plain English, "+yes" may be UTF-7 by chance.
LEAST_OTHERS = 8
LEAST_SHARE = 0.05


def likely_encoding(text: bytes) -> str:
    """Returns what an error says about a text that is not UTF-8: its likely encoding, and how to convert it."""
    name, _ = escaped_lines(text)
    name = name or encoding_of_pairs(text) or best_encoding(text)
    if not name:
        return "not UTF-8; is it text?"
    advice = f"not UTF-8 but probably {name}; convert it, and look at the result"
    if name == "HZ":  # glibc's iconv has none
        return advice
    return f"{advice}: iconv -f {name} -t UTF-8 FILE > NEW"


def escaped_lines(text: bytes) -> tuple[str, int]:
    """Returns the encoding of ESCAPES of a text, and the number of lines with other characters; ('', 0) for UTF-8."""
    for name, mark in ESCAPES.items():
        if not re.search(mark, text):
            continue
        with contextlib.suppress(UnicodeDecodeError):
            decoded = text.decode(name)
            others = len(decoded) - sum(map(str.isascii, decoded))
            if others >= max(LEAST_OTHERS, LEAST_SHARE * len(decoded)):
                lines = decoded.split("\n")
                return name, sum(not line.isascii() for line in lines)
    return "", 0


def encoding_of_pairs(text: bytes) -> str:
    """Returns the encoding of PAIRS whose common characters make up most of a text; '' if there is none."""
    shares = {"": COMMON}
    for pair, names in PAIRS.items():
        characters = re.findall(rb"(%b)|[\x80-\xff]." % pair, text, re.DOTALL)
        common = sum(map(bool, characters))
        for name in names:
            errors = text.decode(name, "replace").count("\ufffd")
            if errors < common / 100:
                shares[name] = common / len(characters)
    return max(shares, key=shares.get)


def best_encoding(text: bytes) -> str:
    """Returns which of ENCODINGS a text probably has, as iconv spells it; '' if it has none of them."""
    import charset_normalizer  # only here: a machine that trains on saved batches may lack it

    even = text[: len(text) // 2 * 2]  # of UTF-16, the last line break may be cut in half
    best = charset_normalizer.from_bytes(even, cp_isolation=ENCODINGS).best()
    if not best:
        return ""
    name = best.encoding.upper().replace("_", "-")
    return name.replace("16-", "16").replace("ISO", "ISO-")
