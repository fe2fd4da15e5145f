"""Words added to a vocabulary: means of their pieces, everything else bit for bit as it was."""

import jax
import numpy as np
import pytest
from kits import outside

from bert_jax.commands import load_model
from bert_jax.convert import names, new_words
from bert_jax.data import batch
from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer

WRITE = {"huggingface": outside.write_huggingface, "google": outside.write_google}


@pytest.fixture(scope="module", params=WRITE)
def source(request, tmp_path_factory):
    place = tmp_path_factory.mktemp(request.param) / "model"
    return load_model.read_source(WRITE[request.param](place))


def extend(source, tmp_path, text):
    path = tmp_path / "words.txt"
    path.write_text(text, encoding="utf-8")
    return new_words.extend(source, path)


def table(source) -> list:
    """The names of the two tables that have a row a piece."""
    items = names.parameters(source.settings["layers"])
    return [getattr(item, source.format) for item in items if item.padded]


def open_source(source):
    return load_model.open_source(source, None, ["dtype=float32"])


def test_new_rows_are_means_and_old_ones_stay(source, tmp_path):
    extended, report = extend(source, tmp_path, "unable\nriverbank\n\nwalks\n")
    assert report == {"added": 3, "known": 0, "repeated": 0, "unknown": 0}
    assert extended.pieces == extended.tokenizer.size == source.pieces + 3
    cuts = [["un", "##able"], ["river", *"##b ##a ##n ##k".split()], ["walk", "##s"]]
    for name in table(source):
        before, after = source.load(name), extended.load(name)
        assert after.dtype == np.float32 and after.shape == extended.shapes[name]
        assert after[: len(before)].tobytes() == before.tobytes()
        for row, cut in zip(after[len(before) :], cuts, strict=True):
            rows = before[[outside.PIECES.index(piece) for piece in cut]]
            assert np.all(row == rows.mean(0, dtype=np.float32))
    for name in source.shapes.keys() - set(table(source)):
        assert extended.load(name).tobytes() == source.load(name).tobytes()
    assert source.pieces == len(outside.PIECES)  # what was given is as it was


def test_new_words_are_one_id_and_other_texts_are_cut_as_before(source, tmp_path):
    extended, _ = extend(source, tmp_path, "Unable\nrivière\n")
    first = source.pieces
    assert extended.tokenizer.encode(["UNABLE, Riviere", "unable."]) == [
        [first, outside.PIECES.index(","), first + 1],
        [first, outside.PIECES.index(".")],
    ]
    texts = ["the old river bank walks.", "un able rivers", "[MASK] 12 x", ""]
    assert extended.tokenizer.encode(texts) == source.tokenizer.encode(texts)
    assert extended.tokenizer.special == source.tokenizer.special


def test_words_that_are_pieces_or_come_twice_are_counted(source, tmp_path):
    text = "bank\nUnable\r\nunable\n  walks \nthe\nbank\nunäble\n"
    extended, report = extend(source, tmp_path, text)
    assert report == {"added": 2, "known": 2, "repeated": 3, "unknown": 0}
    assert extended.tokenizer.pieces[source.pieces :] == ["unable", "walks"]


def test_a_word_without_pieces_starts_as_the_unknown_one(source, tmp_path):
    extended, report = extend(source, tmp_path, "жук\n")
    assert report["unknown"] == 1
    name = table(source)[0]
    assert (extended.load(name)[-1] == source.load(name)[outside.PIECES.index("[UNK]")]).all()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("river\nold bank\n", "words.txt:2: 'old bank' is 2 words by BERT's rules (old bank)"),
        ("un-able", "words.txt:1: 'un-able' is 3 words"),
        ("##able", "words.txt:1: '##able' is 3 words"),
        ("[MASK]", "words.txt:1: '[MASK]' is 3 words"),
        ("\n\n銀行", "words.txt:3: '銀行' is 2 words"),
        ("\u0007", "words.txt:1: '\\x07' is 0 words"),
        ("a" * 101, "words.txt:1: 101 characters"),
    ],
)
def test_what_is_not_one_word_is_refused(text, expected, source, tmp_path):
    with pytest.raises(BadInput) as caught:
        extend(source, tmp_path, text)
    assert expected in str(caught.value) and "\n" not in str(caught.value)


def test_files_that_cannot_be_read_are_refused(source, tmp_path):
    with pytest.raises(BadInput, match="words.txt: cannot be read"):
        new_words.extend(source, tmp_path / "words.txt")
    (tmp_path / "words.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(BadInput, match="words.txt: not UTF-8"):
        new_words.extend(source, tmp_path / "words.txt")


def test_other_tokenizers_are_refused(source, tmp_path):
    words = tokenizer.train("byte_bpe", ["a few words"], 300, lowercase=True)
    with pytest.raises(BadInput, match="words are added to WordPiece alone"):
        extend(source._replace(tokenizer=words), tmp_path, "unable")


def test_a_source_without_the_head_has_no_bias_to_grow(tmp_path):
    parts = outside.make_tensors(parts=("encoder", "pooler"))
    found = load_model.read_source(outside.write_huggingface(tmp_path / "model", parts))
    extended, _ = extend(found, tmp_path, "unable")
    assert extended.shapes.keys() == found.shapes.keys()
    model = open_source(extended)
    assert model.facts["fresh"] == ["mlm", "pair"]


def some(letters: str) -> str:
    """More words than pad a vocabulary to the next multiple of 128."""
    return "".join(f"{a}{b}{c}\n" for a in letters for b in letters for c in letters)


def test_padding_stays_zero_where_the_vocabulary_grows_over_a_multiple_of_128(source, tmp_path):
    extended, report = extend(source, tmp_path, some("abcd"))
    assert report["added"] == 64 and source.pieces < 128 < extended.pieces
    words = np.asarray(open_source(extended).params["encoder"]["embedder"]["words"])
    assert len(words) == 256 and not words[extended.pieces :].any()
    assert words[: extended.pieces].any(axis=1).all()


def test_without_new_words_in_the_batch_only_the_softmax_grows(source, tmp_path):
    before = open_source(source)
    after = open_source(extend(source, tmp_path, some("abcd"))[0])
    arrays = batch.synthetic(4, 16, 3, source.pieces)
    old, new = (jax.device_get(m.objective.outputs(m.params, arrays)) for m in (before, after))
    assert (old["pair_logits"] == new["pair_logits"]).all()
    size = source.pieces
    old, new = old["mlm_logits"][..., :size], new["mlm_logits"][..., : after.vocabulary.size]
    np.testing.assert_allclose(new[..., :size], old, atol=1e-6)
    totals = before.objective.weights(arrays)
    losses = [
        m.objective.loss(m.params, arrays, totals, None, train=False)[0] for m in (before, after)
    ]
    sums = [np.log(np.exp(logits.astype(np.float64)).sum(-1)) for logits in (old, new)]
    expected = (sums[1] - sums[0]).sum() / totals["mlm"]
    np.testing.assert_allclose(losses[1] - losses[0], expected, atol=1e-5)
    assert expected > 0.1
