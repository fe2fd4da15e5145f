"""XLNet's exchange with transformers, in both directions."""

import json
import shutil

import jax
import numpy as np
import pytest
from kits import runs
from safetensors.numpy import load_file, save_file

from bert_jax.cli import main
from bert_jax.convert import names, open_model
from bert_jax.errors import BadInput
from bert_jax.inference import batches
from bert_jax.tokenizers.special_tokens import frame_of

SYSTEM = "model.name=xlnet.model", "objective.name=xlnet.objective", "task.name=xlnet.task"
SHORT = *SYSTEM, "phases.main.length=16", "phases.main.max_predictions=5"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """(tokenizer, params) of a run, and the directory of its export."""
    directory = tmp_path_factory.mktemp("xlnet")
    ranks = np.ones((1, 8), np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "with_target", lambda batch: batch | {"ranks": ranks})
        _, _, tokenizer, params = runs.make_run(directory / "run", *SYSTEM, kind="unigram")
    paths = "--model", str(directory / "run"), "--output", str(directory / "out")
    assert main(["export", *paths]) == 0
    return (tokenizer, params), directory / "out"


def assert_equal(arrays: dict, expected: dict, pieces: int):
    """Asserts that arrays are the expected ones of their paths, without the padding of the vocabulary."""
    for path, array in arrays.items():
        size = pieces if path in ("lm/bias", "network/embedder/words") else None
        np.testing.assert_array_equal(array[:size], expected[path][:size], err_msg=path)


def test_an_export_is_imported_again(exported):
    (_, params), directory = exported
    ours = names.by_path(params)
    model = open_model.open_model(directory, [*SHORT])
    assert model.info["fresh"] == [] and model.info["imported"]["unused"] == []
    assert_equal(names.by_path(model.params), ours, model.vocabulary.size)
    tensors = load_file(directory / "model.safetensors")
    attention = ours["network/blocks_1/attention/query/kernel"]
    layer = "transformer.layer.1.rel_attn"
    np.testing.assert_array_equal(tensors[f"{layer}.q"].reshape(32, 32), attention)
    out = ours["network/blocks_1/attention/out/kernel"]
    np.testing.assert_array_equal(tensors[f"{layer}.o"].reshape(32, 32), out.T)
    assert tensors["transformer.mask_emb"].shape == (1, 1, 32)
    values = json.loads((directory / "tokenizer_config.json").read_text())
    assert values["padding_side"] == "left" and "token_type_ids" in values["model_input_names"]
    template = json.loads((directory / "tokenizer.json").read_text())["post_processor"]
    for kind, segments in (("single", [0, 0, 2]), ("pair", [0, 0, 1, 1, 2])):
        parts = [[*part.values()][0]["type_id"] for part in template[kind]]
        assert parts == segments


def change(directory, tmp_path, **values):
    """Returns a copy of an export with other values in its config.json."""
    source = tmp_path / "source"
    shutil.copytree(directory, source)
    path = source / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return source


@pytest.mark.parametrize(("key", "value"), [("attn_type", "uni"), ("clamp_len", 9), ("d_model", 0)])
def test_other_models_are_refused(exported, tmp_path, key, value):
    source = change(exported[1], tmp_path, **{key: value})
    with pytest.raises(BadInput, match=f"config.json: {key}"):
        open_model.open_model(source, [*SYSTEM])


def test_matrices_of_another_shape_are_refused(exported, tmp_path):
    source = change(exported[1], tmp_path)
    tensors = load_file(source / "model.safetensors")
    name = "transformer.layer.0.rel_attn.q"
    for array in (tensors[name][:, :1], tensors[name][:, 0]):
        save_file(tensors | {name: array}, source / "model.safetensors")
        with pytest.raises(BadInput, match=name):
            open_model.open_model(source, [*SYSTEM])


def test_without_its_name_the_model_is_unknown(exported):
    with pytest.raises(BadInput, match="model_type is 'xlnet'"):
        open_model.open_model(exported[1])


TEXTS = "The fox ran.", "It was not seen again."


@pytest.mark.full
def test_transformers_opens_an_export(exported):
    """Its classes have all tensors, and the tokenizer puts texts into the frame."""
    torch = pytest.importorskip("torch")
    import transformers

    (tokenizer, params), directory = exported
    theirs, report = transformers.XLNetLMHeadModel.from_pretrained(
        directory, output_loading_info=True
    )
    assert not any(report[name] for name in ("missing_keys", "unexpected_keys"))
    assert isinstance(transformers.AutoModel.from_pretrained(directory), transformers.XLNetModel)
    words = transformers.AutoTokenizer.from_pretrained(directory)
    inputs = words([TEXTS[0], TEXTS[1]], [TEXTS[1], ""], padding=True, return_tensors="pt")
    a, b = tokenizer.encode([*TEXTS])
    sep, cls = tokenizer.special["sep"], tokenizer.special["cls"]
    assert inputs["input_ids"][0].tolist() == [*a, sep, *b, sep, cls]
    assert inputs["token_type_ids"][0].tolist() == [0] * (len(a) + 1) + [1] * (len(b) + 1) + [2]
    assert inputs["input_ids"][1, -1] == cls and inputs["attention_mask"][1, 0] == 0

    model = open_model.open_model(directory, [*SHORT])
    row = [([*a, sep, *b, sep, cls], 0)]
    batch = batches.make_batch([row], len(row[0][0]))
    batch["segments"] = inputs["token_type_ids"][:1].numpy().astype(np.int32)
    network = model.objective.module.network
    ours = network.apply({"params": params["network"]}, batch)
    with torch.no_grad():
        expected = theirs.transformer.eval()(
            input_ids=inputs["input_ids"][:1], token_type_ids=inputs["token_type_ids"][:1]
        )
    np.testing.assert_allclose(ours, expected.last_hidden_state, atol=2e-5)


@pytest.mark.full
@pytest.mark.parametrize(("name", "fresh"), [("LMHeadModel", []), ("Model", ["lm"])])
def test_directories_of_transformers_are_read(exported, tmp_path, name, fresh):
    """With its own tokenizer, too, whose special tokens have other names."""
    pytest.importorskip("torch")
    import transformers

    directory = exported[1]
    source = tmp_path / "source"
    getattr(transformers, f"XLNet{name}").from_pretrained(directory).save_pretrained(source)
    pieces = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]
    count = json.loads((source / "config.json").read_text())["vocab_size"] - len(pieces)
    words = [f"▁{chr(0x4E00 + number)}" for number in range(count)]
    vocabulary = [(piece, -float(number)) for number, piece in enumerate(pieces + words)]
    theirs = transformers.XLNetTokenizer(vocab=vocabulary)
    theirs.save_pretrained(source)
    model = open_model.open_model(source, [*SHORT])
    assert model.info["fresh"] == fresh
    special = model.tokenizer.special
    assert [special[key] for key in ("unk", "cls", "sep", "pad", "mask")] == [0, 3, 4, 5, 6]
    text = f"{words[5][1:]} {words[2][1:]}"
    assert model.tokenizer.encode([text]) == [theirs(text, add_special_tokens=False)["input_ids"]]
    before, after = (names.by_path(x) for x in (exported[0][1], model.params))
    kept = [path for path in after if path.partition("/")[0] not in fresh]
    assert len(kept) > 30
    assert_equal({path: after[path] for path in kept}, before, model.vocabulary.size)


LABELS = {
    "classifier": ("classification", "SequenceClassification", "no,yes,maybe"),
    "token_classifier": ("token_classification", "TokenClassification", "O,B-a,I-a"),
}


@pytest.mark.full
@pytest.mark.parametrize("objective", LABELS)
def test_a_fine_tuned_model_labels_texts_as_in_transformers(tmp_path, objective):
    """By the vectors of the last token or of each one, behind padding at the left; and imported again."""
    task, kind, labels = LABELS[objective]
    torch = pytest.importorskip("torch")
    import transformers

    keys = f"objective.name={objective}", f"task.name={task}", f"task.labels={labels}"
    runs.make_run(tmp_path / "run", SYSTEM[0], *keys, kind="unigram")
    paths = "--model", str(tmp_path / "run"), "--output", str(tmp_path / "out")
    assert main(["export", *paths]) == 0
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    theirs = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(tmp_path / "out")
    assert isinstance(theirs, getattr(transformers, f"XLNetFor{kind}"))
    inputs = words([*TEXTS], padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = theirs.eval()(**inputs).logits
    for source, overrides in ((tmp_path / "run", []), (tmp_path / "out", [SYSTEM[0]])):
        model = open_model.open_model(source, overrides, head="label")
        frame = frame_of(model.config).ids(model.tokenizer.special)
        rows = [[frame.wrap(ids)] for ids in model.tokenizer.encode([*TEXTS])]
        batch = batches.make_batch(rows, 32)
        ours = np.asarray(jax.jit(model.objective.outputs)(model.params, batch)["label_logits"])
        for row, ([(ids, _)], logits) in enumerate(zip(rows, expected.numpy(), strict=True)):
            is_words = objective == "token_classifier"
            logits = logits[-len(ids) :] if is_words else logits[None]
            np.testing.assert_allclose(ours[row, : len(logits)], logits, atol=2e-5)
