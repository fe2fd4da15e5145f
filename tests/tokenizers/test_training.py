"""The keys of training: what each does to the pieces and ids, which kinds have it, and which stores know it."""

import random
import unicodedata

import pytest
from kits.texts import DIFFICULT, PROSE, check_corpus_encoder, difficult_text

from bert_jax import config
from bert_jax.convert import bert, pretrained_tokenizer, tokenizer_files
from bert_jax.data import origin
from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.corpus_encoder import CachedEncoder
from bert_jax.tokenizers.training import DEFAULTS, Training

SIZES = {"wordpiece": 500, "unigram": 200, "bpe": 500, "byte_bpe": 700, "bytes": 261}
NUMBERS = ["in 1984 and 2024, 12345 of 19 ٣٤ 1½"] * 30
DIGITS = pytest.mark.parametrize("kind", ["unigram", "bpe", "byte_bpe"])


def train(kind: str, texts=(), lowercase=False, is_exact=False, size=0, **keys):
    texts = [*PROSE, *texts]
    size = size or SIZES[kind]
    return tokenizers.train(kind, texts, size, lowercase, is_exact, Training(**keys))


def check_saved(tokenizer, directory) -> None:
    """Checks that a saved tokenizer and its own file are the same."""
    tokenizer.save(directory)
    texts = PROSE[:70] + NUMBERS[:1] + DIFFICULT
    again = tokenizers.load(directory)
    assert again.fingerprint == tokenizer.fingerprint
    assert again.encode(texts) == tokenizer.encode(texts)


@pytest.mark.parametrize("kind", SIZES)
def test_special_tokens_have_their_order(tmp_path, kind):
    usual = train(kind)
    tokenizer = train(kind, special="mask, cls,pad,unk,sep")
    assert tokenizer.pieces[:5] == ["[MASK]", "[CLS]", "[PAD]", "[UNK]", "[SEP]"]
    assert tokenizer.special == {"pad": 2, "unk": 3, "cls": 1, "sep": 4, "mask": 0}
    assert tokenizer.pieces[5:] == usual.pieces[5:]
    assert tokenizer.fingerprint != usual.fingerprint
    (ids,) = usual.encode(["the [MASK] fox 鱼"])
    pieces = [usual.pieces[number] for number in ids]
    assert [
        tokenizer.pieces[number] for number in tokenizer.encode(["the [MASK] fox 鱼"])[0]
    ] == pieces
    check_saved(tokenizer, tmp_path)


@DIGITS
@pytest.mark.parametrize("is_exact", [False, True])
def test_each_digit_is_a_piece(tmp_path, kind, is_exact):
    digits = "0123456789"
    together = train(kind, NUMBERS, is_exact=is_exact)
    apart = train(kind, NUMBERS, is_exact=is_exact, split_digits=True)
    for tokenizer in (together, apart):
        counts = [sum(letter in digits for letter in piece) for piece in tokenizer.pieces]
        assert (max(counts) == 1) == (tokenizer is apart)
    assert apart.decode(apart.encode(["1984 12 of 5"])[0]) == "1984 12 of 5"
    draw = random.Random(1)
    texts = [difficult_text(draw) for _ in range(1000)]
    check_corpus_encoder(apart, DIFFICULT + texts + NUMBERS)
    check_saved(apart, tmp_path)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_unknown_characters_are_bytes(tmp_path, kind):
    tokenizer = train(kind, byte_fallback=True, normalization="identity", size=500)
    texts = ["the 鱼🙂 fox\u0301", "\ue000 a"]
    encoded = tokenizer.encode(texts)
    assert all(tokenizer.unk not in ids for ids in encoded)
    assert [tokenizer.decode(ids) for ids in encoded] == texts
    assert tokenizer.unk in train(kind).encode(texts)[0]
    check_saved(tokenizer, tmp_path)


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "bpe"])
def test_rare_characters_are_covered_up_to_a_share(kind):
    (rare,) = train(kind, ["鱼 ж"] * 2, coverage=0.99).encode(["鱼"])
    tokenizer = train(kind, ["鱼 ж"] * 2, coverage=1.0)
    assert tokenizer.unk in rare and tokenizer.unk not in tokenizer.encode(["鱼"])[0]


@pytest.mark.parametrize("form", ["nfc", "nfkc"])
@pytest.mark.parametrize("lowercase", [False, True])
def test_byte_bpe_normalizes_text(tmp_path, form, lowercase):
    tokenizer = train("byte_bpe", DIFFICULT, lowercase, normalization=form)
    texts = ["e\u0301 m² ﬁ …", "Élan Å"]
    plain = train("byte_bpe", DIFFICULT, lowercase)
    for text in texts:
        expected = unicodedata.normalize(form.upper(), text)
        assert tokenizer.normalize(text) == plain.normalize(expected)
    assert isinstance(tokenizer.corpus_encoder(), CachedEncoder)
    draw = random.Random(1)
    marks = [" \u0301a ¨ a", "a ¨ ¯x ﷺ y", "\ufdfa a", "ｶﾞ ﾞ x"]
    texts = [difficult_text(draw) for _ in range(2000)]
    check_corpus_encoder(tokenizer, marks + DIFFICULT + texts)
    check_saved(tokenizer, tmp_path)


def test_lower_case_keeps_accents(tmp_path):
    text = ["Şişli ŞİŞE şiş Çağ"] * 20
    tokenizer = train("wordpiece", text, lowercase=True, keep_accents=True)
    usual = train("wordpiece", text, lowercase=True)
    assert "ş" in tokenizer.pieces and "ş" not in usual.pieces
    upper, lower, plain = tokenizer.encode(["ÇAĞ", "çağ", "cag"])
    assert upper == lower != plain and tokenizer.unk not in upper
    assert tokenizer.fingerprint != usual.fingerprint
    check_saved(tokenizer, tmp_path / "saved")
    file = tmp_path / "saved/vocab.txt"
    again = tokenizers.from_file(file, True, keep_accents=True)
    assert again.fingerprint == tokenizer.fingerprint
    assert tokenizer.append(["x"], tokenizer.special).encode(["Ş"]) == tokenizer.encode(["ş"])
    tokenizer_files.write(tmp_path, tokenizer, positions=512)
    for place in (tokenizers.from_file(tmp_path / "tokenizer.json", True), pretrained(tmp_path)):
        assert place.fingerprint == tokenizer.fingerprint


def pretrained(directory):
    return pretrained_tokenizer.read(directory, {}, "bert", bert.BERT)


# --- The keys -------------------------------------------------------------------------------------

CHANGES = [
    ("byte_bpe", "normalization", "nfc"),
    ("byte_bpe", "split_digits", True),
    ("bpe", "byte_fallback", True),
    ("wordpiece", "coverage", 1.0),
    ("bytes", "special", "mask,cls,pad,unk,sep"),
    ("wordpiece", "keep_accents", True),
]


def load(kind: str, *keys: str):
    return config.load("base", [f"tokenizer.{key}" for key in (f"kind={kind}", *keys)])


def test_the_defaults_are_those_of_configs():
    settings = config.base().tokenizer
    assert {key: settings[key] for key in Training._fields} == DEFAULTS._asdict()


@pytest.mark.parametrize(("kind", "key", "value"), CHANGES)
def test_a_store_knows_a_key_that_is_not_the_default(kind, key, value):
    """Stores from before the keys existed have none of them."""
    usual = origin.tokenizer_keys(load(kind))
    assert not {f"tokenizer.{name}" for name in Training._fields} & usual.keys()
    changed = origin.tokenizer_keys(load(kind, f"{key}={value}"))
    assert changed == usual | {f"tokenizer.{key}": value}
    if key == "special":
        spaced = load(kind, "special=mask, cls, pad, unk, sep")
        assert origin.tokenizer_keys(spaced) == changed


@pytest.mark.parametrize(("kind", "form"), [("bpe", "nfkc"), ("byte_bpe", "identity")])
def test_the_default_of_a_kind_may_be_named(kind, form):
    keys = "lowercase=False", f"normalization={form}"
    assert "tokenizer.normalization" not in origin.tokenizer_keys(load(kind, *keys))


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("wordpiece", "normalization=nfkc"),
        ("bpe", "normalization=nfc"),
        ("unigram", "normalization=identity"),  # with lowercase
        ("wordpiece", "split_digits=True"),
        ("byte_bpe", "byte_fallback=True"),
        ("byte_bpe", "coverage=1"),
        ("bytes", "normalization=nfc"),
        ("unigram", "keep_accents=True"),
        ("wordpiece", "coverage=0.9"),
        ("bpe", "coverage=1.1"),
        ("bpe", "special=pad,unk,cls,sep"),
        ("bpe", "special=pad,unk,cls,sep,sep"),
    ],
)
def test_keys_that_a_kind_lacks_are_refused(kind, key):
    name = key.partition("=")[0]
    with pytest.raises(BadInput, match=f"^config.tokenizer.{name}="):
        load(kind, key)


def test_accents_of_cased_text_are_kept_anyway():
    with pytest.raises(BadInput, match="^config.tokenizer.keep_accents=True"):
        load("wordpiece", "keep_accents=True", "lowercase=False")
