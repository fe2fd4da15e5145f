"""Text to store: the same bits however it is made, nothing lost, held-out apart, nothing else overwritten."""

import errno
import functools
import lzma
import random
import re
from pathlib import Path

import numpy as np
import pytest
from kits import corpora
from kits.corpora import (
    WORDS,
    encode_lines,
    files,
    halves,
    make_text,
    prepare,
    read,
    report_of,
    two_sources,
)
from kits.texts import DATA

from bert_jax.commands import inspect_batch
from bert_jax.data import corpus
from bert_jax.data import prepare as preparing
from bert_jax.data import store as stores
from bert_jax.data.preparation import cut, partitions, shards
from bert_jax.data.reports import report as reports
from bert_jax.data.sources import files as sources
from bert_jax.errors import BadInput, Unfinished
from bert_jax.tokenizers import tokenizer as tokenizers


@pytest.fixture
def make(tmp_path):
    """make(documents or bytes, key=value...) -> a config whose corpus they are; one process, 200 pieces."""
    return functools.partial(corpora.config_of, tmp_path)


@pytest.fixture
def small_parts(monkeypatch):
    """Many blocks, shards and partitions of a small corpus."""
    monkeypatch.setattr(corpus, "BLOCK", 1000)
    monkeypatch.setattr(cut, "PART", 1000)
    monkeypatch.setattr(shards, "BLOCKS", 3)
    monkeypatch.setattr(shards, "GROUP", 4)
    monkeypatch.setattr(partitions, "RECORDS", 200)


def test_workers_do_all_that_is_done_to_text(make, small_parts):
    """Of which there are many parts in each stage."""
    done = {}

    def run(function, tasks):
        tasks = list(tasks)
        name = getattr(function, "func", function).__name__
        done[name] = max(done.get(name, 0), len(tasks))
        return map(function, tasks)

    preparing.prepare(make(make_text(300)), lambda line: None, lambda directory: run)
    assert {"cut", "take"} <= done.keys() and len(done) >= 4
    assert done["take"] > 10


def test_the_store_is_the_corpus(make):
    texts = make_text(300)
    config = make(texts)
    store = prepare(config)
    tokenizer = tokenizers.load(store.path / "tokenizer")
    encoded = [encode_lines(tokenizer.encode, text) for text in texts]
    train, heldout = read(store.splits["train"]), read(store.splits["heldout"])
    assert len(heldout) == 30 and len(train) == 270
    assert train == [document for document in encoded if document not in heldout]
    assert heldout == [document for document in encoded if document in heldout]
    counts = store.manifest["splits"]["train"]
    assert counts == {
        "documents": 270,
        "sentences": sum(map(len, train)),
        "tokens": len(store.splits["train"].tokens),
    }
    assert store.manifest["special"] == {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
    assert store.manifest["vocabulary"] == tokenizer.size
    assert sorted(path.name for path in Path(config.store).parent.iterdir()) == [
        "corpus.txt",
        "store",
    ]


def test_documents_of_a_source_stay_together(make, tmp_path, small_parts):
    store = prepare(two_sources(make, tmp_path))
    sources = store.manifest["sources"]
    assert [source["source"] for source in sources] == [
        f"{tmp_path}/other.txt",
        f"{tmp_path}/corpus.txt",
    ]
    first, second = halves()
    assert report_of(store)["duplicates"] == 20
    encode = tokenizers.load(store.path / "tokenizer").encode
    for number, texts in enumerate([first, second[10:190]]):
        order = [encode_lines(encode, text) for text in texts]
        both = []
        for name in stores.SPLITS:
            ends = store.splits[name].source_ends
            found = read(store.splits[name])[ends[number - 1] if number else 0 : ends[number]]
            assert found == [document for document in order if document in found]
            assert len(found) == sources[number]["documents"][name]
            tokens = sum(len(sentence) for document in found for sentence in document)
            assert tokens == sources[number]["tokens"][name]
            both += found
        assert sorted(both) == sorted(order)


def test_a_source_of_duplicates_alone_stays_in_the_list(make, tmp_path):
    texts = make_text(100)
    corpora.write(tmp_path / "again.txt", texts[20:60])
    store = prepare(make(texts, f"corpus.source={tmp_path}/corpus.txt,{tmp_path}/again.txt"))
    none = {"train": 0, "heldout": 0}
    assert [source["documents"] for source in store.manifest["sources"]] == [
        {"train": 90, "heldout": 10},
        none,
    ]
    assert store.manifest["sources"][1]["tokens"] == none
    assert np.load(store.path / "unigrams.npy")[1].sum() == 0


def test_unigrams_of_each_source_and_entropy(make, tmp_path):
    store = prepare(two_sources(make, tmp_path))
    train = store.splits["train"]
    unigrams = np.load(store.path / "unigrams.npy")
    ends = train.sentence_ends[train.document_ends[train.source_ends - 1] - 1]
    for counts, tokens in zip(unigrams, np.split(train.tokens, ends[:-1]), strict=True):
        assert counts.tolist() == [int((tokens == piece).sum()) for piece in range(len(counts))]
    share = unigrams.sum(axis=0)[train.tokens] / len(train.tokens)  # the mean of -log p over tokens
    assert store.manifest["unigram_entropy"] == pytest.approx(-np.log(share).mean(), rel=1e-12)


@pytest.mark.parametrize("workers", [2, pytest.param(7, marks=pytest.mark.slow)])
def test_bits_do_not_depend_on_the_workers(make, tmp_path, small_parts, workers):
    filters = "filter.near_duplicates=0.5", "filter.repeats=2"
    one = prepare(two_sources(make, tmp_path, *filters))
    more = f"corpus.workers={workers}", f"store={tmp_path / 'more'}"
    assert files(one.path) == files(prepare(two_sources(make, tmp_path, *filters, *more)).path)
    found = report_of(one)
    assert found["duplicates"] and found["near_duplicates"] and found["repeated_dropped"]


def test_blocks_shards_and_partitions_leave_no_trace(make, tmp_path, monkeypatch):
    texts = make_text(200)
    one = files(prepare(make(texts)).path)
    monkeypatch.setattr(corpus, "BLOCK", 500)
    monkeypatch.setattr(shards, "BLOCKS", 2)
    monkeypatch.setattr(shards, "GROUP", 3)
    monkeypatch.setattr(partitions, "RECORDS", 30)
    assert files(prepare(make(texts, f"store={tmp_path / 'two'}")).path) == one


def test_heldout_is_a_function_of_content(make, tmp_path):
    """Not of order, and no document is on both sides however often it stands in the corpus."""
    texts = make_text(200)
    make(texts)
    tokenizers.train("wordpiece", texts, 200, True).save(tmp_path / "vocabulary")
    vocabulary = f"tokenizer.path={tmp_path}/vocabulary/vocab.txt"
    one = prepare(make(texts, vocabulary))
    shuffled = texts * 3
    random.Random(1).shuffle(shuffled)
    two = prepare(make(shuffled, vocabulary, f"store={tmp_path / 'two'}"))
    assert sorted(read(one.splits["heldout"])) == sorted(read(two.splits["heldout"]))
    assert report_of(two)["duplicates"] == 400
    train, heldout = (set(map(str, read(two.splits[name]))) for name in stores.SPLITS)
    assert not train & heldout and len(train) + len(heldout) == 200


def test_equal_to_the_model_is_a_duplicate_and_the_first_survives(make):
    texts = ["one cat", "The Cat", "a dog ran", "the cat", "old birds", "the  cat\x01", "fish eat"]
    store = prepare(make(texts))
    found = [*read(store.splits["train"]), *read(store.splits["heldout"])]
    assert report_of(store)["duplicates"] == 2 and len(found) == 5


def test_of_duplicates_the_first_keeps_its_place(make):
    texts = make_text(100)
    store = prepare(make(texts + texts[::-1]))
    encoded = tokenizers.load(store.path / "tokenizer").encode
    order = [sum(encode_lines(encoded, text), ()) for text in texts]
    for name in stores.SPLITS:
        places = [order.index(sum(document, ())) for document in read(store.splits[name])]
        assert places == sorted(places)


def test_problems_are_counted_not_fatal(make):
    lines = [*make_text(20), "\x01", b"bad \xff line", b"nul \0 line", b"x" * 10_000_000]
    text = b"\n\n".join(line if isinstance(line, bytes) else line.encode() for line in lines)
    report = preparing.prepare(make(text), lambda line: None)
    problems = {"lines not UTF-8": 1, "lines over 1 MB": 1, "lines with NUL bytes": 1}
    assert report["problems"] == problems and report["empty"] == 1
    assert report["train"]["documents"] + report["heldout"]["documents"] == 20
    assert "problems: 1 lines not UTF-8" in reports.describe(report)


@pytest.mark.parametrize(
    "text, message",
    [
        (b"", "no document"),
        (b"\n \n\n", "no document"),
        (b"one\ntwo\n", "1 document .* is config.corpus.format right"),
        (b"one\n\ntwo\n\nthree\n\none\n", "3 documents"),
        (b"\xff\xfe\n\n\xff", "no document with text, 2 lines not UTF-8"),
    ],
)
def test_too_few_documents(make, tmp_path, text, message):
    config = make(text, "tokenizer.size=100", "corpus.workers=1")
    with pytest.raises(BadInput, match=message):
        prepare(config)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]


def test_four_documents_are_enough(make):
    store = prepare(make(["one cat", "two dogs", "three birds", "four fish"], "corpus.heldout=0.9"))
    assert [len(read(store.splits[name])) for name in stores.SPLITS] == [2, 2]


def test_a_bad_file_leaves_nothing(make, tmp_path):
    with lzma.open(tmp_path / "b.xz", "wb") as file:
        file.write("\n\n".join(make_text(3000, seed=2)).encode())
    whole = (tmp_path / "b.xz").read_bytes()
    (tmp_path / "b.xz").write_bytes(whole[: len(whole) // 2])
    config = make(make_text(50), f"corpus.source={tmp_path}/corpus.txt,{tmp_path}/b.xz")
    before = files(tmp_path)
    with pytest.raises(BadInput, match="b.xz: damaged or cut short"):
        prepare(config)
    assert files(tmp_path) == before


def test_before_any_work(make, tmp_path):
    vocabulary = f"tokenizer.path={tmp_path}/none.txt"
    for overrides, message in [
        ([f"corpus.source={tmp_path}/*.none"], "matches no file"),
        ([vocabulary], "none.txt: cannot read the vocabulary"),
        ([f"store={tmp_path}/corpus.txt/store"], "cannot be written"),
        (["tokenizer.size=9"], "too few"),
    ]:
        with pytest.raises(BadInput, match=message) as error:
            prepare(make(make_text(9), *overrides))
        assert "\n" not in str(error.value)
        assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]


def test_a_machine_that_cannot_read_loses_nothing(make, tmp_path, monkeypatch, small_parts):
    """The second file fails in the middle of the work, and is well again at the next start."""
    texts = make_text(500)
    corpora.write(tmp_path / "other.txt", texts[:250])
    both = f"corpus.source={tmp_path}/corpus.txt,{tmp_path}/other.txt"
    vocabulary = f"tokenizer.path={tmp_path}/words/vocab.txt"
    tokenizers.train("wordpiece", texts, 150, True).save(tmp_path / "words")
    config = make(texts[250:], both, vocabulary)

    def fail(path, mode):
        if path.name == "other.txt" and corpora.shard_files(config):
            raise OSError(errno.EIO, "Input/output error")
        return open(path, mode)

    with monkeypatch.context() as patch:
        patch.setattr(sources, "open", fail, raising=False)
        with pytest.raises(Unfinished, match="Input/output error: '.*other.txt'.*continues"):
            prepare(config)
    kept, lines = len(corpora.shard_files(config)), []
    prepare(config, lines.append)
    assert kept > 1 and f"continues after {kept} shards" in lines


def test_stages_are_told(make):
    lines = []
    prepare(make(make_text(50)), lines.append)
    stages = (
        "text is read",
        "sample of the text",
        "50 documents are compared",
        "splits are written",
        "report is made",
    )
    assert all(any(stage in line for line in lines) for stage in stages), lines


def test_fingerprints_tell_contents_apart(make, tmp_path):
    texts = make_text(50)
    found = {
        prepare(make(documents, f"store={tmp_path}/{number}", *overrides)).fingerprint
        for number, (documents, *overrides) in enumerate(
            [
                (texts,),
                (texts[::-1],),
                (texts[1:],),
                (texts, "tokenizer.size=190"),
                (texts, "corpus.heldout=0.5"),
            ]
        )
    }
    assert len(found) == 5
    assert prepare(make(texts, f"store={tmp_path}/again")).fingerprint in found


def test_text_to_store_of_wikipedia(make, tmp_path):
    """The sentences of the store are the text's words, all of them and in order."""
    path = DATA / "enwiki" / "enwiki-2014-part0.txt.xz"
    if not path.exists():
        pytest.skip(f"needs {path}")
    with lzma.open(path, "rt", encoding="utf-8") as file:
        text = file.read(400_000)
    text = text[: text.rindex("<doc ")]
    vocabulary = DATA / "vocab" / "bert_base_uncased_vocab.txt"
    overrides = ["corpus.format=wiki", f"tokenizer.path={vocabulary}"]
    store = prepare(make(text.encode(), *overrides))
    tokenizer = tokenizers.load(store.path / "tokenizer")
    found = {sum(document, ()) for name in stores.SPLITS for document in read(store.splits[name])}
    bodies = [block.split("\n", 2)[2] for block in text.split("</doc>\n")[:-1]]
    assert found == {tuple(tokenizer.encode([body])[0]) for body in bodies}


SIZES = {"unigram": 40, "bpe": 60, "byte_bpe": 300}


@pytest.mark.parametrize("kind", SIZES)
def test_other_kinds_of_vocabularies(make, tmp_path, kind):
    texts = make_text(200)
    size = f"tokenizer.size={SIZES[kind]}"
    one = prepare(make(texts, f"tokenizer.kind={kind}", size, "tokenizer.lowercase=False"))
    tokenizer = tokenizers.load(one.path / "tokenizer")
    encoded = [encode_lines(tokenizer.encode, text) for text in texts]
    split = one.splits["train"]
    assert read(split) == [document for document in encoded if document in read(split)]
    assert one.manifest["vocabulary"] == tokenizer.size
    # Given as a file the same vocabulary makes the same ids, whatever `kind` and `lowercase` say.
    (path,) = (path for path in (one.path / "tokenizer").iterdir() if path.name != "settings.json")
    place = f"store={tmp_path / 'two'}"
    two = prepare(make(texts, f"tokenizer.path={path}", place))
    assert (two.splits["train"].tokens == split.tokens).all()
    other = make(texts, f"tokenizer.path={path}", place, "tokenizer.kind=bpe", "tokenizer.size=7")
    preparing.open_or_refuse(other)
    other = make(texts, f"tokenizer.path={path}", place, "tokenizer.lowercase=False")
    preparing.open_or_refuse(other)


@pytest.mark.parametrize("kind", SIZES)
def test_rows_of_other_vocabularies_are_shown_readably(make, kind):
    changes = {"phases.main.length": 64, "model.positions": 64, "phases.main.batch": 4}
    changes |= {"phases.main.predictions": 9, "tokenizer.kind": kind, "tokenizer.size": SIZES[kind]}
    config = make(make_text(200), *(f"{key}={value}" for key, value in changes.items()))
    (row,) = inspect_batch.inspect(config, step=0, rows=1, log=lambda line: None)["rows"]
    assert row.count("{") > 3 and "{[MASK]<" in row and "▁" in row and "Ġ" not in row
    text = re.sub(r"\{(?:[^ ]*<)?([^ ]+)\}", r"\1", row.partition(": ")[2])
    words = text.replace(" ", "").replace("▁", " ").replace("[CLS]", " ").replace("[SEP]", " ")
    assert set(words.split()) <= set(WORDS)
