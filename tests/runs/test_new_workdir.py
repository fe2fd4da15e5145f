"""A model of others becomes a run in a bucket: that of a disk."""

import pytest
from kits import outside
from kits.runs import assert_same_bits, make_run, params

from bert_jax import cli, config
from bert_jax.commands import import_model
from bert_jax.data.vocabulary import given_vocabulary
from bert_jax.errors import BadInput
from bert_jax.runs import mirror

bucket = pytest.importorskip("kits.bucket", reason="needs gcsfs: pip install 'bert_jax[gcs]'")
there = bucket.there
RUN = "gs://bucket/runs/one"


@pytest.fixture
def source(tmp_path):
    return outside.write_huggingface(tmp_path / "model")


def small(names) -> set:
    return {name for name in names if not name.startswith("checkpoints/")}


@pytest.mark.full
@pytest.mark.slow
def test_an_import_into_a_bucket_is_that_of_a_disk(there, source, tmp_path):
    run = tmp_path / "run"
    import_model.import_model(source, run)
    assert cli.main(["import", "--source", str(source), "--workdir", RUN]) == 0
    names = {name.removeprefix("runs/one/") for name in there.names("runs/one/")}
    files = [path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()]
    assert small(names) == small(files)
    last = max(names, key=lambda name: there.objects[f"runs/one/{name}"].generation)
    assert last == "run.json"
    with mirror.copied(RUN) as copy:
        assert_same_bits(params(copy), params(run))


def test_an_import_touches_no_workdir_that_is_there(there, source, capsys):
    there.put("runs/one/notes.txt", b"mine", {})
    assert cli.main(["import", "--source", str(source), "--workdir", RUN]) == 2
    assert RUN in capsys.readouterr().err
    assert there.names() == ["runs/one/notes.txt"]


def test_a_vocabulary_in_a_bucket_is_that_of_the_file(there, tmp_path):
    make_run(tmp_path / "run")
    path = tmp_path / "run/tokenizer/vocab.txt"
    there.put("vocab.txt", path.read_bytes(), {})
    one, other, none = (
        config.load("demo", [f"tokenizer.path={name}"])
        for name in (path, "gs://bucket/vocab.txt", "gs://bucket/none.txt")
    )
    assert given_vocabulary(one).fingerprint == given_vocabulary(other).fingerprint
    with pytest.raises(BadInput, match="gs://bucket/none.txt"):
        given_vocabulary(none)
