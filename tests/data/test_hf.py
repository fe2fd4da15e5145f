"""Data sets of the Hugging Face hub as sources, on one that is written here; nothing is downloaded."""

from pathlib import Path

import datasets
import pyarrow
import pytest
from kits.corpora import config_of, make_text
from pyarrow import parquet

from bert_jax.data.preparation import corpus
from bert_jax.data.sources import tables
from bert_jax.errors import BadInput

TEXTS = [*make_text(60), None, ""]


def invalid_utf8(number: int):
    texts = pyarrow.array([b"\xe9t\xe9"] * number)
    return pyarrow.StringArray.from_buffers(number, *texts.buffers()[1:])


@pytest.fixture(scope="module")
def name(tmp_path_factory):
    """A directory with two splits."""
    directory = tmp_path_factory.mktemp("set")
    for split, texts in (("train", TEXTS), ("test", TEXTS[:5])):
        columns = {"text": texts, "number": [1] * len(texts)}
        columns["meta"] = [{"body": f"{split}. B."}] * (len(texts) - 1) + [None]
        columns["meta.title"] = invalid_utf8(len(texts))
        (directory / "data").mkdir(exist_ok=True)
        parquet.write_table(pyarrow.table(columns), directory / f"data/{split}.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("datasets.config.HF_DATASETS_CACHE", directory.parent / "cache")
        yield str(directory)


def config_for(directory: Path, source: str, field: str = "text"):
    return config_of(directory, [], f"corpus.source=hf:{source}", f"corpus.field={field}")


def source_of(*arguments) -> corpus.Source:
    (source,) = corpus.open_sources(config_for(*arguments))
    return corpus.materialize(source, None, map)


def test_every_text_is_read_once_in_order(tmp_path, name):
    source = source_of(tmp_path, name)
    assert [*source.texts({})] == [(text or "").encode() for text in TEXTS]
    assert source.data_set["examples"] == len(TEXTS)
    nested = source_of(tmp_path, f"{name}:default[test]", "meta.body")
    assert [*nested.texts({})] == [b"test. B."] * 4 + [b""]
    literal = source_of(tmp_path, f"{name}[test]", "meta.title")
    assert [*literal.texts({})] == [b"\xe9t\xe9"] * 5  # counted where lines are decoded


@pytest.mark.parametrize(
    ("suffix", "field"),
    [("/missing", "text"), (":other", "text"), ("[dev]", "text"), ("[", "text")]
    + [("", field) for field in ("missing", "number", "meta", "text.body")],
)
def test_what_does_not_exist_is_named(tmp_path, name, suffix, field):
    with pytest.raises(BadInput, match="hf:"):
        source_of(tmp_path, name + suffix, field)


def test_a_set_with_several_configurations_is_named_with_them(tmp_path):
    for name in ("first", "other"):
        path = tmp_path / name / "train.parquet"
        path.parent.mkdir()
        parquet.write_table(pyarrow.table({"text": ["a"]}), path)
    sets = "".join(f"- config_name: {n}\n  data_files: {n}/*\n" for n in ("first", "other"))
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n{sets}---\n")
    with pytest.raises(BadInput, match="first.*other") as error:
        source_of(tmp_path, str(tmp_path))
    assert "load_dataset" not in str(error.value)


def test_a_table_has_the_names_of_its_labels(tmp_path, monkeypatch):
    """And an unknown label, -1, as none."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    label = datasets.ClassLabel(names=["no", "yes"])
    features = datasets.Features(text=datasets.Value("string"), label=label)
    columns = {"text": ["a", "b", None], "label": [1, 0, -1]}
    (tmp_path / "set").mkdir()
    datasets.Dataset.from_dict(columns, features).to_parquet(tmp_path / "set/validation.parquet")
    source = f"hf:{tmp_path}/set[validation]"
    rows = tables.read(source, ["text", "label"], optional="label")
    assert [row for _, row in rows] == [["a", "yes"], ["b", "no"], ["", None]]
    with pytest.raises(BadInput, match="'none'"):
        tables.read(source, ["none"])
