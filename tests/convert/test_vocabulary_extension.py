"""Words added to a vocabulary: their rows are means of old rows; everything else is unchanged bit for bit."""

import jax
import numpy as np
import pytest
from kits import external_models, small
from kits.malformed_inputs import FORMATS, write

from bert_jax.convert import names, open_model, vocabulary_extension
from bert_jax.errors import BadInput


@pytest.fixture(scope="module", params=FORMATS)
def source(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp(request.param) / "model"
    return open_model.read_source(write(request.param, directory))


def extend(source, tmp_path, text):
    path = tmp_path / "words.txt"
    path.write_text(text, encoding="utf-8")
    return vocabulary_extension.extend(source, path)


def test_words_are_those_of_lines_or_of_a_table(source, tmp_path):
    """Never the raw lines of a table."""
    _, report = extend(source, tmp_path, "unable\nwalks\n")
    for name, content in (
        ("a.jsonl", '{"text": "unable"}\n{"text": "walks"}'),
        ("a.csv", "id,text\n1,unable\n2,walks\n"),
        ("words", "text\tid\nunable\t1\nwalks\t2\n"),
    ):
        (tmp_path / name).write_text(content)
        _, found = vocabulary_extension.extend(source, tmp_path / name)
        assert found == report and found["added"] == 2
    (tmp_path / "a.jsonl").write_text('{"word": "unable"}')
    with pytest.raises(BadInput, match="a.jsonl: .*'text'.*'word'"):
        vocabulary_extension.extend(source, tmp_path / "a.jsonl")


def tables(source) -> list:
    """Returns the names of the two tensors that have a row for each piece."""
    items = names.parameters(source.settings)
    return [getattr(item, source.format) for item in items if item.padded]


def open_source(source):
    return open_model.open_source(source, None, ["dtype=float32"])


def test_new_rows_are_means_and_old_ones_are_unchanged(source, tmp_path):
    extended, report = extend(source, tmp_path, "unable\nriverbank\n\nwalks\n")
    assert report == {"added": 3, "known": 0}
    assert extended.pieces == extended.tokenizer.size == source.pieces + 3
    cuts = [["un", "##able"], ["river", *"##b ##a ##n ##k".split()], ["walk", "##s"]]
    for name in tables(source):
        before, after = source.load(name), extended.load(name)
        assert after.dtype == np.float32 and after.shape == extended.shapes[name]
        assert after[: len(before)].tobytes() == before.tobytes()
        for row, cut in zip(after[len(before) :], cuts, strict=True):
            rows = before[[external_models.PIECES.index(piece) for piece in cut]]
            assert np.all(row == rows.mean(0, dtype=np.float32))
    for name in source.shapes.keys() - set(tables(source)):
        assert extended.load(name).tobytes() == source.load(name).tobytes()


def test_new_words_are_one_piece_and_other_texts_keep_their_ids(source, tmp_path):
    extended, _ = extend(source, tmp_path, "Unable\nrivière\n")
    first = source.pieces
    assert extended.tokenizer.encode(["UNABLE, Riviere", "unable."]) == [
        [first, external_models.PIECES.index(","), first + 1],
        [first, external_models.PIECES.index(".")],
    ]
    texts = ["the old river bank walks.", "un able rivers", "[MASK] 12 x", ""]
    assert extended.tokenizer.encode(texts) == source.tokenizer.encode(texts)
    assert extended.tokenizer.special == source.tokenizer.special


def test_known_words_are_counted_and_others_added_once(source, tmp_path):
    """The row of a word that was [UNK] is the row of [UNK]."""
    text = "bank\nUnable\r\nunable\n  walks \nthe\nbank\nunäble\nжук\n"
    extended, report = extend(source, tmp_path, text)
    assert report == {"added": 3, "known": 2}
    assert extended.tokenizer.pieces[source.pieces :] == ["unable", "walks", "жук"]
    name, unknown = tables(source)[0], external_models.PIECES.index("[UNK]")
    assert (extended.load(name)[-1] == source.load(name)[unknown]).all()


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"river\nold bank\n", "words.txt:2: 'old bank'"),
        (b"[MASK]", "words.txt:1: .*MASK"),
        ("\n\n銀行".encode(), "words.txt:3: '銀行'"),
        (b"caf\xe9\n", "words.txt:1: .*UTF-8"),
        (None, "words.txt: "),
    ],
)
def test_lines_that_are_not_one_word_are_refused(content, named, source, tmp_path):
    if content is not None:
        (tmp_path / "words.txt").write_bytes(content)
    with pytest.raises(BadInput, match=named):
        vocabulary_extension.extend(source, tmp_path / "words.txt")


@pytest.mark.slow
def test_padding_stays_zero_if_a_vocabulary_grows_past_a_multiple_of_128(source, tmp_path):
    """Padding stays zero. Without new words in a batch, the logits of old pieces are unchanged."""
    more = "".join(f"{a}{b}{c}\n" for a in "abcd" for b in "abcd" for c in "abcd")
    extended, report = extend(source, tmp_path, more)
    assert report["added"] == 64 and source.pieces < 128 < extended.pieces
    before, after = open_source(source), open_source(extended)
    words = np.asarray(after.params["network"]["embedder"]["words"])
    assert len(words) == 256 and not words[extended.pieces :].any()
    assert words[: extended.pieces].any(axis=1).all()
    arrays = small.synthetic(4, 16, 3, source.pieces)
    models = ((model.objective, jax.device_put(model.params)) for model in (before, after))
    old, new = (jax.device_get(made.outputs(params, arrays)) for made, params in models)
    assert (old["pair_logits"] == new["pair_logits"]).all()
    ours, theirs = (outputs["mlm_logits"][..., : source.pieces] for outputs in (new, old))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
