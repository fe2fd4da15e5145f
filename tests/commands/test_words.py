"""The words that all compared models predict: the same characters for each, whatever its pieces."""

import random

import numpy as np
import pytest
from kits.texts import INVENTED, NASTY, PROSE, nasty, odd_lines, published

from bert_jax.commands import words
from bert_jax.tokenizers import tokenizer as tokenizers

CHINESE = ["漢字かな交じり文。他来了，她也来了；我们去看海", "他们说：好！ABC漢字123"] * 3
EMOJI = ["I ❤️ it 👩‍👩‍👧 so 🙂 much🙂, don't you?", "🙂🙂🙂"]
KINDS = {"wordpiece": 900, "unigram": 230, "bpe": 600, "byte_bpe": 700}


@pytest.fixture(scope="module")
def company():
    """Cased and uncased WordPiece, SentencePiece and byte-level pieces."""
    texts = PROSE + CHINESE
    trained = [tokenizers.train(kind, texts, size, True) for kind, size in KINDS.items()]
    return [*trained, tokenizers.train("wordpiece", texts, 700, False)]


def documents(seed: int = 0) -> list[list[str]]:
    draw = random.Random(seed)
    odd = [[nasty(draw) for _ in range(5)] for _ in range(40)]
    plain = [draw.sample(PROSE, 12) for _ in range(10)]
    return [*plain, CHINESE, EMOJI, NASTY, *odd, ["".join(INVENTED)], ["漢字" * 100], [""], []]


def bare(text: str) -> str:
    return "".join(text.split())


def test_windows_hold_all_text_and_fit(company):
    limit = 30
    texts = {}
    for window in words.windows(documents(), company, limit, seed=1):
        texts.setdefault(window.document, []).append(window.text)
        assert all(len(cut.ids) == len(cut.spans) <= limit for cut in window.pieces)
    for number, sentences in enumerate(documents()):
        assert bare("".join(texts.get(number, []))) == bare("".join(sentences))


def test_ids_are_those_of_the_sentences(company):
    sentences = PROSE[:3] + CHINESE[:2] + EMOJI
    (window,) = words.windows([sentences], company, 1000, seed=1)
    assert window.text == " ".join(sentences)
    for tokenizer, cut in zip(company, window.pieces, strict=True):
        expected = [number for ids in tokenizer.encode(sentences) for number in ids]
        assert cut.ids.tolist() == expected


@pytest.mark.parametrize("limit", [12, 60])
def test_no_piece_straddles_a_word(company, limit):
    windows = list(words.windows(documents(), company, limit, seed=2))
    check_hidden(windows)
    assert sum(len(window.words) for window in windows) > 100


def test_published_vocabularies_on_real_text():
    """English and Chinese with emoji and odd spaces: cased, uncased, Chinese WordPiece and ALBERT's SentencePiece."""
    names = "cased_vocab.txt", "uncased_vocab.txt", "chinese_vocab.txt"
    paths = [published(f"bert_base_{name}") for name in names]
    company = [tokenizers.given(path, "uncased" in path.name) for path in paths]
    company.append(tokenizers.given(published("albert_spiece_30k.model"), True))
    windows = list(words.windows([[line] for line in odd_lines(200)], company, 100, seed=1))
    check_hidden(windows)
    assert sum(len(window.words) for window in windows) > 500
    # ALBERT and the English ones lack ideographs: one has them all.
    unknown = sum(window.unknown for window in windows)
    assert unknown[3] > unknown[2] > 0


def check_hidden(windows: list[words.Window]) -> None:
    """The masked pieces of every vocabulary hide the same characters, and no other piece shows one of them."""
    for window in windows:
        starts, ends = window.words.T
        assert (starts < ends).all() and (ends[:-1] <= starts[1:]).all()
        hidden = np.zeros(len(window.text), bool)
        for start, end in window.words:
            hidden[start:end] = True
        for cut in window.pieces:
            owners = words.owners(cut, window.words)
            assert set(owners) - {-1} == set(range(len(window.words)))
            assert (np.diff(owners[owners >= 0]) >= 0).all()
            for owner, (start, end) in zip(owners, cut.spans, strict=True):
                if owner >= 0:
                    assert starts[owner] <= start <= end <= ends[owner]
                else:
                    assert not hidden[start:end].any()


def test_the_masked_pieces_spell_the_words(company):
    for window in words.windows([PROSE], company, 200, seed=3):
        for tokenizer, cut in zip(company, window.pieces, strict=True):
            owners = words.owners(cut, window.words)
            for number, (start, end) in enumerate(window.words):
                pieces = [tokenizer.readable(i) for i in cut.ids[owners == number]]
                spelt = "".join(pieces).replace("##", "").replace("▁", "").lower()
                text = bare(window.text[start:end]).lower()
                if text.isascii():
                    assert spelt == text


def test_a_vocabulary_keeps_its_words_in_company(company):
    """Company lets words grow, and takes those that it does not know: no other word is chosen."""
    (alone,) = words.windows([PROSE], company[:1], 10**6, seed=4)
    (together,) = words.windows([PROSE], company, 10**6, seed=4)
    assert len(alone.words) > 50
    kept = sum(
        any(start <= a and b <= end for start, end in together.words) for a, b in alone.words
    )
    assert kept == len(alone.words) - sum(together.unknown)


def test_words_are_chosen_by_their_number(company):
    """Windows of another length hold the same words, but where a window has no other."""
    tokenizers = company[:1]

    def chosen(limit):
        shown = []
        for window in words.windows([PROSE], tokenizers, limit, seed=5):
            shown += [window.text[start:end] for start, end in window.words]
        return shown

    assert chosen(600) == chosen(900) != chosen(20)
    again = [w.words.tolist() for w in words.windows([PROSE], tokenizers, 600, seed=6)]
    assert again != [w.words.tolist() for w in words.windows([PROSE], tokenizers, 600, seed=5)]


def test_how_many_words_are_chosen():
    key = np.uint32(12345)
    share = words.choose(key, np.arange(100_000, dtype=np.uint32)).mean()
    assert abs(share - words.RATE) < 0.005
    for number in range(1, 6):
        for first in range(50):
            assert words.choose(key, np.arange(first, first + number, dtype=np.uint32)).any()
    assert not len(words.choose(key, np.zeros(0, np.uint32)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't stop at 3.5%!", ["Don", "t", "stop", "at", "3", "5"]),
        ("漢字ABCかな", ["漢", "字", "ABC", "か", "な"]),
        ("한국어 가각", ["한국어", "가각"]),
        ("e\u0301te\u0301 \u0301 ❤\ufe0f", ["e\u0301te\u0301"]),
        ("हिन्दी", ["हिन्दी"]),
        ("ไม่มี", ["ไ", "ม่", "มี"]),
        ("... 🙂", []),
        ("", []),
    ],
)
def test_what_a_word_is(text, expected):
    assert [text[start:end] for start, end in words.find_words(text)] == expected


def test_growing_is_the_least_that_no_piece_straddles():
    draw = np.random.default_rng(0)
    for _ in range(300):
        starts = draw.integers(0, 40, (draw.integers(1, 12), 1))
        spans = np.concatenate([starts, starts + draw.integers(1, 6, starts.shape)], axis=1)
        pieces = words.Pieces(np.zeros(len(spans), np.int32), spans)
        word = np.array([[place := draw.integers(0, 40), place + 3]])
        start, end = word[0]
        changed = True
        while changed:
            changed = False
            for a, b in spans:
                if a < end and b > start and (a < start or b > end):
                    start, end, changed = min(a, start), max(b, end), True
        assert words.grow(word, np.array([True]), [pieces]).tolist() == [[start, end]]


def test_unknown_words_are_left_out_for_all(company):
    uncased, byte_level = company[0], company[3]
    text = "the lazy \u0416\u0436\u0416 dog sleeps and the fox jumps over it"
    assert uncased.unk in uncased.encode([text])[0]
    (window,) = words.windows([[text] * 200], [uncased, byte_level], 10**5, seed=0)
    assert window.unknown[0] > 10 and window.unknown[1] == 0
    shown = {window.text[start:end] for start, end in window.words}
    assert "dog" in shown and not any("\u0416" in word for word in shown)
    (other,) = words.windows([[text] * 200], [byte_level, uncased], 10**5, seed=0)
    assert (other.words == window.words).all() and (other.unknown == window.unknown[::-1]).all()
    (alone,) = words.windows([[text] * 200], [byte_level], 10**5, seed=0)
    assert len(alone.words) == len(window.words) + window.unknown[0]


def test_a_window_at_the_very_limit(company):
    """A sentence of exactly as many pieces as fit is one window; one piece more makes two."""
    tokenizer = company[0]
    sentence = PROSE[0]
    size = len(tokenizer.encode([sentence])[0])
    assert [w.text for w in words.windows([[sentence]], [tokenizer], size, 0)] == [sentence]
    assert len(list(words.windows([[sentence]], [tokenizer], size - 1, 0))) == 2
    doubled = list(words.windows([[sentence] * 4], [tokenizer], 2 * size, 0))
    assert [len(window.pieces[0].ids) for window in doubled] == [2 * size] * 2


def test_the_mark_of_a_word_belongs_to_it(company):
    """A "▁" or "Ġ" that stands alone before what it begins."""
    for tokenizer in company[1:4]:
        mark = tokenizer.model.mark
        for text in ("so 漢字 a", "a 🙂 b"):
            cut = words.read(tokenizer, text)
            for place, number in enumerate(cut.ids[:-1]):
                following = tokenizer.pieces[cut.ids[place + 1]]
                if tokenizer.pieces[number] == mark and not following.startswith(mark):
                    assert (cut.spans[place] == cut.spans[place + 1]).all()
            shown = {text[start:end] for start, end in cut.spans}
            assert not any(part != part.strip() for part in shown)
