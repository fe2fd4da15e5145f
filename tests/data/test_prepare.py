"""From text to store: bitwise reproducible, complete, with separate held-out documents."""

import functools
import lzma
import random
from collections import Counter

import numpy as np
import pytest
from kits import corpora
from kits.corpora import encode_lines, files, make_text, prepare, read, report_of, two_sources
from kits.damage import flip_bit

from bert_jax.data import store as stores
from bert_jax.data.preparation import corpus, encode
from bert_jax.data.preparation import prepare as preparing
from bert_jax.data.preparation.encode import text_hashes
from bert_jax.data.preparation.shards import Shard
from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer as tokenizers


@pytest.fixture
def make(tmp_path):
    """make(documents or bytes, key=value...) -> a config with this corpus."""
    return functools.partial(corpora.config_of, tmp_path)


@pytest.fixture
def words(tmp_path) -> str:
    """The override that names a vocabulary of a, b and c, and no other character."""
    tokenizers.train("wordpiece", ["a b c"], 30, True).save(tmp_path / "words")
    return f"tokenizer.path={tmp_path}/words/vocab.txt"


def splits(store) -> tuple[list, list]:
    """Returns (training, held-out) documents."""
    return read(store.splits["train"]), read(store.splits["heldout"])


@pytest.mark.parametrize(
    "kind, size", [("wordpiece", 200), ("unigram", 40), ("bpe", 60), ("byte_bpe", 300)]
)
def test_a_store_has_all_documents_of_the_corpus(make, tmp_path, kind, size):
    texts = make_text(300)
    store = prepare(make(texts, f"tokenizer.kind={kind}", f"tokenizer.size={size}"))
    tokenizer = tokenizers.load(store.path / "tokenizer")
    encoded = [encode_lines(tokenizer.encode, text) for text in texts]
    train, heldout = splits(store)
    assert len(heldout) == 30 and len(train) == 270
    assert train == [document for document in encoded if document not in heldout]
    assert heldout == [document for document in encoded if document in heldout]
    tokens = len(store.splits["train"].tokens)
    counts = {"documents": 270, "sentences": sum(map(len, train)), "tokens": tokens}
    assert store.manifest["splits"]["train"] == counts
    assert store.manifest["vocabulary"] == tokenizer.size
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "store"]


def test_documents_of_a_source_stay_together_and_are_counted(tmp_path, monkeypatch):
    corpora.small_parts(monkeypatch)
    store = prepare(two_sources(tmp_path))
    first, second = corpora.halves()
    assert report_of(store)["copies"] == 20
    encode = tokenizers.load(store.path / "tokenizer").encode
    counts = store.manifest["sources"]
    for number, texts in enumerate([first, second[10:190]]):
        order = [encode_lines(encode, text) for text in texts]
        both = []
        for name in stores.SPLITS:
            starts = [0, *store.splits[name].source_ends]
            stored = read(store.splits[name])[starts[number] : starts[number + 1]]
            assert stored == [document for document in order if document in stored]
            assert len(stored) == counts[number]["documents"][name]
            tokens = sum(len(sentence) for document in stored for sentence in document)
            assert tokens == counts[number]["tokens"][name]
            both += stored
        assert sorted(both) == sorted(order)
    train, unigrams = store.splits["train"], np.load(store.path / "unigrams.npy")
    ends = train.sentence_ends[train.document_ends[train.source_ends - 1] - 1]
    for counted, tokens in zip(unigrams, np.split(train.tokens, ends[:-1]), strict=True):
        assert counted.tolist() == np.bincount(tokens, minlength=len(counted)).tolist()
    share = unigrams.sum(axis=0)[train.tokens] / len(train.tokens)  # of each token
    assert store.manifest["unigram_entropy"] == pytest.approx(-np.log(share).mean(), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, pytest.param(7, marks=pytest.mark.full)])
def test_the_store_does_not_depend_on_workers_or_block_sizes(tmp_path, monkeypatch, workers):
    """Any sizes of blocks and shards, and any number of workers, give the same store."""
    one = prepare(two_sources(tmp_path))
    assert report_of(one)["copies"]
    corpora.small_parts(monkeypatch)
    more = f"corpus.workers={workers}", f"store={tmp_path}/more"
    assert files(one.path) == files(prepare(two_sources(tmp_path, *more)).path)


def test_the_held_out_split_depends_only_on_content(make, tmp_path):
    """The order does not matter, and no document is in both splits, whatever the number of its copies."""
    texts = make_text(200)
    tokenizers.train("wordpiece", texts, 200, True).save(tmp_path / "words")
    vocabulary = f"tokenizer.path={tmp_path}/words/vocab.txt"
    _, heldout = splits(prepare(make(texts, vocabulary)))
    shuffled = texts * 3
    random.Random(1).shuffle(shuffled)
    for changes in ([], ["filter.duplicates=False"]):
        store = prepare(make(shuffled, vocabulary, f"store={tmp_path}/{len(changes)}", *changes))
        train, again = (set(map(str, documents)) for documents in splits(store))
        assert again == set(map(str, heldout))
        assert not train & again and len(train) + len(again) == 200
        assert report_of(store)["copies"] == (0 if changes else 400)


def test_stores_of_all_vocabularies_hold_out_the_same_documents(make, tmp_path, words):
    """And the vocabulary is trained without their text: each document has a letter of its own."""
    letters = [chr(0x4E00 + number) for number in range(60)]
    texts, hashes, stores_made = [f"{letter} " * 20 for letter in letters], set(), []
    for kind, size in (("wordpiece", 200), ("byte_bpe", 300), ("wordpiece", 30)):
        changes = f"tokenizer.kind={kind}", f"tokenizer.size={size}", "corpus.heldout=0.1"
        if size == 30:  # knows no letter: all documents have the same ids
            changes += (words,)
        store = prepare(make(texts, *changes, f"store={tmp_path}/{kind}{size}"))
        hashes.add(np.load(store.path / stores.HELDOUT_HASHES).tobytes())
        stores_made.append(store)
        assert [len(documents) for documents in splits(store)] == [54, 6]
    (found,) = hashes
    rows = text_hashes([[f"{letter} " * 19 + letter] for letter in letters])
    heldout = {letter for letter, row in zip(letters, rows, strict=True) if row.tobytes() in found}
    pieces = set(tokenizers.load(stores_made[0].path / "tokenizer").pieces)
    assert len(heldout) == 6 and pieces & set(letters) == set(letters) - heldout


@pytest.mark.parametrize("text", [b"", b"\n \n", b"one\n\ntwo\n\nthree\n\none\n", b"\xff\n\n\xff"])
def test_three_documents_are_too_few_and_four_are_enough(make, tmp_path, text):
    with pytest.raises(BadInput, match="corpus"):
        prepare(make(text, "tokenizer.size=100"))
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]
    for share in (0.0, 0.995):
        keys = f"corpus.heldout={share}", f"store={tmp_path}/{share}"
        store = prepare(make(["one cat", "two dogs", "three birds", "four fish"], *keys))
        assert [len(documents) for documents in splits(store)] == [2, 2]


def test_every_document_that_is_read_is_kept_empty_or_a_copy(make, words):
    """A copy without tokens is empty."""
    texts = ["a b", "b c", "c a", "a b c", "\x01", "\x02"]
    store = prepare(make(2 * texts, words))
    counts = {key: report_of(store)[key] for key in ("documents_read", "empty", "copies")}
    assert counts == {"documents_read": 12, "empty": 4, "copies": 4}
    assert sum(map(len, splits(store))) == 4


@pytest.mark.parametrize("key", ["", "corpus.separator=<|endoftext|>"])
def test_special_tokens_that_are_text_are_counted(make, key):
    """A line that ends documents is no text."""
    texts = [f"{text}\n[MASK] <unk> [SEP]<s>" for text in make_text(20)]
    text = "\n<|endoftext|>\n".join(texts) if key else "\n<|endoftext|>\n\n".join(texts)
    report = report_of(prepare(make(text.encode(), *([key] if key else ()))))
    counts = {"[MASK]": 20, "<unk>": 20, "[SEP]": 20}
    counts |= {} if key else {"<|endoftext|>": 19}
    expected = {"bytes of separators": 19 * len("<|endoftext|>")} if key else {}
    for token, number in counts.items():
        expected |= {f"literal {token}": number, f"bytes of literal {token}": number * len(token)}
    assert report["problems"] == expected and report["documents_read"] == 20
    (found,) = [each for each in report["warnings"] if each["name"] == "literals"]
    assert all(f"{number} literal {token}" in found["what"] for token, number in counts.items())
    assert "config.corpus.separator" in found["remedy"]


@pytest.mark.parametrize("end", ["\na <|end|>\n", "\r<|end|>\r"])
def test_a_separator_within_lines_is_counted_and_reported(make, end):
    """A carriage return alone ends no line of exact text."""
    keys = "objective.name=causal_lm", "task.name=token_blocks", "corpus.sentences=none"
    text = "".join(text + end for text in make_text(20))
    keys += "corpus.separator=<|end|>", "corpus.heldout_by=end", "phases.main.length=32"
    report = report_of(prepare(make(text.encode(), *keys)))
    assert report["problems"]["literal <|end|>"] == 20
    (found,) = [each for each in report["warnings"] if each["name"] == "no_separator"]
    assert "config.corpus.separator='<|end|>'" in found["what"]


def test_a_store_of_another_separator_is_refused(make):
    text = "\n--\n".join(make_text(20)).encode()
    prepare(make(text, "corpus.separator=--"))
    with pytest.raises(BadInput, match="corpus.separator"):
        prepare(make(text))


def test_too_little_text_leaves_no_store_and_more_is_enough(make, tmp_path):
    """Rows of 32 need 63 tokens."""
    keys = "tokenizer.kind=bytes", "objective.name=causal_lm", "task.name=token_blocks"
    keys += "corpus.format=files", "corpus.sentences=none", "corpus.heldout_by=end"
    with pytest.raises(BadInput, match="config.phases.main.length=32: ((?!config.store).)*$"):
        prepare(make(b"a" * 60, *keys, "phases.main.length=32"))
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]
    prepare(make(b"a" * 600, *keys, "phases.main.length=32"))


def test_bad_input_leaves_no_files(make, tmp_path):
    """Most errors are found before any work, a damaged archive during it."""
    archive = lzma.compress("\n\n".join(make_text(3000, seed=2)).encode())
    (tmp_path / "b.xz").write_bytes(archive[: len(archive) // 2])
    for change, named in [
        (f"corpus.source={tmp_path}/corpus.txt,{tmp_path}/b.xz", "b.xz"),
        (f"tokenizer.path={tmp_path}/none.txt", "none.txt"),
        (f"store={tmp_path}/corpus.txt/store", "corpus.txt/store"),
        ("tokenizer.size=9", "tokenizer.size"),
    ]:
        with pytest.raises(BadInput, match=named):
            prepare(make(make_text(50), change))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["b.xz", "corpus.txt"]


def test_shards_of_another_config_or_text_are_not_used(make):
    texts, change = make_text(50), "filter.document_characters=30"
    keys = []
    for arguments in ([texts], [texts, change], [texts[1:]], [texts[::-1]], [texts]):
        config = make(*arguments)
        (source,) = corpus.open_sources(config)
        keys.append(preparing.workspace_key(config, {"identities": [source.identify(map)]}))
    assert len({*keys}) == 4 and keys[-1] == keys[0]


def test_kept_documents_take_the_space_of_the_text_and_may_be_damaged(make, words, tmp_path):
    [source] = corpus.open_sources(make(["абв где a b c " * 500]))
    [block] = source.blocks(Counter())
    shard = Shard(tmp_path / "shards" / "one.npz", 0)
    for name in ("shards", "documents"):
        (tmp_path / name).mkdir()
    results = []
    for is_damaged in (False, True):
        encode.parse((shard, block))
        path = shard.parsed.path
        assert path.stat().st_size < 1.2 * block.size
        if is_damaged:
            flip_bit(path, block.size // 2)
        assert encode.encode_shard(tmp_path / "words", (shard, block)) == block.size
        results.append(shard.path.read_bytes())
        assert not path.exists()
    assert results[0] == results[1]


def test_documents_that_an_interrupted_start_kept_are_not_parsed_again(make, tmp_path, monkeypatch):
    [source] = corpus.open_sources(make(make_text(50)))
    [block] = source.blocks(Counter())
    (tmp_path / "documents").mkdir()
    shard = Shard(tmp_path / "shards" / "one.npz", 0)
    first = encode.parse((shard, block))
    monkeypatch.setattr(corpus, "documents", None)
    again = encode.parse((shard, block))
    assert (again.hashes == first.hashes).all() and again.problems == first.problems
