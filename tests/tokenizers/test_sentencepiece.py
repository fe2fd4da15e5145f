"""Ids equal those of the sentencepiece library; external models keep their pieces, and get more if asked."""

import re

import numpy as np
import pytest
import sentencepiece
from kits.texts import (
    DIFFICULT,
    PROSE,
    as_documents,
    check_corpus_encoder,
    manual_lines,
    odd_lines,
    published,
)
from kits.vocabularies import make_model, save_and_open

from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.training import Training

KINDS = pytest.mark.parametrize("kind", ["unigram", "bpe"])


def check_library(ours, model: bytes, texts: list[str], is_exact: bool = True) -> None:
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert ours.encode(texts) == theirs.encode(texts)
    check_corpus_encoder(ours, texts, theirs.encode, is_exact)


@KINDS
def test_ids_of_a_trained_model_equal_the_library(tmp_path, kind):
    texts = manual_lines(2000)
    tokenizers.train(kind, texts, 3000, True).save(tmp_path)
    path = tmp_path / "sentencepiece.model"
    check_library(tokenizers.from_file(path, True), path.read_bytes(), texts + DIFFICULT)


@pytest.mark.parametrize("number", [1000, pytest.param(20_000, marks=pytest.mark.full)])
def test_ids_of_alberts_model_equal_the_library(number):
    path = published("albert_spiece_30k.model")
    tokenizer = tokenizers.from_file(path, True)
    assert tokenizer.special == {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
    check_library(tokenizer, path.read_bytes(), odd_lines(number) + DIFFICULT, is_exact=False)


@KINDS
def test_text_keeps_its_characters_without_normalization(tmp_path, kind):
    texts = ["m² … ﬁn ½ ｶﾞ the", "ﬁ ² … e\u0301", *PROSE]
    for normalization in ("identity", "nfkc"):
        tokenizer = tokenizers.train(kind, texts, 120, False, False, Training(normalization))
        decoded = [*map(tokenizer.decode, tokenizer.encode(texts))]
        assert (decoded == texts) == (normalization == "identity")
        tokenizer.save(tmp_path)
        check_library(tokenizer, (tmp_path / "sentencepiece.model").read_bytes(), texts + DIFFICULT)


@KINDS
def test_ids_of_all_keys_of_training_equal_the_library(tmp_path, kind):
    texts = manual_lines(1000) + ["in 1984, 12 鱼🙂"]
    keys = {"split_digits": True, "byte_fallback": True, "special": "mask,cls,pad,unk,sep"}
    training = Training(**keys, coverage=0.99)
    tokenizers.train(kind, texts, 2000, False, False, training).save(tmp_path)
    ours = tokenizers.load(tmp_path)
    check_library(ours, (tmp_path / "sentencepiece.model").read_bytes(), texts + DIFFICULT)
    assert not any(ours.unk in ids for ids in ours.encode(texts))


def test_missing_special_tokens_are_appended_if_asked(tmp_path):
    """Like LLaMA's model: <unk> 0, <s> 1, </s> 2 and bytes for unknown characters; no padding, no mask."""
    model = make_model(model_type="bpe", vocab_size=400, byte_fallback=True)
    plain = save_and_open(tmp_path, model)
    assert plain.special == {"unk": 0, "cls": 1, "sep": 2}
    check_library(plain, model, PROSE)
    tokenizer = save_and_open(tmp_path, model, add_special=True)
    size = sentencepiece.SentencePieceProcessor(model_proto=model).piece_size()
    assert plain.pieces == tokenizer.pieces[:size]
    assert tokenizer.special == {"pad": size, "unk": 0, "cls": 1, "sep": 2, "mask": size + 1}
    assert tokenizer.pieces[-2:] == ["[PAD]", "[MASK]"]
    check_library(tokenizer, model, PROSE + DIFFICULT)
    assert tokenizer.encode_with_masks("the [MASK] fox").count(tokenizer.mask) == 1


def test_special_tokens_are_found_by_the_models_own_names(tmp_path):
    pieces = {"pad_id": 3, "pad_piece": "<nothing>", "bos_piece": "<begin>", "eos_piece": "<end>"}
    tokenizer = save_and_open(tmp_path, make_model(**pieces, control_symbols=["[CLS]", "<mask>"]))
    found = {name: tokenizer.pieces[number] for name, number in tokenizer.special.items()}
    expected = {"pad": "<nothing>", "unk": "<unk>", "cls": "[CLS]", "sep": "<end>"}
    assert found == expected | {"mask": "<mask>"}
    assert tokenizer.encode_with_masks("<mask> [CLS]") == [tokenizer.mask, tokenizer.cls]


@pytest.mark.parametrize("settings", [{"split_by_whitespace": False}, {"add_dummy_prefix": False}])
def test_documents_are_encoded_whole_if_words_are_not_independent(tmp_path, settings):
    model = make_model(vocab_size=900, **settings)
    tokenizer, documents = save_and_open(tmp_path, model), as_documents(PROSE + DIFFICULT)
    expected = tokenizer.encode([" ".join(document) for document in documents])
    ids, ends = tokenizer.corpus_encoder()(documents)
    assert ids.tolist() == [number for text in expected for number in text]
    assert (np.diff(ends) >= 0).all() and ends[-1] == len(ids)
    by_sentence = tokenizer.encode([sentence for document in documents for sentence in document])
    assert ids.tolist() != [number for text in by_sentence for number in text]


def test_user_defined_special_tokens_are_not_read_from_text(tmp_path):
    model = make_model(user_defined_symbols=["<mask>", "[SEP]", "<other>"])
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    text = "the <mask> fox[SEP] <other>"
    assert theirs.piece_to_id("<mask>") in theirs.encode(text)
    tokenizer = save_and_open(tmp_path, model)
    special = set(tokenizer.special.values()) - {tokenizer.unk}
    ids, cached = tokenizer.encode([text])[0], tokenizer.corpus_encoder()([[text]])[0]
    assert not special & set(ids) and ids == cached.tolist() and ids.count(tokenizer.unk) == 2
    assert theirs.piece_to_id("<other>") in ids


@KINDS
@pytest.mark.parametrize("texts, size", [(PROSE, 9999), (PROSE, 9), (["", " \n "], 100)])
def test_sizes_that_do_not_fit_the_text_are_refused(kind, texts, size, capfd):
    with pytest.raises(BadInput, match=f"config.tokenizer.size={size}") as error:
        tokenizers.train(kind, texts, size, True)
    assert capfd.readouterr() == ("", "")
    if texts is PROSE:  # the size that the message names works; it names no option of the library
        assert not {"--", "vocab_size"} & {*re.findall(r"--|\w+", str(error.value))}
        enough = int(str(error.value).split()[-1])
        assert tokenizers.train(kind, texts, enough, True).size == enough


def test_scores_of_unigram_models_add_up_exactly_in_float32():
    """Otherwise rounding would decide ties, differently at different positions of a line."""
    processor = tokenizers.train("unigram", PROSE, 200, True).processor
    scores = [processor.get_score(number) * 256 for number in range(processor.piece_size())]
    assert all(score == round(score) for score in scores) and len(set(scores)) > 50


@KINDS
def test_long_lines_and_unusual_characters_can_be_trained_on(kind, capfd):
    words = " ".join(f"dro{a}{b}" for a in "aeiou" for b in "bcdfg")
    texts = [" ".join([words] * 500), "鱼" * 20_000, *DIFFICULT, "a\x00b ▁ \u2585 c"]
    tokenizer = tokenizers.train(kind, texts, 120, True)
    assert tokenizer.unk not in tokenizer.encode(["drobab 鱼鱼"])[0]
    assert capfd.readouterr() == ("", "")
