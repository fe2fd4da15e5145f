"""Text to store: the same bits however it is made, nothing lost, nothing half-written, held-out apart."""

import fcntl
import lzma
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bert_jax import config as configs
from bert_jax import tokenizer as tokenizers
from bert_jax.data import corpus, spool
from bert_jax.data import prepare as preparing
from bert_jax.data import report as reports
from bert_jax.data import store as stores
from bert_jax.errors import BadInput

WORDS = "the a cat dog bird saw ate took found old small red house tree fish and then it was not".split()
DATA = Path(__file__).parents[2] / "shared" / "data"


def make_text(documents: int, seed: int = 0) -> list[str]:
    """Documents of random sentences, a sentence a line."""
    draw = random.Random(seed)
    return [
        "\n".join(
            " ".join(draw.choices(WORDS, k=draw.randrange(3, 12)))
            for _ in range(draw.randrange(1, 6))
        )
        for _ in range(documents)
    ]


@pytest.fixture
def make(tmp_path):
    """make(documents or bytes, key=value...) -> a config whose corpus they are; one process, 200 pieces."""

    def config_of(documents, *overrides):
        text = documents if isinstance(documents, bytes) else "\n\n".join(documents).encode()
        (tmp_path / "corpus.txt").write_bytes(text)
        keys = {
            "corpus.source": tmp_path / "corpus.txt",
            "corpus.workers": 1,
            "corpus.heldout": 0.1,
            "tokenizer.size": 200,
            "store": tmp_path / "store",
        }
        return configs.load(
            "demo", [f"{key}={value}" for key, value in keys.items()] + [*overrides]
        )

    return config_of


def prepare(config) -> stores.Store:
    preparing.prepare(config, log=lambda line: None)
    return stores.open_store(config.store, hashes=True)


def read(split: stores.Split) -> list[list[tuple]]:
    """Documents of sentences of ids."""
    sentences = np.split(split.tokens, split.sentence_ends[:-1])
    sentences = [tuple(sentence.tolist()) for sentence in sentences]
    starts = [0, *split.document_ends[:-1]]
    return [sentences[a:b] for a, b in zip(starts, split.document_ends, strict=True)]


def files(directory) -> dict:
    paths = sorted(path for path in Path(directory).rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def test_the_store_is_the_corpus(make):
    texts = make_text(300)
    store = prepare(make(texts))
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
    assert not list(store.path.glob("scratch*"))


def test_unigrams_and_entropy(make):
    store = prepare(make(make_text(100)))
    tokens = store.splits["train"].tokens
    unigrams = np.load(store.path / "unigrams.npy")
    assert unigrams.tolist() == [int((tokens == piece).sum()) for piece in range(len(unigrams))]
    share = unigrams[tokens] / len(tokens)  # the entropy is the mean of -log p over the tokens
    assert store.manifest["unigram_entropy"] == pytest.approx(-np.log(share).mean(), rel=1e-12)


def test_bits_do_not_depend_on_the_workers(make, tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "BLOCK", 1000)  # many blocks of a small corpus
    texts = make_text(400)
    texts[7:7] = texts[100:110]
    one = prepare(make(texts))
    two = prepare(make(texts, "corpus.workers=2", f"store={tmp_path / 'two'}"))
    assert files(one.path) == files(two.path)
    assert one.manifest["report"]["duplicates"] == 10


def test_blocks_and_tables_leave_no_trace(make, tmp_path, monkeypatch):
    texts = make_text(200)
    config = make(texts)
    one = files(prepare(config).path)
    monkeypatch.setattr(corpus, "BLOCK", 500)
    monkeypatch.setattr(spool, "PARTITIONS", 4)
    assert files(prepare(make(texts, f"store={tmp_path / 'two'}")).path) == one


def test_heldout_is_a_function_of_content(make, tmp_path):
    """Not of order, and no document is on both sides however often it stands in the corpus."""
    texts = make_text(200)
    make(texts)
    tokenizers.train(texts, 200, True).save(tmp_path / "vocabulary")
    vocabulary = f"tokenizer.path={tmp_path}/vocabulary/vocab.txt"
    one = prepare(make(texts, vocabulary))
    shuffled = texts * 3
    random.Random(1).shuffle(shuffled)
    two = prepare(make(shuffled, vocabulary, f"store={tmp_path / 'two'}"))
    assert sorted(read(one.splits["heldout"])) == sorted(read(two.splits["heldout"]))
    assert two.manifest["report"]["duplicates"] == 400
    train, heldout = (set(map(str, read(two.splits[name]))) for name in stores.SPLITS)
    assert not train & heldout and len(train) + len(heldout) == 200


def test_equal_to_the_model_is_a_duplicate_and_the_first_survives(make):
    texts = ["one cat", "The Cat", "a dog ran", "the cat", "old birds", "the  cat\x01", "fish eat"]
    store = prepare(make(texts))
    found = [*read(store.splits["train"]), *read(store.splits["heldout"])]
    assert store.manifest["report"]["duplicates"] == 2 and len(found) == 5


def test_of_duplicates_the_first_keeps_its_place(make):
    texts = make_text(100)
    store = prepare(make(texts + texts[::-1]))
    encoded = tokenizers.load(store.path / "tokenizer").encode
    order = [sum(encode_lines(encoded, text), ()) for text in texts]
    for name in stores.SPLITS:
        places = [order.index(sum(document, ())) for document in read(store.splits[name])]
        assert places == sorted(places)


def encode_lines(encode, text: str) -> list[tuple]:
    return [tuple(ids) for ids in encode(text.split("\n"))]


def test_problems_are_counted_not_fatal(make):
    lines = [*make_text(20), "\x01", b"bad \xff line", b"nul \0 line", b"x" * 10_000_000]
    text = b"\n\n".join(line if isinstance(line, bytes) else line.encode() for line in lines)
    report = prepare(make(text)).manifest["report"]
    problems = {"lines not UTF-8": 1, "lines over 1 MB": 1, "lines with NUL bytes": 1}
    assert report["problems"] == problems and report["empty"] == 1
    assert report["train"]["documents"] + report["heldout"]["documents"] == 20
    assert "problems: 1 lines not UTF-8" in reports.describe(report)


@pytest.mark.parametrize(
    "text, message",
    [
        (b"", "no document"),
        (b"\n \n\n", "no document"),
        (b"one\ntwo\n", "1 document "),
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


def test_an_error_leaves_nothing(make, tmp_path, monkeypatch):
    with lzma.open(tmp_path / "b.xz", "wb") as file:
        file.write("\n\n".join(make_text(3000, seed=2)).encode())
    whole = (tmp_path / "b.xz").read_bytes()
    (tmp_path / "b.xz").write_bytes(whole[: len(whole) // 2])
    config = make(make_text(50), f"corpus.source={tmp_path}/corpus.txt,{tmp_path}/b.xz")
    before = files(tmp_path)
    with pytest.raises(BadInput, match="b.xz: damaged or cut short"):
        prepare(config)
    assert files(tmp_path) == before

    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(preparing, "write_splits", interrupt)
    with pytest.raises(KeyboardInterrupt):
        prepare(make(make_text(50)))
    assert files(tmp_path) == before and not Path(config.store).exists()


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


def test_left_by_a_kill_is_cleaned_and_in_use_is_refused(make, tmp_path):
    left = tmp_path / ".store.preparing"
    (left / "train").mkdir(parents=True)
    (left / "train" / "junk").write_text("junk")
    lock = os.open(left, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(BadInput, match="another process is preparing"):
        prepare(make(make_text(50)))
    assert (left / "train" / "junk").exists()
    os.close(lock)
    store = prepare(make(make_text(50)))
    assert not left.exists() and "train/junk" not in files(store.path)


def test_a_finished_store_is_kept(make):
    texts = make_text(50)
    store = prepare(make(texts))
    times = {path: path.stat().st_mtime_ns for path in store.path.rglob("*")}
    lines = []
    report = preparing.prepare(make(texts, "corpus.workers=2"), log=lines.append)
    assert report == store.manifest["report"] and "already prepared" in lines[0]
    assert {path: path.stat().st_mtime_ns for path in store.path.rglob("*")} == times
    with pytest.raises(BadInput, match="names 1 of"):
        prepare(make([*texts, "more text"]))
    config = make(texts)
    Path(config.corpus.source).unlink()  # a store outlives its text
    assert prepare(config).fingerprint == store.fingerprint


def test_a_store_of_something_else_is_refused(make, tmp_path):
    texts = make_text(50)
    config = make(texts)
    prepare(config)
    assert preparing.open_or_refuse(config).manifest["splits"]["heldout"]["documents"] == 5
    tokenizers.train(texts, 150, True).save(tmp_path)
    for override, message in [
        ("corpus.heldout=0.2", "config.corpus.heldout 0.1 there, 0.2 asked for"),
        ("corpus.source=pydocs", "config.corpus.source .* there, 'pydocs' asked for"),
        ("tokenizer.size=201", "config.tokenizer.size 200 there, 201 asked for"),
        ("tokenizer.lowercase=False", "config.tokenizer.lowercase True there, False asked for"),
        (f"tokenizer.path={tmp_path}/vocab.txt", "config.tokenizer.path None there"),
    ]:
        for function in (prepare, preparing.open_or_refuse):
            with pytest.raises(BadInput, match=message):
                function(make(texts, override))


def test_a_vocabulary_counts_by_its_content(make, tmp_path):
    texts = make_text(50)
    tokenizer = tokenizers.train(texts, 150, True)
    tokenizer.save(tmp_path / "a")
    tokenizer.save(tmp_path / "b")
    prepare(make(texts, f"tokenizer.path={tmp_path}/a/vocab.txt"))
    config = make(texts, f"tokenizer.path={tmp_path}/b/vocab.txt")
    preparing.open_or_refuse(config)
    pieces = [*tokenizer.pieces[:-1], "another"]
    (tmp_path / "b" / "vocab.txt").write_text("\n".join(pieces))
    with pytest.raises(BadInput, match="config.tokenizer.path '"):
        preparing.open_or_refuse(config)


def test_what_lies_there_is_not_overwritten(make, tmp_path):
    config = make(make_text(50))
    Path(config.store).mkdir()
    (Path(config.store) / "mine").write_text("mine")
    with pytest.raises(BadInput, match="exists, and is not a token store"):
        prepare(config)
    (Path(config.store) / "mine").unlink()
    assert prepare(config).manifest["vocabulary"]


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


def test_a_sample_is_spread_over_the_corpus(make, monkeypatch):
    monkeypatch.setattr(corpus, "BLOCK", 1)
    config = make([f"document {number}" for number in range(1000)])
    source = preparing.Source([Path(config.corpus.source)], "lines", "lines", {})
    monkeypatch.setattr(
        corpus, "read_lines", lambda path, problems: path.read_bytes().splitlines(keepends=True)
    )
    sample = [int(text.split()[1]) for text in preparing.sample_blocks(source, 3000)]
    assert sample == list(range(0, 1000, sample[1])) and 100 < len(sample) < 250
    assert len(preparing.sample_blocks(source, 10**9)) == 1000


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


def make_large(make, directory):
    """Work of some seconds for two workers, with a vocabulary given."""
    texts = make_text(50_000)
    tokenizers.train(texts[:1000], 200, True).save(directory / "vocabulary")
    vocabulary = f"tokenizer.path={directory}/vocabulary/vocab.txt"
    return make(texts, "corpus.workers=2", vocabulary)


def test_no_process_outlives_a_kill(make, tmp_path):
    """Workers of a killed parent end by themselves, and what it left does not stop the next one."""
    config = make_large(make, tmp_path)
    configs.save(config, tmp_path / "config.json")
    code = (
        "from bert_jax import config; from bert_jax.data import prepare\n"
        f"prepare.prepare(config.load({str(tmp_path / 'config.json')!r}))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    wait_for(lambda: at_work(tmp_path))
    parent.kill()
    parent.wait()
    wait_for(lambda: processes(parent.pid) == 0)
    assert not Path(config.store).exists()
    assert prepare(config).manifest["splits"]["train"]["documents"] > 40_000


def wait_for(condition, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def at_work(directory: Path) -> bool:
    """Whether the workers have sent a first block: only then do they run for certain."""
    tokens = directory / ".store.preparing" / "scratch" / "tokens"
    return tokens.exists() and tokens.stat().st_size > 0


def processes(session: int) -> int:
    """How many processes of a session live."""
    fields = [read_stat(path) for path in Path("/proc").glob("[0-9]*/stat")]
    return sum(int(field[3]) == session and field[0] != "Z" for field in fields if field)


def read_stat(path: Path) -> list[str]:
    try:
        return path.read_text().rpartition(")")[2].split()
    except OSError:
        return []


def test_ctrl_c_leaves_nothing(make, tmp_path):
    config = make_large(make, tmp_path)
    configs.save(config, tmp_path / "config.json")
    code = (
        "import sys; from bert_jax import config; from bert_jax.data import prepare\n"
        f"try: prepare.prepare(config.load({str(tmp_path / 'config.json')!r}))\n"
        "except KeyboardInterrupt: sys.exit(130)"
    )
    pipe = subprocess.PIPE
    parent = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stderr=pipe)
    wait_for(lambda: at_work(tmp_path))
    os.killpg(parent.pid, signal.SIGINT)  # as a terminal does: to workers too
    _, errors = parent.communicate(timeout=30)
    assert parent.returncode == 130 and errors == b""
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.json",
        "corpus.txt",
        "vocabulary",
    ]
