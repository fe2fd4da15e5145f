"""The weights, config.json and card of an exported directory, of pretrained and fine-tuned runs, as transformers has
them (bitwise: tests/commands/test_export.py)."""

import json
import re
from functools import partial

import jax
import numpy as np
import pytest
from kits.malformed_inputs import refused
from kits.runs import TRAIN, make_run, run_batch
from kits.small import ALBERT, ELECTRA, MODERN, ROBERTA
from safetensors.numpy import load_file

from bert_jax.cli import main
from bert_jax.convert import model_card, names, open_model, to_huggingface
from bert_jax.inference import predict
from bert_jax.layers import heads
from bert_jax.models import base as models
from bert_jax.objectives import base
from bert_jax.runs import open_run


def write(directory, run, fresh=()):
    """Writes a directory without the parts in `fresh`; returns its config.json."""
    if isinstance(run, open_run.OpenModel):
        run = run.config, run.vocabulary, run.tokenizer, run.params
    config, vocabulary, tokenizer, params = run
    directory.mkdir()
    left_out = {item.path for item in names.parameters(config.model) if item.part in fresh}
    params = {path: x for path, x in names.by_path(params).items() if path not in left_out}
    model = config, vocabulary, tokenizer, params
    to_huggingface.write(directory, *model, config.model.max_length)
    return json.loads((directory / "config.json").read_text())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("run") / "run")


def test_config_json_has_the_settings_of_the_run(tmp_path, run):
    config, vocabulary, *_ = run
    values = write(tmp_path / "out", run)
    expected = {"architectures": ["BertForPreTraining"], "model_type": "bert", "hidden_size": 32}
    expected |= {"vocab_size": vocabulary.size, "num_hidden_layers": 2, "intermediate_size": 128}
    expected |= {"num_attention_heads": 4, "max_position_embeddings": 32, "type_vocab_size": 2}
    expected |= {"hidden_act": "gelu_new", "layer_norm_eps": 1e-12, "tie_word_embeddings": True}
    assert values | expected == values
    config = config.copy_and_resolve_references()
    config.model.update(activation="relu", feed_forward=48, epsilon=1e-5)
    values = to_huggingface.config_json(config, vocabulary, ["mlm"])
    expected = {"hidden_act": "relu", "intermediate_size": 48, "layer_norm_eps": 1e-5}
    assert values | expected == values


def test_kernels_have_the_layout_of_pytorch(tmp_path, run):
    """The names are spelled out here, independently of names.py."""
    write(tmp_path / "out", run)
    tensors = load_file(tmp_path / "out/model.safetensors")
    block = run[-1]["network"]["blocks_1"]
    for name, ours in (
        ("attention.self.query", block["attention"]["query"]),
        ("intermediate.dense", block["feed_forward"]["up"]),
    ):
        theirs = tensors[f"bert.encoder.layer.1.{name}.weight"]
        np.testing.assert_array_equal(theirs, ours["kernel"].T)


@pytest.mark.parametrize(
    "fresh, architecture, left_out",
    [
        (("pair",), "BertForMaskedLM", ("cls.seq_relationship",)),
        (("mlm",), "BertForNextSentencePrediction", ("cls.predictions",)),
        (("mlm", "pair", "pooler"), "BertModel", ("cls.", "bert.pooler")),
    ],
)
def test_untrained_heads_are_not_written(tmp_path, run, fresh, architecture, left_out):
    values = write(tmp_path / "out", run, fresh)
    assert values["architectures"] == [architecture]
    tensors = set(load_file(tmp_path / "out/model.safetensors"))
    every = {item.huggingface for item in names.parameters(run[0].model)}
    assert tensors == {name for name in every if not name.startswith(left_out)}


# --- Fine-tuned -----------------------------------------------------------------------------------

KINDS = {
    "classes": "single_label_classification",
    "labels": "multi_label_classification",
    "number": "regression",
}
CLASSIFY = "objective.name=classifier", "task.name=classification"
# {objective: (outputs, pooling, end of the architecture, its last layer)}
HEADS = {
    "classifier": (3, "summary", "ForSequenceClassification", "classifier"),
    "token_classifier": (3, "", "ForTokenClassification", "classifier"),
    "spans": (2, "", "ForQuestionAnswering", "qa_outputs"),
    "multiple_choice": (1, "summary", "ForMultipleChoice", "classifier"),
}
# {class of transformers: keys of the model}, and each with all heads; ModernBERT pools in two ways.
MODELS = {"Bert": (), "Albert": ALBERT, "ModernBert": MODERN, "Roberta": ROBERTA}
MODELS["Electra"] = ELECTRA[:2]
MODELS["ModernBert by mean"] = (*MODERN, "model.pooling=mean")
# {class: (pooler of a classifier, layers with other names than in BERT)}
LAYERS = {
    "Bert": ("bert.pooler.dense", {}),
    "Albert": ("albert.pooler", {}),
    "ModernBert": ("", {"spans": "classifier"}),
    "Roberta": ("classifier.dense", {"classifier": "classifier.out_proj"}),
    "Electra": ("classifier.dense", {"classifier": "classifier.out_proj"}),
}
ALL = [(model, head) for model in MODELS for head in HEADS if HEADS[head][1] or " " not in model]
LABELS = "no", "yes", "maybe"


def labeled_run(directory, *overrides):
    labels = "()" if "task.kind=number" in overrides else ",".join(LABELS)
    return make_run(directory, *CLASSIFY, f"task.labels={labels}", *overrides)


def run_of(directory, objective: str, *keys: str) -> tuple:
    """Returns (config, vocabulary, tokenizer, params) of an objective with random parameters, and its outputs."""
    config, vocabulary, tokenizer, _ = labeled_run(directory, "model.max_length=64", *keys)
    outputs, pool, *_ = HEADS[objective]
    module = heads.Classifier(models.make(config, vocabulary.size), outputs, "last", 0.1, pool)
    functions = base.from_module(module)
    params = jax.jit(functions.init)(jax.random.key(1), run_batch(vocabulary))
    draw = np.random.default_rng(0)
    params = jax.tree.map(lambda x: x + draw.normal(0, 0.2, x.shape).astype(np.float32), params)
    config = config.copy_and_resolve_references()
    config.objective.name = objective
    return (config, vocabulary, tokenizer, params), partial(jax.jit(functions.outputs), params)


# Every day, one layer of each model, and all layers of one.
SOME = {
    ("ModernBert by mean", "classifier"),
    ("Roberta", "classifier"),
    *((model, head) for model, head in ALL if model == "Bert"),
}
EACH = [case if case in SOME else pytest.param(*case, marks=pytest.mark.full) for case in ALL]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "objective"), EACH)
def test_the_layer_has_its_name_and_layout(tmp_path, model, objective):
    outputs, pool, end, layer = HEADS[objective]
    name, _, mean = model.partition(" by ")
    pooler, layers = LAYERS[name]
    layer = layers.get(objective, layer)
    run, _ = run_of(tmp_path / "run", objective, *MODELS[model])
    values, tensors = write(tmp_path / "out", run), load_file(tmp_path / "out/model.safetensors")
    label = run[-1]["label"]
    np.testing.assert_array_equal(tensors[f"{layer}.weight"], label["kernel"].T)
    np.testing.assert_array_equal(tensors[f"{layer}.bias"], label["bias"])
    assert values["architectures"] == [name + end] and ("id2label" in values) == (outputs == 3)
    if objective == "multiple_choice":
        others = {"Roberta": "roberta.pooler.dense", "Electra": "sequence_summary.summary"}
        pooler = others.get(name, pooler)
    ends = ".dense.bias", "pooler.bias", "summary.bias"
    poolers = [key for key in tensors if key.endswith(ends)]
    poolers = [key for key in poolers if "layer" not in key]
    assert poolers == ([f"{pooler}.bias"] if pooler and pool == "summary" else [])
    assert ("head.dense.weight" in tensors) == (name == "ModernBert")
    assert values.get("classifier_pooling", "cls") == (mean or "cls")


@pytest.mark.parametrize("kind", KINDS)
def test_config_json_has_the_labels_and_the_kind(tmp_path, kind):
    metric = "pearson" if kind == "number" else "accuracy"
    keys = f"task.kind={kind}", f"task.metrics={metric}"
    values = write(tmp_path / "out", labeled_run(tmp_path / "run", *keys))
    assert values["problem_type"] == KINDS[kind]
    labels = ("LABEL_0",) if kind == "number" else LABELS
    assert values["id2label"] == {str(n): label for n, label in enumerate(labels)}
    assert values["label2id"] == {label: n for n, label in enumerate(labels)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides, options, named",
    [
        ((), ("--format", "google"), "objective.name=classifier"),
        (("objective.pool=mean",), (), "objective.pool=mean"),
        (("model.norm=pre",), (), "model.norm=pre"),
        (("objective.pool=first", "objective.features=mix"), (), "objective.features=mix"),
    ],
)
def test_what_a_format_lacks_is_refused(tmp_path, overrides, options, named):
    labeled_run(tmp_path / "run", *overrides)
    paths = "--model", tmp_path / "run", "--output", tmp_path / "out"
    assert named in refused("export", *paths, *options)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_the_card_names_task_labels_and_scores(tmp_path):
    """Of each split, those of the last evaluation up to the exported step."""
    labeled_run(tmp_path / "run", f"task.data={tmp_path}/mine", "task.text=a,b")
    scores = [(5, "dev", 0.25), (7, "dev", 0.5), (7, "dev_other", 0.75), (9, "dev", 0.99)]
    lines = [TRAIN, *({"step": a, "split": b, "seconds": 1.0, "f1": c} for a, b, c in scores)]
    (tmp_path / "run/metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    paths = "--model", str(tmp_path / "run"), "--output", str(tmp_path / "out")
    assert main(["export", *paths]) == 0
    card = (tmp_path / "out/README.md").read_text()
    parts = "pipeline_tag: text-classification", "no, yes, maybe", "text_pair", "bert-jax finetune"
    for part in (*parts, "f1 | 0.5000", "f1 | 0.7500", "`dev_other`", "`mine`"):
        assert part in card, part
    assert "0.2500" not in card and "0.9900" not in card
    assert str(tmp_path) not in card + (tmp_path / "out/training.json").read_text()


@pytest.mark.parametrize(
    ("keys", "fresh"),
    [
        ((), {"mlm", "pair"}),
        (ALBERT, {"mlm", "pair"}),
        (ELECTRA[:2], {"generator", "replaced"}),
        (MODERN, {"mlm"}),
        (ROBERTA, {"mlm"}),
    ],
)
def test_the_network_of_a_fine_tuned_model_is_read(tmp_path, keys, fresh):
    """With the head of ModernBERT; the last layer is not, nor that in front of it in a classifier of RoBERTa
    or ELECTRA."""
    run = labeled_run(tmp_path / "run", *keys)
    write(tmp_path / "out", run)
    model = open_model.open_model(tmp_path / "out")
    assert model.info["fresh"] == sorted(fresh)
    ours, theirs = names.by_path(run[-1]), names.by_path(model.params)
    layers = ("label/", "network/pooler/" if keys in (ROBERTA, ELECTRA[:2]) else "label/")
    for path in ours.keys() - {"network/embedder/words"}:
        if path.startswith(layers):
            continue
        np.testing.assert_array_equal(theirs[path], ours[path])
    assert ours["network/embedder/words"].shape == theirs["network/embedder/words"].shape


PREDICTED = {
    "classifier": (
        "task.name=classification",
        "task.kind=number",
        "task.metrics=pearson",
        "task.text=a,b",
    ),
    "token_classifier": ("task.name=token_classification", "task.labels=O,B-x", *MODERN),
    "spans": ("task.name=question_answering", "task.question_length=5", "task.stride=9"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "objective",
    ["classifier", *(pytest.param(each, marks=pytest.mark.full) for each in [*PREDICTED][1:])],
)
def test_an_exported_model_predicts_what_its_run_does(tmp_path, objective):
    """With the columns, labels and lengths of its task; other commands read its body."""
    keys = [*PREDICTED[objective], "model.max_length=64", "phases.main.length=24"]
    make_run(tmp_path / "run", f"objective.name={objective}", *keys)
    write(tmp_path / "out", open_model.open_model(tmp_path / "run"))
    texts = ["the cat sat on the mat", "where the dog was " * 9]
    (ours, _), (theirs, _) = (predict.predict(tmp_path / name, texts) for name in ("run", "out"))
    assert len(ours) == (2 if objective == "token_classifier" else 1)
    for result, expected in zip(theirs, ours, strict=True):
        assert result.keys() == expected.keys()
        for key, value in expected.items():
            same = pytest.approx(value, abs=1e-5) if isinstance(value, float) else value
            assert result[key] == same
    assert open_model.open_model(tmp_path / "out").config.objective.name == "mlm"
    path = tmp_path / "out/config.json"
    values = json.loads(path.read_text())
    for altered in ({"labels": 3}, [], {"length": 24, "labels": [], "columns": "x"}):
        path.write_text(json.dumps(values | {"bert_jax_task": altered}))
        assert str(tmp_path / "out") in refused("predict", "--model", tmp_path / "out", "a", "b")


# --- With PyTorch ---------------------------------------------------------------------------------

ALONE = MODERN, ROBERTA  # models without a pair loss


def outputs_of_transformers(directory, arrays, *rows):
    """Returns (config, outputs) of the class in config.json, which must have exactly the directory's tensors."""
    torch = pytest.importorskip("torch")
    import transformers

    (name,) = json.loads((directory / "config.json").read_text())["architectures"]
    end = re.sub(".*([Bb]ert|[Bb]erta|Electra)(?=For)", "", name)
    load = getattr(transformers, f"AutoModel{end}").from_pretrained
    model, info = load(directory, output_loading_info=True)
    assert not any(info.values()) and type(model).__name__ == name
    inputs = {"input_ids": "tokens", "attention_mask": "sequence_ids"}
    if getattr(model.config, "type_vocab_size", 1) > 1:
        inputs["token_type_ids"] = "segments"
    inputs = {key: torch.tensor(arrays[name]).long() for key, name in inputs.items()}
    with torch.no_grad():
        return model.config, model(**{key: x.reshape(*rows, -1) for key, x in inputs.items()})


@pytest.mark.full
@pytest.mark.parametrize(
    "keys", [(), ("model.activation=gelu",), ("model.activation=relu",), ALBERT, MODERN, ROBERTA]
)
def test_logits_equal_those_of_transformers(tmp_path, keys):
    run = make_run(tmp_path / "run", *keys, *["task.pair_task=none"] * (keys in ALONE))
    config, vocabulary, _, params = run
    write(tmp_path / "out", run)
    arrays = run_batch(vocabulary)
    ours = base.make(config, vocabulary).outputs(params, arrays)
    _, theirs = outputs_of_transformers(tmp_path / "out", arrays, 6)
    positions = arrays["masked_positions"][..., None]
    expected = theirs.logits if keys in ALONE else theirs.prediction_logits
    expected = np.take_along_axis(expected.numpy(), positions, axis=1)
    logits = np.asarray(ours["mlm_logits"])[..., : vocabulary.size]
    assert np.abs(logits - expected).max() < 2e-5
    if keys not in ALONE:
        pairs = np.asarray(ours["pair_logits"])[:, 0]
        expected = theirs.sop_logits if keys == ALBERT else theirs.seq_relationship_logits
        assert np.abs(pairs - expected.numpy()).max() < 2e-5


@pytest.mark.full
@pytest.mark.parametrize(("model", "objective"), ALL)
def test_logits_and_labels_of_tasks_equal_those_of_transformers(tmp_path, model, objective):
    run, outputs = run_of(tmp_path / "run", objective, *MODELS[model])
    write(tmp_path / "out", run)
    arrays = run_batch(run[1])
    rows = (2, 3) if objective == "multiple_choice" else (6,)
    config, theirs = outputs_of_transformers(tmp_path / "out", arrays, *rows)
    if HEADS[objective][0] == 3:
        assert tuple(config.id2label.values()) == LABELS
    ours = np.asarray(outputs(arrays)["label_logits"])
    if objective == "spans":
        expected = np.stack([theirs.start_logits, theirs.end_logits], axis=-1)
    else:
        expected = theirs.logits.numpy().reshape(len(ours), -1, ours.shape[-1])
    real = arrays["sequence_ids"] if ours.shape[1] > 1 else np.ones((len(ours), 1))
    assert np.abs(ours - expected)[real > 0].max() < 1e-4


@pytest.mark.full
@pytest.mark.parametrize("objective", [*HEADS, "pairs"])
def test_the_code_in_the_card_runs(tmp_path, monkeypatch, capsys, objective):
    pytest.importorskip("torch")
    name = "classifier" if objective == "pairs" else objective
    run, _ = run_of(tmp_path / "run", name)
    write(tmp_path / "out", run)
    config, task = run[0], names.LABELERS[name][1]
    if objective == "pairs":
        config.task.text = ("a", "b")
    monkeypatch.chdir(tmp_path)
    text = model_card.usage(config, task, "out", "[MASK]")
    capsys.readouterr()
    exec(text.removeprefix("```python").removesuffix("```"), {})
    printed = capsys.readouterr().out
    assert printed and ("pair" in text) == (objective == "pairs")
