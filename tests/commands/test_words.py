"""The words that all compared models predict: the same characters for each, whatever its pieces."""

import random

import numpy as np
import pytest
from kits.texts import INVENTED, NASTY, PROSE, nasty

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


@pytest.mark.slow
@pytest.mark.parametrize("limit", [12, 60])
def test_windows_hold_all_text_and_no_piece_straddles_a_word(company, limit):
    texts, windows = {}, list(words.windows(documents(), company, limit, seed=1))
    check_hidden(windows)
    assert sum(len(window.words) for window in windows) > 100
    for window in windows:
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


def test_how_many_words_are_chosen():
    key = np.uint32(12345)
    share = words.choose(key, np.arange(100_000, dtype=np.uint32)).mean()
    assert abs(share - words.RATE) < 0.005
    for first in range(50):
        assert words.choose(key, np.arange(first, first + 2, dtype=np.uint32)).any()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't stop at 3.5%!", ["Don", "t", "stop", "at", "3", "5"]),
        ("漢字ABCかな", ["漢", "字", "ABC", "か", "な"]),
        ("e\u0301te\u0301 \u0301 ❤\ufe0f", ["e\u0301te\u0301"]),
        ("ไม่มี", ["ไ", "ม่", "มี"]),
        ("... 🙂", []),
    ],
)
def test_what_a_word_is(text, expected):
    assert [text[start:end] for start, end in words.find_words(text)] == expected


def test_unknown_words_are_left_out_for_all(company):
    uncased, byte_level = company[0], company[3]
    text = "the lazy \u0416\u0436\u0416 dog sleeps and the fox jumps over it"
    assert uncased.unk in uncased.encode([text])[0]
    (window,) = words.windows([[text] * 200], [uncased, byte_level], 10**5, seed=0)
    assert window.unknown[0] > 10 and window.unknown[1] == 0
    shown = {window.text[start:end] for start, end in window.words}
    assert "dog" in shown and not any("\u0416" in word for word in shown)
    (alone,) = words.windows([[text] * 200], [byte_level], 10**5, seed=0)
    assert len(alone.words) == len(window.words) + window.unknown[0]
