"""Splits lines of text into sentences, in any script, by rules and small tables of abbreviations.

A stop ends a sentence if the text after it looks like the beginning of a sentence. Only the Latin full stop is so
ambiguous that it needs tables of words: abbreviations, initials, ordinals. Chinese and Japanese stops need no white
space after them.
"""

import re

MAX_SENTENCE = 2000  # characters; longer sentences are split at a space
# Longer lines are split first, which bounds the work on a line without stops.
MAX_WORK = 100_000

# Characters with Unicode's property Sentence_Terminal in scripts with white space between sentences; the ellipsis.
SPACED = (
    ".!?…‼‽⁇⁈⁉;։׃؝؞؟۔܀܁܂߹࠷࠹࠽࠾।॥၊။።፧፨᙮᜵᜶។៕᠃᠉᥄᥅᪨᪩᪪᪫᭎᭏᭚᭛᭞᭟᭽᭾᭿᰻᰼᱾᱿⳹⳺⳻⸮⸼⹓⹔꓿꘎꘏꛳꛷꡶꡷꣎꣏꤯꧈꧉꩝꩞꩟꫰꫱꯫﹒﹖﹗．"
)
UNSPACED = "。！？｡"
TIBETAN = "།༎༏༐༑༔"
STOPS = SPACED + UNSPACED + TIBETAN
# Greek questions end with a semicolon, and Armenian sentences are often typed with a colon.
OF_SCRIPT = "[\u0300-\u03ff\u1f00-\u1fff];|[\u0531-\u058f]:"
LAST = re.compile(f".?[{re.escape(STOPS)}]|{OF_SCRIPT}")

CLOSING = "\"'”’»›“‘«)]}」』）】］"  # with “ and «, which are closing quotes in German
OPENING = "\"'“‘”’«»‹›„‚‟([{「『（【［¿¡"
CJK_CLOSING = "\"'”’」』）)】］\\]"
# After a quotation or title that ends with a stop, these characters continue the sentence.
GOES_ON = (
    "[》〉，、；：,;:的是与與和とのはがをにで]|等(?!到)|[之](?![后後前间間])|[为為](?!了)|及(?!至)"
)
HAN = "\u3005\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"

STOP = re.compile(
    rf"""[{re.escape(STOPS)};:]
    (?:
        (?:(?<=[{re.escape(SPACED)}])|(?<={OF_SCRIPT})) (?![{re.escape(SPACED)}]) [{re.escape(CLOSING)}]*+
        (?:[ \u00a0\u202f]»(?=\s))?              # French has a space before the closing mark
        \s++ (?=[{re.escape(OPENING)}]*+([^\W_]))
    |
        (?<=[{UNSPACED}]) [{UNSPACED}!?]*+
        (?:
            [{CJK_CLOSING}]++ (?!{GOES_ON}|[{CJK_CLOSING}])
            | (?![{CJK_CLOSING}》〉，、；：,;:])
            | (?P<inside>)    # consumes the whole run, which would be tried again from each of its stops
        ) \s*
    |
        (?<=[{TIBETAN}]) (?:\s*+[{TIBETAN}])*+ \s*+
    |
        (?<=[{HAN}][!?]) (?![!?]) [”’」』）]*+ (?=[“‘「『（]*+[{HAN}])
    |
        (?<=[\u3040-\u309f]．) [」』）]*+ (?=[「『（]*+[{HAN}])     # otherwise ． separates names
    )""",
    re.VERBOSE,
)


# A full stop after these words never ends a sentence; those in the first line are before names.
NEVER = frozenset(
    """
    mr mrs ms dr drs prof messrs mme mlle mmes mlles maj brig sgt lt capt cmdr adm
    sra srta dra dña uds herrn vs cf viz eg ie vgl bzw sog inkl ggf evtl translit syn chapt
    e.g i.e z.b d.h u.a o.ä a.k.a c.f p.ej п.п т.е т.н им ул англ нем лат род см
""".split()
)
# A full stop after these words ends a sentence only before a word of STARTERS.
ABBREVIATIONS = frozenset(
    """
    rev gen col gov sen rep hon st jr sr mt ft etc ca al fig figs eq eqs sec nos vol vols ed eds
    pp ch op approx inc ltd co corp dept est supp trans univ assn bros
    hr fr dipl ing nr str bd hrsg aufl abb tab kap mio mrd usw geb gest jh jhd
    mm mgr av bd éd env chap ud ee uu pág págs núm ing lic avda
    sig sigg dott ecc pag гг вв др проф акад изд руб млн млрд тыс стр
""".split()
)
# A full stop after these words does not end a sentence before a number.
NUMBERED = frozenset(
    """
    no num art abs s p pp ss pgs jan feb mar apr jun jul aug sep sept oct nov dec janv févr juil
    déc op cit ibid circa reg cap sect div гл рис табл
""".split()
)
ENDING = ("a.m", "p.m", "т.д", "т.п")  # abbreviations that often end a sentence
ORDINALS = re.compile(  # words after a German ordinal: "am 3. Oktober", "im 19. Jahrhundert"
    r"(?:Januar|Jänner|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember"
    r"|Jahrhunderts?|Jh|Weltkriegs?|Lebensjahr|Auflage|Klasse|Platz)\b"
)
# Words that begin sentences and are not part of names.
STARTING = """
    The He She It They We You His Her Its Their My Our This That These Those There Here In On At
    By For From With As After Before When While Where During Since Until Under Both All Some
    Many Most Such But And Or If However Although Though Because Also Another Other Each One Two
    To What Who Why How A An I Then Later Today Now Not No Yes According Der Ein Eine Einer Er
    Sie Es Wir Ich Dies Diese Dieser Dieses Mit Nach Auch Als Bei Für Seit Aber Und Wenn Une
    Elle Ils Elles Cette Ces Ce Dans Pour Mais Avec Selon Après Nous Una Ella Ellos Esta Este
    Esto Pero Con Por Para Según Después También Nel Nella Questo Questa Ele Ela Não В Он Она
    Они Это На По Но Из При После Однако
""".split()
STARTERS = re.compile(rf"[{re.escape(OPENING)}]*(?:{'|'.join(STARTING)})(?![\w.])")
DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.-?)+[^\W\d_]{1,2}")  # U.S, J.-C, a.k.a, Ph.D
NEAR = 40  # characters examined before a stop, enough for any abbreviation


def split_sentences(line: str) -> list[str]:
    """Returns the sentences of a line, none longer than MAX_SENTENCE. Drops only the white space between them."""
    if len(line) > MAX_WORK:
        return [part for piece in cap(line, MAX_WORK) for part in split_sentences(piece)]
    sentences = []
    start = 0
    for match in STOP.finditer(line):
        if ends_sentence(line, start, match):
            sentences.append(line[start : match.end()].rstrip())
            start = match.end()
    sentences.append(line[start:].strip())
    if len(line) <= MAX_SENTENCE:
        return list(filter(None, sentences))
    return [part for sentence in sentences for part in cap(sentence)]


def ends_sentence(line: str, start: int, match: re.Match) -> bool:
    """Returns whether the sentence from `start` ends at a match of STOP; its group 1 is the first letter after it."""
    following = match[1]
    if following is None:  # a stop that needs no white space
        return match["inside"] is None
    if following.islower():
        return False
    stop = match.start()
    if line[stop] != ".":
        return True
    word = line[max(start, stop - NEAR) : stop].rpartition(" ")[2].lstrip(OPENING)
    if len(word) == 1 or ("." in word and DOTTED.fullmatch(word)):
        return ends_after_letters(line, start, match, word)
    lower = word.lower()
    if lower in NEVER or (following.isdigit() and lower in NUMBERED):
        return False
    if lower in ABBREVIATIONS:
        return STARTERS.match(line, match.end()) is not None
    return not (len(word) == 2 and word.isdigit() and ORDINALS.match(line, match.end()))


def ends_after_letters(line: str, start: int, match: re.Match, word: str) -> bool:
    """Returns whether the sentence ends at a stop after a short `word`: initials (J., U.S.), short forms (v., a.k.a.),
    units (75 g.), numbers."""
    if word == "I" or word.isdigit():
        return not ORDINALS.match(line, match.end())
    if word in ENDING:
        return not match[1].isdigit()
    if word.islower() and len(word) == 1 and word.isascii() and not match[1].isdigit():
        before = line[max(start, match.start() - NEAR) : match.start() - 1]
        return before.rstrip()[-1:].isdigit()  # a unit
    if word.islower() or word.lower() in NEVER or match[1].isdigit():
        return False
    if len(word) == 1 and not word.isupper():  # a script without letter case
        return True
    return STARTERS.match(line, match.end()) is not None


def cap(sentence: str, longest: int = MAX_SENTENCE) -> list[str]:
    """Splits a sentence into parts of at most `longest` characters, at spaces if possible."""
    parts = []
    while len(sentence) > longest:
        cut = sentence.rfind(" ", 1, longest + 1)
        if cut < 0:
            cut = longest
        parts.append(sentence[:cut].rstrip())
        sentence = sentence[cut:].lstrip()
    if sentence:
        parts.append(sentence)
    return parts


def ends_with_stop(line: str) -> bool:
    """Returns whether a line ends with a sentence stop of any script; closing quotes and brackets may follow it."""
    line = line.rstrip(CLOSING + " \u00a0\u202f")
    return LAST.fullmatch(line[-2:]) is not None
