"""Numbers below a million in words, in English and in German."""

ENGLISH = """
    zero one two three four five six seven eight nine ten eleven twelve
    thirteen fourteen fifteen sixteen seventeen eighteen nineteen
""".split()
ENGLISH_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
# Without the s that `eins` has at the end of a number.
GERMAN = """
    null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf
    dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn
""".split()
GERMAN_TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()


def english(number: int) -> str:
    """Returns a number as British English has it: 4021 is four thousand and twenty-one."""
    if number < 20:
        return ENGLISH[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        words = ENGLISH_TENS[tens - 2]
        return f"{words}-{ENGLISH[ones]}" if ones else words
    size, name = largest_unit(number, "hundred", "thousand")
    count, rest = divmod(number, size)
    words = f"{english(count)} {name}"
    if not rest:
        return words
    link = " and " if rest < 100 else " "
    return f"{words}{link}{english(rest)}"


def german(number: int) -> str:
    """Returns a number as German has it, as one word: 4021 is viertausendeinundzwanzig."""
    word = german_stem(number)
    return f"{word}s" if number % 100 == 1 else word


def german_stem(number: int) -> str:
    """Returns a number in German as more of the same word may follow it: 101 is einhundertein."""
    if number < 20:
        return GERMAN[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        word = GERMAN_TENS[tens - 2]
        return f"{GERMAN[ones]}und{word}" if ones else word
    size, name = largest_unit(number, "hundert", "tausend")
    count, rest = divmod(number, size)
    word = f"{german_stem(count)}{name}"
    return f"{word}{german_stem(rest)}" if rest else word


def largest_unit(number: int, hundred: str, thousand: str) -> tuple[int, str]:
    """Returns the largest of 100 and 1,000 that a number has, and its name."""
    if number >= 1000:
        return 1000, thousand
    return 100, hundred
