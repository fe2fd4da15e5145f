"""The corpus report: its numbers against a plain count, a caution for each corpus that calls for one."""

import json
import re
import shlex
from collections import Counter
from math import log

import numpy as np
import pytest
from kits.small import small_config, write_corpus
from kits.stores import random_documents, write_split

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.data import prepare
from bert_jax.data.reports import measures, report
from bert_jax.tokenizers import wordpiece
from bert_jax.tokenizers.special import SPECIAL
from bert_jax.tokenizers.tokenizer import Tokenizer

CLEAN = report.Counted(10**7, 20_000, 0, 0, 0, {}, 0, 0.0, [])
ORDINARY = 200


def make_tokenizer(pieces=None) -> Tokenizer:
    pieces = pieces or [f"word{number}" for number in range(ORDINARY)]
    return Tokenizer(wordpiece.WordPiece([*SPECIAL.values(), *pieces], True))


def write(directory, train, tokenizer, heldout=None) -> list[dict]:
    """Writes documents as prepare does, of one source: (ids, tokens of each sentence, sentences of each document)."""
    for name, (ids, sentences, documents) in (("train", train), ("heldout", heldout or train)):
        write_split(
            directory / name, ids.astype(np.uint16), np.cumsum(sentences), np.cumsum(documents)
        )
    np.save(directory / "unigrams.npy", np.bincount(train[0], minlength=tokenizer.size)[None])
    arrays = {"documents": 2, "tokens": 0}
    both = (("train", train), ("heldout", heldout or train))
    counts = {what: {name: len(split[k]) for name, split in both} for what, k in arrays.items()}
    return [{"source": "made", "format": "lines", **counts}]


def make(config, directory, tokenizer, counted, sources) -> dict:
    numbers = report.measure(directory, tokenizer, counted, sources)
    return report.make(config, directory, tokenizer, numbers)


def flat(documents) -> tuple:
    sentences = [sentence for document in documents for sentence in document]
    lengths = [len(sentence) for sentence in sentences], [len(document) for document in documents]
    return np.concatenate(sentences), *map(np.array, lengths)


def test_numbers_are_those_of_a_plain_count(tmp_path, monkeypatch):
    """In parts of seven lengths, so that parts meet."""
    monkeypatch.setattr(measures, "PART", 7)
    documents = random_documents(60, seed=3)
    pieces = [("##" if n % 3 == 0 else "") + "x" * (n % 17 + 1) + str(n) for n in range(995)]
    tokenizer = make_tokenizer(pieces)
    sources = write(tmp_path, flat(documents), tokenizer, flat(documents[:9]))
    made = make(small_config(), tmp_path, tokenizer, CLEAN, sources)
    sentences = [sentence for document in documents for sentence in document]
    tokens = [piece for sentence in sentences for piece in sentence]
    lengths = [sum(map(len, document)) for document in documents]
    assert made["train"] == {"documents": 60, "sentences": len(sentences), "tokens": len(tokens)}
    assert made["heldout"]["documents"] == 9
    assert made["document_lengths"] == plain_bins(lengths)
    assert made["sentence_lengths"] == plain_bins(map(len, sentences))
    assert made["longest_document_share"] == max(lengths) / len(tokens)
    assert made["single_sentence_share"] == sum(len(d) == 1 for d in documents) / 60
    assert made["mean_sentence"] == len(tokens) / len(sentences)
    counts = Counter(tokenizer.pieces[piece] for piece in tokens)
    starts = sum(number for piece, number in counts.items() if not piece.startswith("##"))
    assert made["pieces_per_word"] == pytest.approx(len(tokens) / starts)
    entropy = -sum(n / len(tokens) * log(n / len(tokens)) for n in counts.values())
    assert made["unigram_entropy"] == pytest.approx(entropy)
    assert made["unused_share"] == pytest.approx(1 - len(counts) / 995)
    longest = sorted((len(piece.removeprefix("##")) for piece in counts), reverse=True)[:10]
    assert [len(piece.removeprefix("##")) for piece, _ in made["longest_pieces"]] == longest
    assert all(counts[piece] == number for piece, number in made["longest_pieces"])
    commonest = [number / len(tokens) for _, number in counts.most_common(10)]
    assert [share for _, share in made["commonest_pieces"]] == pytest.approx(commonest)
    first = made["first_documents"][1]
    assert (first["sentences"], first["tokens"]) == (len(documents[1]), lengths[1])
    assert first["shown"] == [
        " ".join(tokenizer.pieces[piece] for piece in sentence) for sentence in documents[1][:3]
    ]
    assert json.loads(json.dumps(made)) == made


def plain_bins(lengths) -> list:
    powers = Counter(int(length).bit_length() - 1 for length in lengths)
    return [[2**k, powers[k]] for k in range(min(powers), max(powers) + 1)]


def test_weights_are_those_of_an_epoch(tmp_path):
    """One source read three times, the other once, is as if the first one stood three times in the corpus."""
    tokenizer = make_tokenizer()
    first, second = np.array([1, 5, 5, 6]), np.array([6, 7, 8, 9, 9, 10])
    write(
        tmp_path, (np.concatenate([first, second]), np.array([4, 6]), np.array([1, 1])), tokenizer
    )
    rows = [np.bincount(ids, minlength=tokenizer.size) for ids in (first, second)]
    np.save(tmp_path / "unigrams.npy", np.stack(rows))
    sources = [
        {"source": name, "format": "lines", "documents": {"train": 1}, "tokens": {"train": number}}
        for name, number in (("a", 4), ("b", 6))
    ]
    config = small_config("corpus.source=a,b", "corpus.weights=(3,1)")
    made = make(config, tmp_path, tokenizer, CLEAN, sources)
    once = np.bincount(np.concatenate([first, second]))  # the entropy is of the text as it is
    shares = once[once > 0] / 10
    assert made["unigram_entropy"] == pytest.approx(-(shares * np.log(shares)).sum())
    assert made["unknown_share"] == pytest.approx(3 / 18)
    assert [source["share"] for source in made["sources"]] == pytest.approx([12 / 18, 6 / 18])
    text = "\n".join(report.describe(made))
    assert "a: 4 training tokens, read 3 times an epoch: 66.7% of" in text


# --- Cautions -------------------------------------------------------------------------------------


def corpus(documents=12_000, sentences=10, length=10, pieces=ORDINARY, unknown=0.0) -> tuple:
    """Documents of equal shape and random ids: at their defaults a corpus with nothing to say against it."""
    sizes = np.broadcast_to(sentences, documents)
    lengths = np.full(sizes.sum(), length)
    draw = np.random.default_rng(0)
    ids = draw.integers(5, 5 + pieces, lengths.sum())
    return np.where(draw.random(len(ids)) < unknown, 1, ids), lengths, sizes


LARGEST = np.concatenate([[30_000], np.full(9000, 10)])
CAUTIONS = {
    "short_documents": (dict(documents=120_000, sentences=1), {}, ()),
    "large_document": (dict(documents=len(LARGEST), sentences=LARGEST), {}, ()),
    "long_sentences": (dict(documents=1200, length=101), {}, ()),
    "few_tokens": (dict(documents=9_000), {}, ()),
    "unknown_pieces": (dict(unknown=0.02), {}, ()),
    "unused_pieces": (dict(pieces=90), {}, ("tokenizer.path=vocab.txt",)),
    "parted_documents": ({}, dict(problems={"documents parted": 1}), ()),
    "repeated_sentences": ({}, dict(repeated_share=0.02, most_repeated=[[900, "Read on"]]), ()),
    "duplicates": ({}, dict(duplicates=5000), ()),
    "near_duplicates": ({}, dict(near_duplicates=5000), ()),
    "dropped_lines": ({}, dict(problems={"lines not UTF-8": 5000}), ()),
    "dropped_documents": ({}, dict(problems={"documents of another kind": 2000}), ()),
}
SILENT = {
    "nothing": ({}, {}, ()),
    "documents for no pairs": (
        dict(documents=120_000, sentences=1),
        {},
        ("objective.pairs=none",),
    ),
    "own vocabulary": (dict(pieces=90), {}, ()),
    "a few of each": (
        dict(unknown=0.005),
        dict(
            duplicates=3000,
            near_duplicates=3000,
            repeated_share=0.005,
            problems={"lines not UTF-8": 500, "documents of another kind": 50},
        ),
        (),
    ),
    "lines that were to go": (
        {},
        dict(problems={"lines under 20 characters": 50_000}),
        ("filter.line_characters=20",),
    ),
}


def cautions(directory, shape, counted, overrides, tokenizer=None, form="lines") -> list[dict]:
    tokenizer = tokenizer or make_tokenizer()
    sources = write(directory, corpus(**shape), tokenizer, corpus(documents=60))
    sources[0]["format"] = form
    counted = CLEAN._replace(**counted)
    made = make(small_config(*overrides), directory, tokenizer, counted, sources)
    lines = report.describe(made)
    for each in made["warnings"]:
        assert f"warning: {each['what']}; {each['remedy']}" in lines
    return made["warnings"]


@pytest.mark.parametrize("name", CAUTIONS)
def test_a_caution_with_its_remedy(tmp_path, name):
    [caution] = cautions(tmp_path, *CAUTIONS[name])
    assert caution["name"] == name
    keys = re.findall(r"config\.([a-z_.]+[a-z])", caution["remedy"])
    assert keys and set(keys) <= set(configs.flatten(configs.base()))
    assert re.search(r"\d", caution["what"])


@pytest.mark.parametrize("name", SILENT)
def test_no_caution(tmp_path, name):
    assert not cautions(tmp_path, *SILENT[name])


def test_few_heldout_documents(tmp_path):
    tokenizer = make_tokenizer()
    sources = write(tmp_path, corpus(), tokenizer, corpus(documents=49))
    made = make(small_config(), tmp_path, tokenizer, CLEAN, sources)
    assert [(each["name"], each["number"]) for each in made["warnings"]] == [("few_heldout", 49)]


@pytest.mark.parametrize(
    "reason, number, override, remedy",
    [
        ("lines under 20 characters", 200_000, "filter.line_characters=20", None),
        ("lines of symbols", 200_000, "filter.line_symbols=0.5", None),
        ("lines without a stop", 200_000, "filter.line_stops=True", None),
        ("documents under 200 characters", 20_000, "filter.document_characters=200", None),
        ("documents of repeated sentences alone", 20_000, "filter.repeats=7", None),
        ("lines without 'text'", 500, "corpus.format=jsonl", "is config.corpus.field the key"),
        ("lines not JSON", 500, "corpus.format=jsonl", "is config.corpus.format right"),
        ("lines over 1 MB", 5_000, "seed=1", "with line breaks"),
    ],
)
def test_what_was_dropped_and_why(tmp_path, reason, number, override, remedy):
    """Half is much for a filter that was asked for, a hundredth for what nobody asked for."""
    [caution] = cautions(tmp_path, {}, dict(problems={reason: number}), (override,))
    assert (remedy or f"change config.{override}") in caution["remedy"]
    assert f"{number:,} {reason}" in caution["what"]
    assert not cautions(tmp_path / "less", {}, dict(problems={reason: number // 5}), (override,))


def test_shares_are_of_all_that_was_there(tmp_path):
    """Beside ten times as many lines that a filter leaves out, 5,000 are no hundredth."""
    problems = {"lines under 20 characters": 600_000, "lines not UTF-8": 5000}
    [caution] = cautions(tmp_path, {}, dict(problems=problems), ("filter.line_characters=20",))
    assert caution["number"] == pytest.approx(600_000 / (605_000 + 10 * (12_000 + 60)))
    assert "600,000 lines" in caution["what"]


def test_a_source_that_gives_nothing(tmp_path):
    tokenizer = make_tokenizer()
    sources = write(tmp_path, corpus(), tokenizer, corpus(documents=60))
    none = {"documents": {"train": 0, "heldout": 3}, "tokens": {"train": 0, "heldout": 9}}
    sources += [sources[0] | none | {"source": name} for name in ("b.txt", "c.txt")]
    counts = np.load(tmp_path / "unigrams.npy")
    np.save(tmp_path / "unigrams.npy", np.concatenate([counts, 0 * counts, 0 * counts]))
    found = make(small_config(), tmp_path, tokenizer, CLEAN, sources)["warnings"]
    assert [each["what"].split()[0] for each in found] == ["b.txt", "c.txt"]
    assert all("config.corpus.source" in each["remedy"] for each in found)


@pytest.mark.parametrize("form, asked", [("lines", True), ("jsonl", False), ("text", False)])
def test_blank_lines_part_documents_of_lines_alone(tmp_path, form, asked):
    [caution] = cautions(tmp_path, *CAUTIONS["parted_documents"], form=form)
    assert ("blank lines" in caution["remedy"]) == asked


def test_a_repeated_sentence_is_shown_by_its_beginning(tmp_path):
    tokenizer = make_tokenizer()
    sources = write(tmp_path, corpus(), tokenizer, corpus(documents=60))
    counted = CLEAN._replace(repeated_share=0.02, most_repeated=[[900, "Read on " * 250]])
    lines = report.describe(make(small_config(), tmp_path, tokenizer, counted, sources))
    shown = [line for line in lines if "Read on Read on" in line]
    assert len(shown) == 2 and max(map(len, shown)) < 300


def test_many_pieces_a_word_where_words_have_spaces(tmp_path):
    halves = {
        "latin": [("##" if n > 60 else "") + f"ab{n}" for n in range(ORDINARY)],
        "chinese": [("##" if n > 60 else "") + chr(0x4E00 + n) for n in range(ORDINARY)],
    }
    found = {
        name: [
            each["name"] for each in cautions(tmp_path / name, {}, {}, (), make_tokenizer(pieces))
        ]
        for name, pieces in halves.items()
    }
    assert found == {"latin": ["many_pieces"], "chinese": []}


# --- From text ------------------------------------------------------------------------------------


def test_the_command_can_be_pasted(tmp_path, capsys):
    """What it says is a config of the same store."""
    write_corpus(tmp_path / "it's a corpus.txt", documents=60)
    options = {
        "corpus.source": tmp_path / "it's a corpus.txt",
        "corpus.workers": 1,
        "corpus.heldout": 0.2,
        "tokenizer.size": 200,
        "objective.pairs": "sop",
        "objective.masking": "whole_word",
        "store": tmp_path / "store",
    }
    keys = [f"--config.{key}={value}" for key, value in options.items()]
    assert cli.main(["prepare", "--config", "demo", *keys]) == 0
    text = capsys.readouterr().out
    command = re.search(r"bert-jax pretrain (.*\\\n)+.*", text)[0].replace("\\\n", " ")
    rest, overrides = cli.split_overrides(shlex.split(command))
    assert rest[:4] == ["bert-jax", "pretrain", "--config", "bert_tiny"]
    config = configs.load(rest[3], overrides)
    assert (config.objective.pairs, config.objective.masking) == ("sop", "whole_word")
    assert prepare.open_or_refuse(config).manifest["splits"]["heldout"]["documents"] == 12
    assert "warning: 12 documents are held out" in text
    keys = [f"--config.{key}" for key in overrides]
    assert cli.main(["inspect", "--step", "0", *rest[2:4], *keys]) == 0
    assert "[SEP]" in capsys.readouterr().out  # rows as the run would see them


def test_lines_parted_by_blank_lines_are_no_documents(tmp_path):
    write_corpus(tmp_path / "corpus.txt", documents=60)
    lines = (tmp_path / "corpus.txt").read_text().replace("\n", "\n\n")
    (tmp_path / "lines.txt").write_text(lines)
    made = {}
    for name in ("corpus", "lines"):
        source = f"corpus.source={tmp_path}/{name}.txt"
        config = small_config(source, f"store={tmp_path}/{name}", "tokenizer.size=100")
        made[name] = prepare.prepare(config, lambda line: None)
    short = {name: {each["name"] for each in made[name]["warnings"]} for name in made}
    assert short["lines"] - short["corpus"] == {"short_documents"}
    assert "objective.pairs=none" in made["lines"]["recommendation"]["overrides"]
