"""Log-probabilities of sentences: equal to one row at a time in NumPy, and to transformers; which pieces are masked."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from kits.runs import untrained
from kits.texts import PROSE

from bert_jax.convert import open_model
from bert_jax.errors import BadInput
from bert_jax.inference import batches, perplexity, token_scores
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.words import stops as stops_of_words

LONG = "model.max_length=96", "phases.main.length=96"
CAUSAL = "objective.name=causal_lm", "task.name=token_blocks"
# Rows of two lengths, and pieces of one word, of one character, and of punctuation.
TEXTS = ["Unreadable.", *PROSE[:3], " ".join(PROSE)[:200], "naïve 🙂🙂, well-known"]


def log_softmax(logits):
    logits = np.float64(logits)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def make_model(kind: str, *changes):
    sizes = {"wordpiece": 300, "byte_bpe": 400, "unigram": 230}
    return untrained(tokenizers.train(kind, PROSE, sizes[kind], True), *LONG, *changes)


def one_row(model, ids, output: str):
    """Returns the log-probabilities [L, V] or [P, V] of one row, without padding."""
    batch = batches.make_batch([[(ids, 0)]], len(ids))
    mask = model.vocabulary.mask
    batch = batches.add_masks(batch, mask, [[0] * ids.count(mask)])
    logits = model.objective.outputs(model.params, batch)[output][0, :, : model.vocabulary.size]
    return log_softmax(logits)


def score(model, texts=TEXTS, masking="word"):
    places = [f"line {number}" for number in range(len(texts))]
    return token_scores.score_sentences(model, texts, places, masking)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        (*CAUSAL, "model.name=gpt"),
        pytest.param(CAUSAL, marks=pytest.mark.full),
        pytest.param((*CAUSAL, "model.name=modernbert", "model.layers=2"), marks=pytest.mark.full),
    ],
)
def test_a_causal_score_is_the_sum_over_tokens_given_those_before(changes):
    model = make_model("wordpiece", *changes)
    assert model.can("continue")
    scores, sizes, unknown = score(model)
    ids = model.tokenizer.encode(TEXTS)
    assert sizes.tolist() == [*map(len, ids)] and len({-(-(size + 1) // 32) for size in sizes}) > 1
    assert unknown == sum(tokens.count(model.tokenizer.unk) for tokens in ids) > 0
    for score_of_text, tokens in zip(scores, ids, strict=True):
        row = [model.tokenizer.sep, *tokens]
        shares = one_row(model, row, "lm_logits")
        expected = sum(shares[place, token] for place, token in enumerate(tokens))
        assert score_of_text == pytest.approx(expected, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("masking", token_scores.MASKING)
@pytest.mark.parametrize(
    "kind",
    ["wordpiece", *(pytest.param(x, marks=pytest.mark.full) for x in ["byte_bpe", "unigram"])],
)
def test_a_masked_score_is_the_sum_over_tokens_that_are_masked_in_turn(kind, masking):
    model = make_model(kind)
    assert not model.can("continue")
    tokenizer = model.tokenizer
    texts = TEXTS[:2]
    scores, sizes, _ = score(model, texts, masking)
    ids = tokenizer.encode(texts)
    assert sizes.tolist() == [*map(len, ids)]
    for score_of_text, tokens in zip(scores, ids, strict=True):
        total = 0
        for place, token in enumerate(tokens):
            row = [tokenizer.cls, *tokens, tokenizer.sep]
            row[place + 1] = tokenizer.mask
            for later in range(place + 1, len(tokens)):
                piece = tokenizer.pieces[tokens[later]]
                # The texts have no punctuation within words.
                is_inside = piece.strip("#").isalpha() and not tokenizer.word_starts[tokens[later]]
                if masking == "token" or not is_inside:
                    break
                row[later + 1] = tokenizer.mask
            total += one_row(model, row, "mlm_logits")[0, token]
        assert score_of_text == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize(
    "kind, text, words",
    [
        ("wordpiece", "well-known cafés.", ["well", "-", "known", "cafes", "."]),
        ("byte_bpe", "well-known cafés. 🙂🙂", ["well", "-", "known", " cafés", ".", " 🙂", "🙂"]),
        ("unigram", "well-known words.", ["well", "-", "known", "words", "."]),
        ("byte_bpe", "यह हिन्दी है।", ["यह", " हिन्दी", " है", "।"]),  # vowel signs
        ("byte_bpe", "cafe\u0301s x", ["cafe\u0301s", " x"]),
        ("byte_bpe", "❤\ufe0fa", ["❤", "\ufe0f", "a"]),  # a mark of another character
    ],
)
def test_words_end_where_letters_and_digits_do(kind, text, words):
    """Few pieces: most words have several."""
    size = {"wordpiece": 150, "byte_bpe": 262, "unigram": 60}[kind]
    tokenizer = tokenizers.train(kind, [*PROSE, text], size, True)
    ((ids, offsets),) = tokenizer.encode_with_offsets([text])
    stops = stops_of_words(text, tokenizer.word_starts[ids], offsets)
    starts = [0, *sorted({*stops.tolist()})[:-1]]
    spelled = []
    for start in starts:
        spelled.append(tokenizer.decode(ids[start : stops[start]]).replace("##", ""))
    assert len(ids) > len(words)
    assert spelled == [word.strip() for word in words]


@pytest.mark.parametrize("changes", [(), CAUSAL])
def test_a_text_that_cannot_be_scored_is_named(changes):
    model = make_model("wordpiece", *changes)
    room = 94 + bool(changes)
    model = model._replace(objective=replace(model.objective, outputs=pytest.fail))
    for text in ("", " \t", "a " * (room + 1)):
        with pytest.raises(BadInput, match="line 1: "):
            score(model, ["fine", text])


def test_a_text_of_a_token_without_context_is_refused():
    model = make_model("wordpiece", *CAUSAL)
    assert score(model, ["fox"])[1] == [1]
    without_end = model._replace(vocabulary=model.vocabulary._replace(sep=None))
    with pytest.raises(BadInput, match="line 1: no sentence with a token"):
        score(without_end, ["the fox", "fox"])


def test_the_token_of_another_program_is_in_front():
    """As `<s>` of a model whose texts end with `</s>`."""
    model = make_model("wordpiece", *CAUSAL)
    other = model._replace(vocabulary=model.vocabulary._replace(bos=model.vocabulary.cls))
    assert token_scores.first_token(model) == "[SEP]"
    assert token_scores.first_token(other) == "[CLS]"
    scores, sizes, _ = score(other, ["fox"])
    row = [other.vocabulary.cls, *other.tokenizer.encode(["fox"])[0]]
    shares = one_row(other, row, "lm_logits")
    expected = sum(shares[place, token] for place, token in enumerate(row[1:]))
    assert scores[0] == pytest.approx(expected, abs=1e-4) and sizes == [len(row) - 1]
    assert scores[0] != pytest.approx(score(model, ["fox"])[0][0], abs=1e-4)
    values = perplexity.evaluate(other, ["fox"], 0)
    assert values["first_token"] == "[CLS]"
    assert values["nats_per_word"] == pytest.approx(-expected, abs=1e-4)


def test_a_score_that_is_no_number_is_refused():
    model = make_model("wordpiece", *CAUSAL)
    damaged = jax.tree.map(lambda array: array * np.nan, model.params)
    with pytest.raises(BadInput, match="line 0: .* nan"):
        score(model._replace(params=damaged), ["fine"])


def test_a_model_without_a_trained_language_model_is_refused():
    model = make_model("wordpiece", *CAUSAL)
    objective = model.objective
    other = model._replace(objective=replace(objective, can={}))
    fresh = model._replace(step=0, info={"fresh": ["lm"]})
    for refused in (other, fresh):
        with pytest.raises(BadInput, match="m: "):
            open_model.check_can("m", refused, "score")
    open_model.check_can("m", fresh._replace(step=1), "score")


@pytest.mark.full
@pytest.mark.parametrize("masking", token_scores.MASKING)
def test_scores_of_an_export_equal_those_by_transformers(tmp_path, masking):
    """A batch of all masked copies of a sentence, by transformers in float64."""
    import torch
    import transformers
    from kits.runs import make_run

    from bert_jax.cli import main

    make_run(tmp_path / "run", *LONG)
    assert main(["export", "--model", f"{tmp_path}/run", "--output", f"{tmp_path}/hf"]) == 0
    model = open_model.open_model(tmp_path / "hf")
    scores, *_ = score(model, TEXTS, masking)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "hf").double().eval()
    for text, ours in zip(TEXTS, scores, strict=True):
        encoded = tokenizer(text, return_tensors="pt")
        words = encoded.word_ids()
        (ids,) = encoded["input_ids"]
        rows, places = [], range(1, len(ids) - 1)
        for place in places:
            row = ids.clone()
            row[place] = tokenizer.mask_token_id
            for later in range(place + 1, len(ids) - 1):
                if masking == "word" and words[later] == words[place]:
                    row[later] = tokenizer.mask_token_id
            rows.append(row)
        with torch.no_grad():
            logits = theirs(torch.stack(rows)).logits
        shares = logits.log_softmax(-1)
        expected = sum(shares[n, place, ids[place]] for n, place in enumerate(places))
        assert ours == pytest.approx(float(expected), abs=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("begin", ["", "<s>"])
def test_causal_scores_of_an_export_equal_those_by_transformers(tmp_path, begin):
    """GPT-2's tokens and logits of each sentence alone, after <|endoftext|> or the token that begins texts, in
    float64."""
    import torch
    import transformers
    from kits import vocabularies
    from kits.runs import make_run

    from bert_jax.cli import main
    from bert_jax.tokenizers import huggingface

    library = vocabularies.gpt2_like()
    library.add_special_tokens(["<s>"])
    words = huggingface.from_library(library, "tokenizer.json", {"bos": begin})
    make_run(tmp_path / "run", *LONG, *CAUSAL, "model.name=gpt", words=words)
    assert main(["export", "--model", f"{tmp_path}/run", "--output", f"{tmp_path}/hf"]) == 0
    texts = [text[:60] for text in TEXTS]
    scores, sizes, _ = score(open_model.open_model(tmp_path / "hf"), texts)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf").double().eval()
    assert tokenizer.bos_token_id == theirs.config.bos_token_id
    assert (tokenizer.bos_token == "<s>") == bool(begin) and tokenizer.eos_token == "<|endoftext|>"
    for text, ours, size in zip(texts, scores, sizes, strict=True):
        ids = torch.tensor([tokenizer.bos_token_id, *tokenizer(text)["input_ids"]])
        with torch.no_grad():
            shares = theirs(ids[None]).logits[0].log_softmax(-1)
        assert len(ids) == size + 1
        expected = shares[:-1].gather(1, ids[1:, None]).sum()
        assert ours == pytest.approx(float(expected), abs=1e-4)
