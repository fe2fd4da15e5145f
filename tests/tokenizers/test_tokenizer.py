"""Properties of all tokenizers: the same ids after saving, in every process, with and without the cache."""

import functools
import json
import random
import subprocess
import sys

import pytest
from kits.texts import DIFFICULT, PROSE, check_corpus_encoder, difficult_text

from bert_jax import config
from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer as tokenizers

SIZES = {"wordpiece": 500, "unigram": 200, "bpe": 500, "byte_bpe": 700}
KINDS = pytest.mark.parametrize("kind", [*SIZES])
SIZES["bytes"] = 261
KINDS_AND_BYTES = pytest.mark.parametrize("kind", SIZES)
CASES = pytest.mark.parametrize("lowercase", [True, False])


@functools.cache
def trained(kind: str, lowercase: bool = True) -> tokenizers.Tokenizer:
    texts = PROSE + DIFFICULT + ["The dog's hat"] * 20
    return tokenizers.train(kind, texts, SIZES[kind], lowercase)


@KINDS
def test_a_trained_vocabulary_begins_with_the_special_tokens(kind):
    tokenizer = trained(kind)
    assert tokenizer.pieces[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert list(tokenizer.special.values()) == [0, 1, 2, 3, 4]
    assert tokenizer.size == len(tokenizer.pieces) <= SIZES[kind]
    starts = tokenizer.word_starts
    assert starts.dtype == bool and starts.shape == (tokenizer.size,) and starts[:5].all()
    # Whether "," starts a word depends on the kind.
    assert starts[tokenizer.encode(["quick brown foxes, lazily"])[0]].sum() in (4, 5)


@KINDS_AND_BYTES
def test_lowercase_folds_case_and_only_wordpiece_drops_accents(kind):
    upper, lower, plain = trained(kind).encode(["THE Élan", "the élan", "the elan"])
    assert upper == lower and (lower == plain) == (kind == "wordpiece")
    upper, lower = trained(kind, False).encode(["The Élan", "the élan"])
    assert upper != lower


@KINDS_AND_BYTES
@CASES
def test_a_saved_tokenizer_is_loaded_unchanged(tmp_path, kind, lowercase):
    """Also by the name of its directory, or of the run or store that has it."""
    tokenizer = trained(kind, lowercase)
    tokenizer.save(tmp_path / "run/tokenizer")
    for place in (tmp_path / "run", tmp_path / "run/tokenizer"):
        named = tokenizers.from_file(place, not lowercase)
        assert (named.fingerprint, named.special) == (tokenizer.fingerprint, tokenizer.special)
    tokenizer.save(tmp_path)
    loaded = tokenizers.load(tmp_path)
    texts = PROSE + DIFFICULT
    assert loaded.pieces == tokenizer.pieces and loaded.special == tokenizer.special
    assert loaded.fingerprint == tokenizer.fingerprint != trained(kind, not lowercase).fingerprint
    assert loaded.encode(texts) == tokenizer.encode(texts)
    assert (loaded.word_starts == tokenizer.word_starts).all()
    again = tokenizers.from_file(tmp_path / tokenizer.file, lowercase)
    again.save(tmp_path / "again")
    assert again.special == tokenizer.special
    saved, copied = (place / tokenizer.file for place in (tmp_path, tmp_path / "again"))
    assert saved.read_bytes() == copied.read_bytes()


def test_bytes_give_back_every_text():
    tokenizer = trained("bytes", False)
    draw = random.Random(2)
    texts = [*DIFFICULT, *(difficult_text(draw) for _ in range(1000)), "\n a\u3000", "<s>"]
    encoded = tokenizer.encode(texts)
    assert encoded == [[5 + byte for byte in text.encode()] for text in texts]
    assert [tokenizer.decode(ids) for ids in encoded] == texts
    assert tokenizer.decode([tokenizer.sep, *encoded[-1], tokenizer.pad]) == "<s>"
    assert trained("bytes").encode(["Élan"]) == tokenizer.encode(["élan"])
    keys = ["tokenizer.kind=bytes", "tokenizer.size=9"]
    assert config.load("base", keys).tokenizer.size == tokenizer.size
    assert config.load("base", [*keys, "tokenizer.path=vocab.txt"]).tokenizer.size == 9


@KINDS_AND_BYTES
def test_a_continuation_keeps_its_white_space(kind):
    tokenizer = trained(kind, False)
    texts = ["the quick brown fox", "the quick\n\n  brown", "jumps. Over", "the fox's "]
    if kind not in ("byte_bpe", "bytes"):
        texts = texts[:1]
    for text in texts:
        (ids,) = tokenizer.encode([text])
        assert tokenizer.decode(ids) == text
        for length in range(1, len(ids)):
            prompt = tokenizer.decode(ids[:length])
            assert tokenizer.decode(ids).startswith(prompt)


@KINDS
def test_errors_of_the_text_are_not_those_of_the_size(kind):
    def texts():
        yield PROSE[0]
        raise OSError("the disk")

    with pytest.raises(OSError, match="the disk"):
        tokenizers.train(kind, texts(), SIZES[kind], True)


@KINDS_AND_BYTES
@CASES
def test_documents_are_encoded_whole(kind, lowercase):
    draw = random.Random(1)
    texts = [difficult_text(draw) for _ in range(3000)]
    check_corpus_encoder(trained(kind, lowercase), DIFFICULT + texts)


@KINDS
def test_special_tokens_are_read_only_by_encode_with_masks(kind):
    tokenizer = trained(kind)
    special = set(tokenizer.special.values()) - {tokenizer.unk}
    text = "the [MASK] fox [SEP]"
    assert not special & set(tokenizer.encode([text])[0])
    ids = tokenizer.encode_with_masks(text)
    the, fox = tokenizer.encode(["the", "fox"])
    assert ids == [*the, tokenizer.mask, *fox, tokenizer.sep]
    assert tokenizer.encode_with_masks("the mask") == tokenizer.encode(["the mask"])[0]
    assert kind != "byte_bpe" or "'s" in tokenizer.pieces
    (word,) = tokenizer.encode(["dog"])
    for rest in (", the", "'s quick", "'ll see"):
        # The text after a mask is encoded as after a word.
        (whole,) = tokenizer.encode([f"dog{rest}"])
        assert tokenizer.encode_with_masks(f"[MASK]{rest}") == [tokenizer.mask, *whole[len(word) :]]


def test_training_is_deterministic_over_processes():
    """Hash maps get a new seed in each process; the text is long enough for ties between merges."""
    code = (
        "import random; from bert_jax.tokenizers import tokenizer as t; d = random.Random(1);"
        "w = [''.join(d.choices('abcdefghij\\u0434\\u0436', k=5)) for _ in range(300)];"
        "texts = [' '.join(d.choices(w, k=20)) for _ in range(100)];"
        "sizes = {'wordpiece': 400, 'unigram': 100, 'bpe': 400, 'byte_bpe': 400};"
        "print([t.train(kind, texts, sizes[kind], True).fingerprint for kind in sizes])"
    )
    found = {subprocess.check_output([sys.executable, "-c", code]) for _ in range(3)}
    assert len(found) == 1


@KINDS
def test_too_small_a_vocabulary_is_refused(kind):
    with pytest.raises(BadInput, match="config.tokenizer.size=20"):
        tokenizers.train(kind, PROSE, 20, True)


def test_a_vocab_txt_keeps_its_pieces_unless_more_are_asked_for(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("<s>\n<pad>\n</s>\n[UNK]\nfox\n")
    tokenizer = tokenizers.from_file(path, True)
    assert tokenizer.special == {"pad": 1, "unk": 3, "cls": 0, "sep": 2} and tokenizer.size == 5
    assert tokenizer.encode_with_masks("fox [MASK] </s>") == [4, 3, 3, 3, 2]
    more = tokenizers.from_file(path, True, add_special=True)
    assert more.pieces == [*tokenizer.pieces, "[MASK]"] and more.mask == 5


SPECIAL = b"[PAD]\n[CLS]\n[SEP]\n[MASK]\n"
GAPS = {"type": "WordPiece", "vocab": {"a": 0, "b": 7}, "unk_token": "a"}
GAPS |= {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}


@pytest.mark.parametrize(
    "name, content",
    [
        ("vocab.txt", None),
        ("vocab.txt", SPECIAL),  # no [UNK]
        ("vocab.txt", SPECIAL + b"[UNK]\na\nb\na\n"),
        ("some.model", b"abc"),
        ("tokenizer.json", b'{"model": {"type": "WordLevel", "vocab": {}}}'),
        ("tokenizer_config.json", b'{"pad_token": 3}'),
        ("tokenizer.json", json.dumps({"model": GAPS}).encode()),
        ("settings.json", b'{"kind": "x"}'),
        ("settings.json", b'{"kind": "wordpiece", "lowercase": true}'),  # no vocab.txt
    ],
)
def test_malformed_files_are_refused(tmp_path, name, content):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    if name == "tokenizer_config.json":
        path = tmp_path / "tokenizer.json"
        path.write_bytes(b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}')
    with pytest.raises(BadInput, match=str(tmp_path)):
        tokenizers.load(tmp_path) if name == "settings.json" else tokenizers.from_file(path, True)
