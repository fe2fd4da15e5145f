"""A model does what its objective names, and refuses the rest; predictions need neither TensorFlow nor files."""

import os
import subprocess
import sys
from dataclasses import replace

import jax
import pytest
from kits.runs import make_run

import bert_jax
from bert_jax.convert import open_model
from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer as tokenizers

# {objective: its task, and other keys}
KEYS = {
    "mlm": ("sentence_pairs",),
    "causal_lm": ("token_blocks",),
    "classifier": ("classification", "task.labels=0,1"),
    "token_classifier": ("token_classification", "task.labels=0,1"),
    "multiple_choice": ("multiple_choice", "task.labels=0,1", "task.endings=a,b"),
    "spans": ("question_answering", "task.question_length=9"),
    "translation": ("translation", "model.name=transformer", "task.max_pieces=20"),
}
CAN = {
    "mlm": {"fill", "score"},
    "causal_lm": {"generate", "score"},
    "classifier": {"predict"},
    "token_classifier": {"predict"},
    "multiple_choice": {"predict"},
    "spans": {"predict"},
    "translation": {"translate"},
}
TEXT = {"fill": "the [MASK] fox", "predict": ("who?", "the fox", "no fox")}
TEXTS = {"classifier": 1, "token_classifier": 1, "spans": 2, "multiple_choice": 3}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """The directory of a run of each objective."""
    path = tmp_path_factory.mktemp("runs")
    words = tokenizers.train("wordpiece", ["the quick brown fox, who is no dog"] * 9, 60, True)
    for name, (task, *keys) in KEYS.items():
        if name != "mlm":
            keys = [f"objective.name={name}", f"task.name={task}", *keys]
        make_run(path / name, *keys, words=words)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("objective", KEYS)
def test_a_model_does_what_it_can_and_says_what_it_cannot(directory, objective):
    """Without `can`, as of an objective from outside, it has features alone."""
    model = bert_jax.load(directory / objective)
    assert model.encode(["the fox", "a"]).shape == (2, 32)

    def call(name: str):
        text = TEXT.get(name, "the fox")
        if name == "predict":
            text = text[: TEXTS.get(objective, 1)]
        return getattr(model, name)([text])

    for name in ("fill", "generate", "translate", "predict", "score"):
        if name in CAN[objective]:
            assert len(call(name)) == 1
            continue
        with pytest.raises(BadInput, match=f"{objective}: objective '{objective}' cannot") as error:
            call(name)
        assert "\n" not in str(error.value)
    model.loaded = model.loaded._replace(objective=replace(model.loaded.objective, can={}))
    for name in CAN[objective]:
        with pytest.raises(BadInput, match="cannot"):
            call(name)
    assert model.encode("the fox").shape == (32,)


def test_a_head_that_is_not_trained_is_refused(directory):
    model = open_model.open_model(directory / "classifier", head="label")
    open_model.check_can("here", model, "label")
    fresh = model._replace(step=0, info={"fresh": ["label"]})
    with pytest.raises(BadInput, match="here: .*'label'"):
        open_model.check_can("here", fresh, "answer", "label")


PROGRAM = """
import sys
sys.modules["tensorflow"] = None  # an import raises
from bert_jax.cli import main
for name, *texts in {}:
    assert main(["predict", "--model", f"{}/{{name}}", *texts]) == 0
"""


@pytest.mark.slow
def test_predictions_need_neither_tensorflow_nor_files(directory, tmp_path):
    (tmp_path / "context.txt").write_text("the fox")
    (tmp_path / "empty").mkdir()
    places = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), str(tmp_path / "empty"))
    programs = jax.config.jax_compilation_cache_dir
    asked = ["--context", str(tmp_path / "context.txt"), "--question", "who?"]
    calls = [(name, "the fox") for name in ("classifier", "token_classifier", "translation")]
    calls += [("spans", *asked), ("multiple_choice", "a", "b", "c"), ("mlm", "a [MASK]")]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(calls, directory)],
        cwd=tmp_path / "empty",
        env={**os.environ, **places, "JAX_COMPILATION_CACHE_DIR": programs},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert not list((tmp_path / "empty").iterdir())
