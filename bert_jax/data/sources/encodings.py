"""Names the likely encodings of text that is not UTF-8."""

# The encodings that an error may name: for each language, the one that contains its others, such as CP949 for EUC-KR.
ENCODINGS = """
    cp949 johab cp932 euc_jp gb18030 cp950
    cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp874 iso8859_2 iso8859_5 iso8859_6
    koi8_r koi8_u cp850 cp852 cp857 cp866
""".split()
# Differences from the best encoding below which another one is as likely, in two measures of charset_normalizer.
CHAOS = 0.03  # share of improbable characters: this much more
COHERENCE = 0.8  # how far the letters are as frequent as in a language: at least this much of it


def likely_encodings(text: bytes) -> list[str]:
    """Returns the encodings that a text may have, as iconv spells them, the likeliest first; [] if it has none."""
    import charset_normalizer  # only here: a machine that trains on saved batches may lack it

    lines = [line for line in text.split(b"\n") if not line.isascii()]
    text = b"\n".join(lines)
    matches = charset_normalizer.from_bytes(text, cp_isolation=ENCODINGS)
    names = []
    for match in matches:
        is_likely = match.chaos <= matches[0].chaos + CHAOS
        if is_likely and match.coherence >= COHERENCE * matches[0].coherence:
            name = match.encoding.upper().replace("_", "-")
            names.append(name.replace("ISO", "ISO-"))
    return names
