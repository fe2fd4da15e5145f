"""corpus.sentences=none: a store has the exact characters of its documents; what is held out by its place."""

import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kits import corpora
from kits.corpora import files, make_text, prepare, report_of

from bert_jax import config as configs
from bert_jax.data.preparation import corpus, heldout_text
from bert_jax.data.sources import files as files_of_text
from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer as tokenizers

EXACT = (
    "corpus.sentences=none",
    "tokenizer.kind=bytes",
    "tokenizer.lowercase=False",
    "objective.name=causal_lm",
    "task.name=token_blocks",
)
SPACES = " \t\n\r\x0b\x0c\x1c\x85\xa0\u2028\u2029\u3000\ufeff"
TEXTS = st.text(st.sampled_from(SPACES + "aé鱼🙂.A<{}") | st.characters(codec="utf-8"), max_size=30)
TEXTS = TEXTS.map(lambda text: text.replace("\0", ""))
PLAIN = TEXTS.map(lambda text: text.replace("\ufeff", ""))
SLOW = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=12)


def load(directory, source, *overrides):
    keys = [f"corpus.source={source}", f"store={directory}/store", "corpus.workers=1"]
    return configs.load("base", [*keys, *EXACT, *overrides])


def texts_of(store, split: str) -> list[str]:
    """Returns the decoded documents of a split."""
    part = store.splits[split]
    tokenizer = tokenizers.load(store.path / "tokenizer")
    assert part.document_ends.tolist() == list(range(1, 1 + len(part.sentence_ends)))
    documents = np.split(part.tokens, part.sentence_ends[:-1])
    return [tokenizer.decode(document.tolist()) for document in documents]


def read(path, form: str) -> tuple[list[str], dict]:
    """Returns the documents of a file, and the numbers of its problems."""
    source = corpus.Source(path.name, corpus.Reading(form, "none"), paths=(path,))
    documents, problems = corpora.read_sources([source])
    return ["".join(document) for document in documents], problems


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("exact") / "corpus"


@SLOW
@given(
    documents=st.lists(TEXTS, min_size=1, max_size=4),
    block=st.sampled_from([7, 1 << 20]),
    mark=st.sampled_from(["", "\ufeff"]),
    ascii=st.booleans(),
)
@example(documents=["a\ufeffb", "}\ufeff{"], block=7, mark="\ufeff", ascii=False)
def test_documents_keep_their_characters(path, documents, block, mark, ascii):
    """A byte order mark that begins a file, or a line of JSON, is none of them."""
    path.write_bytes("".join(documents).encode())
    whole = "".join(documents).removeprefix("\ufeff")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files_of_text, "PIECE", block)
        assert "".join(read(path, "files")[0]) == whole
        records = [json.dumps({"text": text}, ensure_ascii=ascii) for text in documents]
        path.write_text("\n".join(mark + record for record in records))
        assert read(path, "jsonl") == (documents, {})
        pyarrow.parquet.write_table(pyarrow.table({"text": documents}), path)
        assert read(path, "parquet") == (documents, {})


@SLOW
@given(documents=st.lists(st.lists(PLAIN, min_size=1, max_size=4), min_size=1, max_size=4))
def test_lines_keep_their_characters(path, documents):
    """Blank lines separate documents; in WikiExtractor's format, those around a text are left out."""
    lines = [[line.replace("\n", "") + "." for line in lines] for lines in documents]
    texts = ["\n".join(document) for document in lines]
    stripped = [text.strip("\r\n") for text in texts]
    path.write_bytes("\n\r\n".join([" ", *texts, "\n"]).encode())
    assert read(path, "lines") == (stripped, {})
    blocks = [f'<doc id="1" title="T">\nT\n\n{text}\n\n\n</doc>\n' for text in texts]
    path.write_bytes("".join(blocks).replace("&", "&amp;").encode())
    assert read(path, "wiki") == (stripped, {})
    lines = [text.replace("\n", "").replace("\r", "") for text in texts]
    path.write_bytes("\n\r\n".join(lines).encode())
    assert read(path, "document_per_line") == (lines, {})


@pytest.mark.parametrize("texts", [["a\rb\r\rc"], ["one " * 30 + "\r" + "two" * 30, "\r x\r y"]])
def test_long_lines_and_carriage_returns_alone_are_kept(path, monkeypatch, texts):
    monkeypatch.setattr(files_of_text, "PIECE", 20)
    monkeypatch.setattr(files_of_text, "MAX_LINE", 50)
    stripped = [text.strip("\r") for text in texts]
    path.write_bytes("\n\n".join(texts).encode())
    assert read(path, "lines") == (stripped, {})
    blocks = [f'<doc id="1" title="T">\nT\n\n{text}\n</doc>\n' for text in texts]
    path.write_bytes("".join(blocks).encode())
    assert read(path, "wiki") == (stripped, {})


@pytest.mark.parametrize("kind, size", [("bytes", 261), ("byte_bpe", 300)])
def test_a_store_spells_its_text(tmp_path, kind, size):
    texts = [f"{text}\n\n  {text}\r\n" for text in make_text(60)]
    texts += [" ", "\n\n", "x", " x", "x "]
    records = "\n".join(json.dumps({"text": text}) for text in [*texts, "", texts[3]])
    source = corpora.write(tmp_path / "corpus.jsonl", records.encode())
    keys = "corpus.format=jsonl", f"tokenizer.kind={kind}", f"tokenizer.size={size}"
    config = load(tmp_path, source, *keys, "corpus.heldout=0.2")
    store = prepare(config)
    heldout = texts_of(store, "heldout")
    assert texts_of(store, "train") == [text for text in texts if text not in heldout]
    assert heldout == [text for text in texts if text in heldout] and len(heldout) == 13
    report = report_of(store)
    assert report["copies"] == report["empty"] == 1 and report["altered_text_share"] == 0
    found = [document for [document] in heldout_text.documents(config, store)]
    assert sorted(found) == sorted(heldout)


def play(scenes: int) -> str:
    return "\n" + "\n\n".join(make_text(scenes)) + "\n"


@pytest.mark.parametrize("share", ["0.1", "0.07", "0.5"])
def test_the_end_of_a_text_is_held_out(tmp_path, share):
    text = play(100)
    source = corpora.write(tmp_path / "a.txt", text.encode())
    keys = "corpus.format=files", "corpus.heldout_by=end", f"corpus.heldout={share}"
    config = load(tmp_path, source, *keys)
    store = prepare(config)
    trained = int((1 - float(share)) * len(text))
    assert texts_of(store, "train") == [text[:trained]]
    assert texts_of(store, "heldout") == [text[trained:]]
    assert [*heldout_text.documents(config, store)] == [[text[trained:]]]
    report = report_of(store)
    assert [warning["name"] for warning in report["warnings"]] == ["few_tokens"]
    assert "\\n" in report["first_documents"][1] and len(report["first_documents"]) == 2


def test_the_end_of_several_sources_is_held_out(tmp_path, monkeypatch):
    """Documents, blocks and sources are cut at the same character as their joined text."""
    monkeypatch.setattr(files_of_text, "PIECE", 500)
    texts = [f"{number} {text}" for number, text in enumerate(make_text(80))]
    for number in range(2):
        corpora.write(tmp_path / f"{number}.txt", texts[40 * number : 40 * number + 40])
    joined = "".join(texts)
    for share in (0.01, 0.77):
        keys = f"corpus.heldout={share}", "corpus.heldout_by=end", f"store={tmp_path}/{share}"
        store = prepare(load(tmp_path, f"{tmp_path}/0.txt,{tmp_path}/1.txt", *keys))
        trained = int((1 - share) * len(joined))
        assert "".join(texts_of(store, "train")) == joined[:trained]
        assert "".join(texts_of(store, "heldout")) == joined[trained:]
        documents = texts_of(store, "train") + texts_of(store, "heldout")
        assert len(documents) in (80, 81)


def test_sentences_are_held_out_from_the_end_by_documents(tmp_path):
    texts = make_text(80)
    keys = "corpus.heldout_by=end", "tokenizer.kind=byte_bpe", "tokenizer.size=300"
    store = prepare(corpora.config_of(tmp_path, texts, *keys))
    sizes = np.cumsum([len(text.replace("\n", "")) for text in texts])
    trained = int((sizes <= int(0.9 * sizes[-1])).sum())
    counts = {split: len(part.document_ends) for split, part in store.splits.items()}
    assert counts == {"train": trained, "heldout": 80 - trained}


@pytest.mark.parametrize("exact", [True, False])
def test_a_source_of_its_own_is_held_out(tmp_path, exact):
    """Without its documents in the text to train on, whatever becomes of other copies."""
    texts = make_text(40)
    heldout = [f"{text} so" for text in make_text(9, seed=1)]
    train = [*texts, heldout[2], texts[0], heldout[2]]
    corpora.write(tmp_path / "a.txt", train)
    corpora.write(tmp_path / "b.txt", [*heldout, heldout[0]])
    keys = [f"corpus.heldout_source={tmp_path}/b.txt", "tokenizer.lowercase=False"]
    if not exact:
        keys += ["corpus.sentences=lines"]
    config = load(tmp_path, tmp_path / "a.txt", *keys)
    store = prepare(config)
    report = report_of(store)
    assert report["copies"] == 4 and report["train"]["documents"] == 40
    assert [source["documents"] for source in report["sources"]] == [
        {"train": 40, "heldout": 0},
        {"train": 0, "heldout": 9},
    ]
    found = ["\n".join(document) for document in heldout_text.documents(config, store)]
    assert found == heldout
    if exact:
        assert texts_of(store, "train") == texts and texts_of(store, "heldout") == heldout
    twice = load(
        tmp_path, tmp_path / "a.txt", *keys, "filter.duplicates=False", f"store={tmp_path}/2"
    )
    counts = report_of(prepare(twice))
    assert counts["train"]["documents"] == 41 and counts["heldout"]["documents"] == 10


@pytest.mark.parametrize("key", ["heldout_by=end", "heldout_source=SOURCE/b.txt"])
def test_the_vocabulary_is_trained_without_what_is_held_out(tmp_path, key):
    """Each document has a letter of its own; the text to train on has a copy of one that is held out."""
    letters = [chr(0x4E00 + number) for number in range(60)]
    texts = [f"{letter} " * 20 for letter in letters]
    corpora.write(tmp_path / "b.txt", texts[54:])
    trained = [texts[57], *texts[:54]]
    keys = "tokenizer.kind=wordpiece", "tokenizer.size=200", "corpus.heldout=0.098"
    if key == "heldout_by=end":
        trained += texts[54:]
    key = key.replace("SOURCE", str(tmp_path))
    config = load(tmp_path, corpora.write(tmp_path / "a.txt", trained), f"corpus.{key}", *keys)
    pieces = tokenizers.load(prepare(config).path / "tokenizer").pieces
    assert set(pieces) & set(letters) == set(letters[:54])


@pytest.mark.parametrize(
    "keys",
    [
        ["corpus.heldout_by=end", "corpus.heldout=0.3"],
        pytest.param(
            ["corpus.heldout_source=SOURCE/b.txt", "tokenizer.kind=byte_bpe", "tokenizer.size=300"],
            marks=pytest.mark.full,
        ),
    ],
)
@pytest.mark.slow
def test_workers_make_the_same_store(tmp_path, monkeypatch, keys):
    corpora.small_parts(monkeypatch)
    texts = make_text(200)
    corpora.write(tmp_path / "a.txt", texts[:150])
    corpora.write(tmp_path / "b.txt", texts[140:])
    keys = [key.replace("SOURCE", str(tmp_path)) for key in keys]
    stores = []
    for workers in (1, 2):
        changes = f"corpus.workers={workers}", f"store={tmp_path}/{workers}"
        stores.append(prepare(load(tmp_path, tmp_path / "a.txt", *keys, *changes)))
    assert files(stores[0].path) == files(stores[1].path)


@pytest.mark.parametrize("form, between", [("files", ""), ("lines", "\r\n")])
def test_a_large_file_is_parted_without_a_loss(path, monkeypatch, form, between):
    """Also one without line breaks. In the format lines, those around a document are none of it."""
    monkeypatch.setattr(files_of_text, "MAX_DOCUMENT", 3000)
    lines = "".join(f"{number} line\r\n" for number in range(1500))
    for text, end in ((lines, between), (lines.replace(" line\r\n", "\u3000"), "")):
        path.write_bytes(b"\xef\xbb\xbf" + text.encode())
        monkeypatch.setattr(files_of_text, "PIECE", 500)
        documents, problems = read(path, form)
        assert end.join(documents) + end == text
        sizes = [len(document.encode()) for document in documents]
        assert max(sizes) <= 3000 and min(sizes[:-1]) >= 1500 and len(sizes) > 2
        assert problems == {"documents parted": len(sizes) - 1}


def test_lines_that_are_no_text_are_dropped_and_counted(path):
    path.write_bytes(b" a\n\xff\n\n\0\nb \n" * 30)
    problems = {"lines not UTF-8": 30, "lines with NUL bytes": 30}
    assert read(path, "files") == ([" a\n\nb \n" * 30], problems)


def test_a_vocabulary_that_alters_the_text_is_reported(tmp_path):
    path = corpora.write(tmp_path / "a.txt", make_text(60))
    for lowercase, names in ((True, {"altered_text"}), (False, set())):
        keys = f"tokenizer.lowercase={lowercase}", f"store={tmp_path}/{lowercase}"
        path.write_text(path.read_text().replace("the", "The"))
        report = report_of(prepare(load(tmp_path, path, *keys)))
        warnings = {warning["name"] for warning in report["warnings"]}
        assert warnings & {"altered_text"} == names


@pytest.mark.parametrize(
    "keys, named",
    [
        (["task.name=sentence_pairs", "objective.name=mlm"], "corpus.sentences"),
        (["filter.line_stops=True"], "filter.line_stops"),
        (["corpus.heldout_by=end", "corpus.heldout_source=pydocs"], "corpus.heldout_source"),
        (["corpus.heldout_by=start"], "corpus.heldout_by"),
        (["corpus.heldout_by=end", "corpus.heldout=0"], "corpus.heldout=0"),
        (["corpus.source=", "corpus.heldout_source=pydocs"], "corpus.source"),
        (["corpus.heldout_source=pydocs,pydocs", "corpus.format=lines,files"], "corpus.format"),
    ],
)
def test_keys_that_contradict_each_other_are_refused(tmp_path, keys, named):
    with pytest.raises(BadInput, match=f"^config.{named}"):
        load(tmp_path, "pydocs", *keys)


def test_a_text_without_an_end_to_hold_out_is_refused(tmp_path):
    path = corpora.write(tmp_path / "a.txt", b"One.")
    keys = "corpus.format=files", "corpus.heldout_by=end", "corpus.heldout=0.99"
    with pytest.raises(BadInput, match="^corpus: "):
        prepare(load(tmp_path, path, *keys))
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("change", ["corpus.heldout_by=end", "corpus.heldout_source=SOURCE/b.txt"])
def test_a_store_of_another_held_out_text_is_refused(tmp_path, change):
    for name in "ab":
        corpora.write(tmp_path / f"{name}.txt", make_text(30, seed=ord(name)))
    prepare(load(tmp_path, tmp_path / "a.txt"))
    with pytest.raises(BadInput, match=change.partition("=")[0]):
        prepare(load(tmp_path, tmp_path / "a.txt", change.replace("SOURCE", str(tmp_path))))
