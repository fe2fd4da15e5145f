"""What every kind of tokenizer promises: the same ids after saving, everywhere, fast path and slow."""

import random
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from kits.texts import NASTY, PROSE, nasty

from bert_jax.errors import BadInput, Unfinished
from bert_jax.tokenizers import sample
from bert_jax.tokenizers import tokenizer as tokenizers

SIZES = {"wordpiece": 500, "unigram": 200, "bpe": 500, "byte_bpe": 700}
KINDS = pytest.mark.parametrize("kind", SIZES)


def trained(kind: str, lowercase: bool = True) -> tokenizers.Tokenizer:
    return tokenizers.train(kind, PROSE + NASTY, SIZES[kind], lowercase)


@KINDS
def test_trained_vocabulary(kind):
    tokenizer = trained(kind)
    assert tokenizer.pieces[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert list(tokenizer.special.values()) == [0, 1, 2, 3, 4]
    assert (tokenizer.pad, tokenizer.unk, tokenizer.cls) == (0, 1, 2)
    assert (tokenizer.sep, tokenizer.mask) == (3, 4)
    assert tokenizer.size == len(tokenizer.pieces) <= SIZES[kind]
    assert tokenizer.decode(tokenizer.encode(["Quick fox"])[0]) == "quick fox"
    starts = tokenizer.word_starts
    assert starts.dtype == bool and starts.shape == (tokenizer.size,) and starts[:5].all()
    assert starts[tokenizer.encode(["quick brown foxes, lazily"])[0]].sum() in (4, 5)  # "," or not


@KINDS
@pytest.mark.parametrize("lowercase", [True, False])
def test_saved_and_loaded(tmp_path, kind, lowercase):
    tokenizer = trained(kind, lowercase)
    tokenizer.save(tmp_path)
    loaded = tokenizers.load(tmp_path)
    texts = PROSE + NASTY
    assert loaded.pieces == tokenizer.pieces and loaded.special == tokenizer.special
    assert loaded.fingerprint == tokenizer.fingerprint != trained(kind, not lowercase).fingerprint
    assert loaded.encode(texts) == tokenizer.encode(texts)
    assert (loaded.word_starts == tokenizer.word_starts).all()


@KINDS
def test_a_saved_file_given_back_is_the_same(tmp_path, kind):
    tokenizer = trained(kind)
    tokenizer.save(tmp_path)
    (path,) = (path for path in tmp_path.iterdir() if path.name != "settings.json")
    again = tokenizers.given(path, True)
    assert again.special == tokenizer.special
    again.save(tmp_path / "again")
    assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()
    assert tokenizers.load(tmp_path / "again").fingerprint == again.fingerprint


@KINDS
@pytest.mark.parametrize("lowercase", [True, False])
def test_table_equals_encode(kind, lowercase):
    tokenizer = trained(kind, lowercase)
    draw = random.Random(1)
    table = tokenizer.table()
    check_table(tokenizer, table, NASTY)
    texts = [nasty(draw) for _ in range(5000)]
    check_table(tokenizer, table, texts)
    check_table(tokenizer, table, [text.replace("\n", " ") for text in texts])
    check_table(tokenizer, table, [])


def check_table(tokenizer, table, texts: list[str]) -> None:
    ids, ends = table.encode(texts)
    assert ids.dtype == np.int32 and ends.dtype == np.int64 and len(ends) == len(texts)
    parts = np.split(ids, ends[:-1]) if texts else []
    assert [part.tolist() for part in parts] == tokenizer.encode(texts)


@KINDS
def test_text_never_makes_special_pieces_but_predict_can(kind):
    tokenizer = trained(kind)
    special = set(tokenizer.special.values()) - {tokenizer.unk}
    text = "the [MASK] fox [SEP]"
    assert not special & set(tokenizer.encode([text])[0])
    ids = tokenizer.encode_with_masks(text)
    the, fox = tokenizer.encode(["the", "fox"])
    assert ids == [*the, tokenizer.mask, *fox, tokenizer.sep]
    assert tokenizer.encode_with_masks("the mask") == tokenizer.encode(["the mask"])[0]
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode_with_masks("[MASK][MASK]") == [tokenizer.mask] * 2


@KINDS
def test_what_follows_a_mask_is_cut_as_after_a_word(kind):
    tokenizer = trained(kind)
    comma, word = tokenizer.encode(["dog, the"])[0], tokenizer.encode(["dog"])[0]
    ids = tokenizer.encode_with_masks("[MASK], the")
    assert ids == [tokenizer.mask, *comma[len(word) :]]


@KINDS
@pytest.mark.parametrize("lowercase", [True, False])
def test_spans(kind, lowercase):
    """The ids are those of `encode`; the spans go through the text in order, whatever stands there."""
    tokenizer = trained(kind, lowercase)
    draw = random.Random(3)
    for text in [*PROSE[:5], *NASTY, *(nasty(draw) for _ in range(300))]:
        ids, spans = tokenizer.spans(text)
        assert ids == tokenizer.encode([text])[0] and len(spans) == len(ids)
        assert all(0 <= start <= end <= len(text) for start, end in spans)
        starts, ends = zip(*spans, strict=True) if spans else ((), ())
        assert list(starts) == sorted(starts) and list(ends) == sorted(ends)


@KINDS
def test_spans_are_where_the_pieces_stand(kind):
    tokenizer = trained(kind, False)
    text = "The  quick brown fox, d\xe9j\xe0-vu 漢字 and then it sleeps."
    for number, (start, end) in zip(*tokenizer.spans(text), strict=True):
        piece = tokenizer.readable(number).replace("##", "").replace("▁", "")
        shown = text[start:end].strip()
        if number != tokenizer.unk and piece.isascii() and "\\" not in piece:
            assert piece.strip() == shown
    covered = {place for span in tokenizer.spans(text)[1] for place in range(*span)}
    assert covered >= {place for place, letter in enumerate(text) if letter != " "}


@KINDS
def test_readable_pieces_make_the_text(kind):
    tokenizer = trained(kind)
    shown = "".join(map(tokenizer.readable, tokenizer.encode(["the lazy dog"])[0]))
    assert shown.replace("##", "").replace("▁", "") == "thelazydog"
    assert tokenizer.readable(np.int32(tokenizer.mask)) == "[MASK]"


@KINDS
def test_training_is_deterministic_over_processes(kind):
    # Hash maps are seeded anew in each process; text enough for ties between merges.
    size = {"unigram": 100}.get(kind, 400)
    code = (
        "import random; from bert_jax.tokenizers import tokenizer as t; d = random.Random(1);"
        "w = [''.join(d.choices('abcdefghij\\u0434\\u0436', k=5)) for _ in range(300)];"
        "texts = iter([' '.join(d.choices(w, k=20)) for _ in range(100)]);"
        f"print(t.train({kind!r}, texts, {size}, True).fingerprint)"
    )
    found = {subprocess.check_output([sys.executable, "-c", code]) for _ in range(4)}
    assert len(found) == 1


@KINDS
def test_text_in_parts_makes_the_same_vocabulary(kind):
    """Each taken by itself, as workers do; in any order, where words are counted."""
    texts = PROSE + NASTY
    whole = tokenizers.train(kind, texts, SIZES[kind], True)
    parts = [tokenizers.taken(kind, texts[first : first + 7]) for first in range(0, len(texts), 7)]
    assert len(parts) > 2
    for order in (parts, parts[::-1])[: 1 + (kind in tokenizers.COUNTED)]:
        again = tokenizers.train_taken(kind, order, SIZES[kind], True)
        assert again.fingerprint == whole.fingerprint


@pytest.mark.parametrize("kind", tokenizers.COUNTED)
@pytest.mark.parametrize("lowercase", [True, False])
def test_words_are_counted_as_the_library_parts_them(monkeypatch, kind, lowercase):
    """What it is given instead of the texts has every word as often."""
    texts = [*PROSE, *NASTY, "two  spaces, a tab\tand an end \n  begun with some\nend  "]
    texts.append("  both  \n  both  \n\tboth\t\n\tboth\t")
    monkeypatch.setattr(sample, "CHUNK", 16)  # characters
    library = tokenizers.train(kind, texts, SIZES[kind], lowercase).model.tokenizer

    def words(texts):
        if library.normalizer:
            texts = map(library.normalizer.normalize_str, texts)
        parted = map(library.pre_tokenizer.pre_tokenize_str, texts)
        return Counter(word for of_text in parted for word, _ in of_text)

    given = {"wordpiece": texts, "byte_bpe": sample.lines(texts)}[kind]
    counted = tokenizers.COUNTED[kind].as_texts(tokenizers.taken(kind, texts))
    found, expected = words(counted), words(given)
    assert found == expected and len(found) > 100


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, Unfinished, OSError])
@KINDS
def test_what_is_raised_while_words_are_counted_is_raised(kind, raised):
    def parts():
        yield tokenizers.taken(kind, PROSE)
        raise raised

    with pytest.raises(raised):
        tokenizers.train_taken(kind, parts(), SIZES[kind], True)


def test_too_small_a_vocabulary_is_refused():
    for kind in SIZES:
        with pytest.raises(BadInput, match="^config.tokenizer.size=20: too few"):
            tokenizers.train(kind, PROSE, 20, True)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(BadInput, match="vocab.bin: expected a vocab.txt, a .model or a tokenizer"):
        tokenizers.given(tmp_path / "vocab.bin", True)


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "not a saved"),
        ("[]", "not a saved"),
        ('{"kind": []}', "not a saved"),
        ('{"kind": "x"}', "'x'"),
        ('{"kind": "wordpiece"}', "not a saved tokenizer .'lowercase'"),
        ('{"kind": "wordpiece", "lowercase": true}', "cannot read the vocabulary"),
        ('{"kind": "sentencepiece"}', "No such file"),
        ('{"kind": "library"}', "No such file"),
    ],
)
def test_bad_saved_tokenizers(tmp_path, text, message):
    with pytest.raises(BadInput, match="no such file"):
        tokenizers.load(tmp_path)
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(BadInput, match=message):
        tokenizers.load(tmp_path)


@pytest.mark.parametrize("kind", ["unigram", "byte_bpe"])
@pytest.mark.parametrize("change", [("mask", 9999), ("mask", 0), ("mask", "4"), ("other", 5)])
def test_special_ids_that_cannot_be(tmp_path, kind, change):
    trained(kind).save(tmp_path)
    settings = tokenizers.json.loads((tmp_path / "settings.json").read_text())
    settings["special"][change[0]] = change[1]
    (tmp_path / "settings.json").write_text(tokenizers.json.dumps(settings))
    with pytest.raises(BadInput, match="special pieces"):
        tokenizers.load(tmp_path)
