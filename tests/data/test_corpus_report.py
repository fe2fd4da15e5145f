"""The corpus report: its numbers compared with a plain count, and its warnings."""

import random
import re
import shlex
from collections import Counter
from math import log

import numpy as np
import pytest
from kits.corpora import config_of
from kits.small import small_config, write_corpus
from kits.stores import random_documents, write_split
from kits.texts import published

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.data.preparation import prepare, report
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers import wordpiece
from bert_jax.tokenizers.special_tokens import SPECIAL

CLEAN = Counter(bytes=10**7, documents_read=20_000)


def make(directory) -> tuple[list, dict]:
    """Returns documents and their report; both splits have the same documents."""
    documents = random_documents(60, seed=3)
    sentences = [sentence for document in documents for sentence in document]
    ids, lengths = np.concatenate(sentences), list(map(len, sentences))
    arrays = ids.astype(np.uint16), np.cumsum(lengths), np.cumsum(list(map(len, documents)))
    for name in ("train", "heldout"):
        write_split(directory / name, *arrays)
    np.save(directory / "unigrams.npy", np.bincount(ids, minlength=1000)[None])
    pieces = [("##" if n % 3 == 0 else "") + f"word{n}" for n in range(995)]
    tokenizer = wordpiece.WordPiece([*SPECIAL.values(), *pieces], True)
    sources = [{"source": "made", "documents": {"train": 60, "heldout": 60}}]
    made = report.build(small_config(), directory, tokenizer, CLEAN, Counter(), sources)
    return documents, made


def test_numbers_equal_a_simple_count(tmp_path):
    documents, made = make(tmp_path)
    sentences = [sentence for document in documents for sentence in document]
    lengths = [sum(map(len, document)) for document in documents]
    counts, tokens = Counter(token for sentence in sentences for token in sentence), sum(lengths)
    assert made["train"] == {"documents": 60, "sentences": len(sentences), "tokens": tokens}
    expected = {
        "longest_document_share": max(lengths) / tokens,
        "single_sentence_share": sum(len(document) == 1 for document in documents) / 60,
        "mean_sentence": tokens / len(sentences),
        "unigram_entropy": -sum(n / tokens * log(n / tokens) for n in counts.values()),
        "unused_share": 1 - len(counts) / 995,
    }
    assert {key: made[key] for key in expected} == pytest.approx(expected)


def problem(reason: str, number: int, size: int) -> dict[str, int]:
    return {reason: number, f"bytes of {reason}": size}


@pytest.mark.parametrize(
    "name, changes, override",
    [
        ("", {}, "seed=0"),
        ("short_documents", {"single_sentence_share": 0.3}, "seed=0"),
        ("", {"single_sentence_share": 0.3}, "task.pair_task=none"),
        ("wrapped_lines", {"wrapped_share": 0.3}, "seed=0"),
        ("", {"wrapped_share": 0.3}, "corpus.sentences=wrapped"),
        ("unknown_pieces", {"unknown_share": 0.02}, "seed=0"),
        ("cased_vocabulary", {"altered_share": 0.02}, "tokenizer.path=vocab.txt"),
        ("stripped_marks", {"stripped_share": 0.02}, "seed=0"),
        ("stripped_marks", {"stripped_share": 0.02}, "tokenizer.path=vocab.txt"),
        ("unused_pieces", {"unused_share": 0.6}, "tokenizer.path=vocab.txt"),
        ("", {"unused_share": 0.6}, "tokenizer.kind=bytes"),
        ("", {"problems": problem("lines not UTF-8", 500, 90_000)}, "seed=0"),
        ("few_heldout", {"heldout": {"documents": 1}}, "seed=0"),
        ("", {"heldout": {"documents": 1}}, "corpus.heldout_by=end"),
        ("dropped_lines", {"problems": problem("lines not UTF-8", 1, 200_000)}, "seed=0"),
        ("dropped_records", {"problems": problem("records over 16 MB", 1, 200_000)}, "seed=0"),
        ("dropped_records", {"problems": problem("records without 'MB'", 9, 200_000)}, "seed=0"),
        ("dropped_cuts", {"problems": problem("cuts in lines over 1 MB", 1, 200_000)}, "seed=0"),
        ("", {"problems": problem("lines without a stop", 500, 900_000)}, "seed=0"),
        ("literals", {"problems": problem("literal <unk>", 3, 15)}, "seed=0"),
        ("unused_pieces", {"unused_share": 0.6}, "seed=0"),
        ("unknown_pieces", {"unknown_share": 0.02}, "tokenizer.path=vocab.txt"),
    ],
)
def test_a_warning_names_the_key_to_change(tmp_path, name, changes, override):
    """An empty `name` expects no warning."""
    _, made = make(tmp_path)
    assert [each["name"] for each in made["warnings"]] == ["few_tokens"]
    many = {"documents": 20_000, "sentences": 100_000, "tokens": 10**7}
    made |= {"train": many, "heldout": many} | changes
    warnings = list(report.find_warnings(small_config(*override.split()), made))
    assert [name for name, *_ in warnings] == ([name] if name else [])
    for _, _, remedy in warnings:
        keys = re.findall(r"config\.([a-z_.]+[a-z])", remedy)
        assert keys and set(keys) <= set(configs.flatten(configs.base()))
        assert ("tokenizer.path=''" in remedy) <= ("tokenizer.path" in override)
        assert ("blank lines" in remedy) <= ("config.corpus.format=lines" in remedy)


EXACT = "model.name=gpt objective.name=causal_lm task.name=token_blocks corpus.sentences=none"


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "byte_bpe", "bytes"])
@pytest.mark.parametrize("keys", ["corpus.sentences=lines", EXACT])
def test_pieces_are_counted_for_each_word_between_white_space(tmp_path, kind, keys):
    """Whatever a vocabulary takes for a word; of all documents that are read."""
    texts = [f"The cat's  {n} (small)\tcats,\nsaid É{n}é." for n in range(40)]
    size = 60 if kind == "unigram" else 300
    keys = [*keys.split(), f"tokenizer.kind={kind}", f"tokenizer.size={size}"]
    config = config_of(tmp_path, texts, *keys)
    values = prepare.prepare(config, lambda line: None)
    tokens = values["train"]["tokens"] + values["heldout"]["tokens"]
    assert values["pieces_per_word"] == tokens / sum(len(text.split()) for text in texts)


HINDI = "मैं कल दिल्ली जाऊँगा और पानी पी रही है"


def documents_of(words: list[str]) -> list[str]:
    draw = random.Random(1)
    return [" ".join(draw.choices(words, k=20)) for _ in range(40)]


@pytest.mark.parametrize(
    "words, key, share, least, warning",
    [
        ("the cat saw a dog", "seed=0", "unknown_share", 0, None),
        ("the cat saw a dog", "seed=0", "stripped_share", 0, None),
        (f"word {'ก' * 101}", "seed=0", "unknown_share", 0.9, "unknown_pieces"),
        (HINDI, "seed=0", "stripped_share", 0.1, "stripped_marks"),
        (HINDI, "tokenizer.lowercase=False", "stripped_share", 0, None),
        (HINDI, "tokenizer.kind=byte_bpe", "stripped_share", 0, None),
        ("שָׁלוֹם עוֹלָם", "seed=0", "stripped_share", 0.2, "stripped_marks"),
        ("The Cat", "tokenizer.path=cased.txt", "altered_share", 0.3, "cased_vocabulary"),
        ("the cat", "tokenizer.path=cased.txt", "altered_share", 0.3, "cased_vocabulary"),
    ],
)
def test_text_that_vanishes_is_reported(tmp_path, monkeypatch, words, key, share, least, warning):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cased.txt").write_text(
        "\n".join([*SPECIAL.values(), "The", "Cat", "##s", "the", "cat"])
    )
    config = config_of(tmp_path, documents_of(words.split()), "tokenizer.size=300", key)
    values = prepare.prepare(config, lambda line: None)
    assert least <= values[share] <= (least and 1)
    names = {each["name"] for each in values["warnings"]}
    of_shares = {"unknown_pieces", "stripped_marks", "cased_vocabulary"}
    assert names & of_shares == ({warning} if warning else set())


@pytest.mark.parametrize(
    "name, is_cased", [("uncased", False), ("chinese", False), ("cased", True)]
)
def test_published_uncased_vocabularies_are_not_taken_for_cased_ones(name, is_cased):
    tokenizer = tokenizers.from_file(published(f"bert_base_{name}_vocab.txt"), True)
    share = report.share_altered(tokenizer)
    assert (share > 0.3) if is_cased else (share < 0.002)


@pytest.mark.full
def test_the_command_can_be_pasted(tmp_path, capsys):
    """The recommended command changes the config that was given, which has the same store."""
    write_corpus(tmp_path / "it's a corpus.txt", documents=60)
    place = f"--config.store={tmp_path}/store"
    keys = [f"--config.corpus.source={tmp_path}/it's a corpus.txt", "--config.corpus.heldout=0.2"]
    keys += ["--config.tokenizer.size=200", "--config.task.masking=whole_word", place]
    assert cli.main(["prepare", "--config", "demo", *keys]) == 0
    text = capsys.readouterr().out
    command = re.search(r"bert-jax pretrain (.*\\\n)+.*", text)[0].replace("\\\n", " ")
    rest, overrides = cli.split_overrides(shlex.split(command))
    assert " ".join(rest).startswith("bert-jax pretrain --config demo --workdir runs/demo_10min")
    config = configs.load(rest[3], overrides)
    assert config.task.masking == "whole_word" and config.phases.main.steps < 1820
    assert re.search(r"\d+ (seconds )?of 10 minutes on this machine", text)
    assert prepare.open_matching(config)[0].path == tmp_path / "store"
