"""A model of others becomes a run in a bucket: that of a disk, whole or not at all, and training goes on from there."""

import json
import time
from types import SimpleNamespace

import pytest
from kits import outside
from kits.corpora import make_text, write
from kits.outside import SETTINGS as LONGER
from kits.running import assert_same_bits
from kits.runs import make_run

from bert_jax import cli, config, train
from bert_jax.commands import import_model, load_model
from bert_jax.data import feed, prepare, vocabulary_file
from bert_jax.data.vocabulary_file import given_vocabulary
from bert_jax.errors import BadInput, Unfinished
from bert_jax.runs import lease, mirror, new_workdir

bucket = pytest.importorskip("kits.bucket", reason="needs gcsfs: pip install 'bert_jax[gcs]'")
there = bucket.there
RUN = "gs://bucket/runs/one"
SETTINGS = LONGER | {"phases.main.steps": 4}


@pytest.fixture
def source(tmp_path):
    return outside.write_huggingface(tmp_path / "model")


def test_it_is_that_of_a_disk_and_goes_on(there, source, tmp_path, capsys):
    """The store too, whose vocabulary is the one in the bucket; and where all of it was copied elsewhere."""
    settings = SETTINGS | {"corpus.source": write(tmp_path / "corpus.txt", make_text(60))}
    overrides = [f"{key}={value}" for key, value in settings.items()]
    import_model.import_model(source, tmp_path / "run", None, overrides)
    words = [f"--config.{override}" for override in overrides]
    assert cli.main(["import", "--source", str(source), "--workdir", RUN, *words]) == 0
    go_on = f"to go on: bert-jax pretrain --config {RUN}/config.json --workdir {RUN}\n"
    assert capsys.readouterr().out.endswith(go_on)
    names = {name.removeprefix("runs/one/") for name in there.names("runs/one/")}
    written = [name for name in there.names() if not name.endswith(".lock")]
    assert max(written, key=lambda name: there.objects[name].generation) == "runs/one/run.json"
    small = {name for name in names if not name.startswith("checkpoints/")}
    here = {path.relative_to(tmp_path / "run").as_posix() for path in files(tmp_path / "run")}
    assert small == {name for name in here if not name.startswith("checkpoints/")}
    with mirror.copied(RUN) as copy:
        assert_same_bits(
            load_model.open_run(copy).params, load_model.open_run(tmp_path / "run").params
        )
    for name in there.names("runs/one/"):
        there.put(name.replace("/one/", "/two/"), there.objects.pop(name).data, {})
    moved = RUN.replace("one", "two")
    found = config.load(f"{moved}/config.json", [f"store={moved}/store"])
    assert found.tokenizer.path == f"{moved}/tokenizer/vocab.txt"
    prepare.prepare(found, lambda line: None)
    with mirror.copied(moved) as copy:
        opened = train.open_data(found, copy, 0)  # or it says what does not fit the run
        assert opened.vocabulary.size == load_model.open_run(copy).vocabulary.size
        assert not (copy / "store").exists() and "runs/two/store/manifest.json" in there.names()


def files(directory) -> list:
    return [path for path in directory.rglob("*") if path.is_file()]


@pytest.mark.parametrize("when", ["_CHECKPOINT_METADATA", "commit_success.txt"])
def test_what_fails_leaves_nothing(there, source, when):
    """In the checkpoint, or after it."""
    there.put("runs/one-more/run.json", b"{}", {})

    def refuse(method, name):
        is_late = f"runs/one/checkpoints/0/{when}" in there.objects
        return 403 if is_late and method == "POST" and "lock" not in name else 0

    there.fault = refuse
    with pytest.raises((BadInput, Unfinished), match=f"^{RUN}.*OSError: Forbidden"):
        import_model.import_model(source, RUN)
    assert there.names() == ["runs/one-more/run.json"]


def test_what_is_there_stays(there, source, capsys):
    there.put("runs/one/notes.txt", b"mine", {})
    assert cli.main(["import", "--source", str(source), "--workdir", RUN]) == 2
    told = capsys.readouterr().err
    assert told == f"bert-jax: --workdir {RUN}: there already, and not empty\n"
    assert there.names() == ["runs/one/notes.txt"]


def test_who_has_taken_the_lock_meanwhile_keeps_its_files(there, monkeypatch):
    monkeypatch.setattr(lease, "PERIOD", 0.1)
    lost = pytest.raises(Unfinished, match=f"^{RUN}: another process")
    with lost, new_workdir.made(RUN) as directory:
        (directory / "run.json").write_text("{}")
        holder = json.loads(there.text("runs/one/.lock")) | {"lease": "another"}
        there.put("runs/one/.lock", json.dumps(holder).encode(), {})
        there.put("runs/one/run.json", b"theirs", {})
        time.sleep(0.5)  # a few periods
    assert there.text("runs/one/run.json") == "theirs"
    assert there.names() == ["runs/one/.lock", "runs/one/run.json"]


def test_a_vocabulary_in_a_bucket(there, tmp_path):
    """Is that of the file; what is wrong with it is said by its own name."""
    make_run(tmp_path / "run")
    name = "gs://bucket/vocab.txt"
    text = (tmp_path / "run/tokenizer/vocab.txt").read_bytes()
    there.put("vocab.txt", text, {})
    for data in (text, text + b"more\n"):
        there.put("vocab.txt", data, {})
        (tmp_path / "vocab.txt").write_bytes(data)
        one, other = (
            given_vocabulary(config.load("demo", [f"tokenizer.path={path}"])).fingerprint
            for path in (name, tmp_path / "vocab.txt")
        )
        assert one == other
    there.put("vocab.txt", b"", {})
    for read in (given_vocabulary, lambda asked: vocabulary_file.likely_vocabulary(asked, print)):
        with pytest.raises(BadInput, match=f"^{name}: "):
            read(config.load("demo", [f"tokenizer.path={name}", "store=none"]))
    with pytest.raises(BadInput, match="^gs://bucket/none.txt: not there"):
        given_vocabulary(config.load("demo", ["tokenizer.path=gs://bucket/none.txt"]))
    said = []
    asked = config.load("demo", ["tokenizer.path=gs://bucket/none.txt", "store=none"])
    vocabulary_file.likely_vocabulary(asked, said.append)
    assert said[0].startswith("config.tokenizer.path=gs://bucket/none.txt: not there, ")


def test_that_of_saved_batches_is_compared_with_the_one_in_the_bucket(there, tmp_path):
    """Which need not be there."""
    make_run(tmp_path / "run")
    text = (tmp_path / "run/tokenizer/vocab.txt").read_bytes()
    there.put("vocab.txt", text, {})
    asked = config.load("demo", ["tokenizer.path=gs://bucket/vocab.txt"])
    batches = SimpleNamespace(manifest={"made_from": prepare.made_from(asked)})
    opened = SimpleNamespace(config=asked, saved=batches, path=tmp_path / "run")
    assert feed.differing_text(opened) == []
    there.put("vocab.txt", text + b"more\n", {})
    (line,) = feed.differing_text(opened)
    assert line.startswith("config.tokenizer.path: ")
    there.objects.clear()
    for name in ("gs://bucket/vocab.txt", "none://bucket/vocab.txt"):
        asked.tokenizer.path = name
        assert feed.differing_text(opened) == []
