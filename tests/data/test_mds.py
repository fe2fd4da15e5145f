"""MDS shards as sources, written by the layout that their library documents: a sample is a document."""

import hashlib

import numpy as np
import pytest
from kits.corpora import config_of, prepare, read_sources
from kits.mds import COMPRESSIONS, array, encode_shard, text_shard, write

from bert_jax.data.preparation import corpus
from bert_jax.data.preparation import prepare as preparing
from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer as tokenizers

EXACT = (
    "task.name=token_blocks",
    "model.name=gpt",
    "objective.name=causal_lm",
    "corpus.sentences=none",
)
TEXTS = ["One. Two.", "第三 texte\nin two lines", "It was a cat."]


def config(directory, *overrides):
    keys = f"corpus.source={directory / 'data'}", "corpus.format=mds"
    return config_of(directory, [], *keys, *overrides)


def documents(directory, *overrides) -> list[list[str]]:
    return read_sources(corpus.open_sources(config(directory, *overrides)))[0]


def test_the_shards_here_are_those_of_the_library():
    """Bit for bit: the SHA-256 of what MDSWriter of mosaicml-streaming 0.13.0 wrote for the same samples."""
    columns = {"input_ids": ("ndarray:uint16", None), "len": ("int", 8)}
    samples = [[array(range(n), "uint16"), np.int64(n).tobytes()] for n in (3, 300)]
    for shard, digest in (
        (text_shard(TEXTS), "102dae8432c914c65c7b3fb7183244f2b7504b87e2af1f4a4e6bbe27cc700a5e"),
        (
            encode_shard(columns, samples),
            "c709892d42fb339fd3923aeee0977de6e1724ce31158506f9024020ede51b0e7",
        ),
    ):
        assert hashlib.sha256(shard).hexdigest() == digest


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_samples_are_documents_in_order(tmp_path, compression):
    write(tmp_path / "data" / "b", text_shard(["It was the last."]), compression=compression)
    write(
        tmp_path / "data" / "a",
        text_shard(TEXTS),
        text_shard(["", "Four."]),
        compression=compression,
    )
    expected = [["One.", "Two."], ["第三 texte", "in two lines"], ["It was a cat."], [], ["Four."]]
    assert documents(tmp_path) == [*expected, ["It was the last."]]
    assert documents(tmp_path, "corpus.field=source") == [["web"]] * 6


def test_only_the_shards_of_a_directory_are_read(tmp_path):
    """So other files are no part of the store; of a shard that is there twice, the one that is not compressed is."""
    texts = [f"Document {number} has a sentence. It has two." for number in range(30)]
    data = write(tmp_path / "data", text_shard(texts[:20]), text_shard(texts[20:]))
    settings = config(tmp_path)
    prepare(settings)
    (data / "README.md").write_text("# Other files")
    (data / "index.json").unlink()
    preparing.prepare(settings)
    assert documents(tmp_path) == [text.replace(". ", ".\n").split("\n") for text in texts]
    write(data, text_shard(texts[:20]), compression="zstd")
    preparing.prepare(settings)
    assert len(documents(tmp_path)) == 30
    for path in data.glob("*.mds*"):
        path.unlink()
    with pytest.raises(BadInput, match=f"corpus.source: {data}: has no shards"):
        documents(tmp_path)


@pytest.mark.parametrize("compression", ["", "gz"])
def test_a_shard_of_the_index_that_is_missing_is_named(tmp_path, compression):
    data = write(tmp_path / "data", *[text_shard(TEXTS)] * 2, compression=compression)
    [path] = data.glob("shard.00001.mds*")
    (data / "shard.00001.mds").write_bytes(text_shard(TEXTS))  # which the index of both lists
    assert len(documents(tmp_path)) == 6
    for shard in {path, data / "shard.00001.mds"}:
        shard.unlink()
    with pytest.raises(BadInput, match=f"{data}/index.json: lists shard.00001.mds,"):
        documents(tmp_path)
    (data / "index.json").write_text('{"shards": [{}]}')
    with pytest.raises(BadInput, match=f"{data}/index.json: damaged"):
        documents(tmp_path)


def test_a_document_may_keep_its_characters(tmp_path):
    write(tmp_path / "data", text_shard(TEXTS))
    assert documents(tmp_path, *EXACT) == [[text] for text in TEXTS]


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """The path of a byte-level tokenizer, and the tokenizer."""
    directory = tmp_path_factory.mktemp("words")
    tokenizers.train("bytes", (), 0, False).save(directory)
    return directory, tokenizers.load(directory)


@pytest.mark.parametrize("kind", ["uint16", "int32"])
def test_tokens_become_text_again(tmp_path, words, kind):
    """Special tokens are no text; arrays may have a shape of their own, of one or more bytes, or a fixed one."""
    path, tokenizer = words
    texts = [*TEXTS, "a long text. " * 30]
    rows = [[tokenizer.cls, *ids, tokenizer.sep] for ids in tokenizer.encode(texts)]
    columns = {"input_ids": (f"ndarray:{kind}", None), "len": ("int", 8)}
    samples = [[array(ids, kind), np.int64(len(ids)).tobytes()] for ids in [[], *rows]]
    write(tmp_path / "data", encode_shard(columns, samples))
    fixed = {"input_ids": (f"ndarray:{kind}:7", 7 * np.dtype(kind).itemsize)}
    [ids] = tokenizer.encode(["It was."])
    write(tmp_path / "data" / "z", encode_shard(fixed, [[np.array(ids, kind).tobytes()]]))
    keys = "corpus.field=input_ids", f"tokenizer.path={path}"
    assert documents(tmp_path, *keys, *EXACT) == [[], *([text] for text in [*texts, "It was."])]


def test_tokens_of_another_tokenizer_are_refused(tmp_path, words):
    columns = {"input_ids": ("ndarray:uint16", None)}
    write(tmp_path / "data", encode_shard(columns, [[array([50000], "uint16")]]))
    with pytest.raises(BadInput, match="data/shard.00000.mds: .*50000 is not in config.tokenizer"):
        documents(tmp_path, "corpus.field=input_ids", f"tokenizer.path={words[0]}")
    with pytest.raises(BadInput, match="corpus.field=input_ids: .* their config.tokenizer.path"):
        documents(tmp_path, "corpus.field=input_ids")


@pytest.mark.parametrize("field", ["missing", "id"])
def test_a_column_without_text_is_named(tmp_path, field):
    write(tmp_path / "data", text_shard(TEXTS))
    with pytest.raises(
        BadInput, match=f"corpus.field={field}: .*shard.00000.mds has .*'text': 'str'"
    ):
        documents(tmp_path, f"corpus.field={field}")


@pytest.mark.parametrize("compression", ["", "zstd", "gz"])
def test_a_damaged_shard_is_named(tmp_path, compression):
    content = text_shard(TEXTS)
    write(tmp_path / "data", content, compression=compression)
    [path] = (tmp_path / "data").glob("*.mds*")
    written = path.read_bytes()
    damages = [
        written[:-20],
        written[: len(written) // 2],
        b"",
        b"This is no shard at all.",
        written[:3],
    ]
    if not compression:
        damages += [b"\xff" * 200, content[:4] + b"\0" * 4 + content[8:]]
    for damaged in damages:
        path.write_bytes(damaged)
        with pytest.raises(BadInput, match=f"{path}: damaged"):
            documents(tmp_path)


def test_a_store_of_shards_is_that_of_their_text(tmp_path):
    """It is known by the content of the shards."""
    texts = [f"Document {number} has a sentence. It has two." for number in range(30)]
    write(tmp_path / "data", text_shard(texts[:20]), text_shard(texts[20:]))
    settings = config(tmp_path)
    store = prepare(settings)
    assert sum(len(split.document_ends) for split in store.splits.values()) == 30
    preparing.prepare(settings)  # the same store
    write(tmp_path / "data", text_shard(texts[:20]), text_shard(["Another text.", *texts[21:]]))
    with pytest.raises(BadInput, match="corpus.source"):
        preparing.prepare(settings)
