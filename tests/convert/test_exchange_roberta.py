"""RoBERTa as RobertaForMaskedLM: exported, imported, refused, continued, and, with PyTorch, logits, loss and gradients
beside those of transformers. Layers of tasks: test_to_huggingface.py."""

import re

import jax
import numpy as np
import pytest
import transformers
from kits import external_models, vocabularies
from kits.external_models import assert_same_params, read_json
from kits.malformed_inputs import refused_import
from kits.runs import make_run, run_batch
from kits.small import ROBERTA, small_config
from kits.texts import DIFFICULT, PROSE
from safetensors.numpy import load_file, save_file

import bert_jax
from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.convert import init_from, names, open_model, settings
from bert_jax.errors import BadInput
from bert_jax.models import base as models
from bert_jax.objectives import base
from bert_jax.parallel.cluster import Cluster
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.special_tokens import Vocabulary

KEYS = (*ROBERTA, "task.name=full_sentences", "model.initializer=0.03")
WEIGHTS = "model.safetensors"
EMBEDDINGS = "roberta.embeddings."
POSITIONS = f"{EMBEDDINGS}position_embeddings.weight"
SEGMENTS = f"{EMBEDDINGS}token_type_embeddings.weight"
FIRST = 2  # row of positions of the first token, after that of <pad>, 1


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A directory with a vocabulary as the published one, and its merges."""
    return vocabularies.write_roberta(tmp_path_factory.mktemp("words") / "words")


@pytest.fixture(scope="module")
def exported(words, tmp_path_factory):
    """(run as make_run returns it, exported directory)."""
    directory = tmp_path_factory.mktemp("exported")
    run = make_run(directory / "run", *KEYS, words=tokenizers.from_file(words, False))
    export(directory / "run", directory / "out")
    return run, directory / "out"


def export(run, output) -> None:
    assert main(["export", "--model", str(run), "--output", str(output)]) == 0


def write_source(exported, directory, changes: dict, left_out=()):
    """Returns a copy of the export with other tensors."""
    source = external_models.copy(exported[1], directory / "source")
    tensors = load_file(source / WEIGHTS) | changes
    save_file({name: tensors[name] for name in tensors if name not in left_out}, source / WEIGHTS)
    return source


# --- Export ---------------------------------------------------------------------------------------


def test_names_and_layouts_are_those_of_transformers(exported):
    """They are spelled out here. Rows of positions that no token reads, and the segment, are zero."""
    (_, vocabulary, _, params), directory = exported
    tensors = load_file(directory / WEIGHTS)
    params = jax.device_get(params)
    network, head = params["network"], params["mlm"]
    block = network["blocks_1"]
    expected = {
        f"{EMBEDDINGS}word_embeddings.weight": network["embedder"]["words"][: vocabulary.size],
        f"{EMBEDDINGS}LayerNorm.weight": network["embedder_norm"]["scale"],
        POSITIONS: np.pad(network["embedder"]["positions"], [(FIRST, 0), (0, 0)]),
        SEGMENTS: np.zeros((1, 32)),
        "lm_head.dense.weight": head["dense"]["kernel"].T,
        "lm_head.layer_norm.bias": head["norm"]["bias"],
        "lm_head.bias": head["bias"][: vocabulary.size],
    }
    layer = "roberta.encoder.layer.1"
    expected |= {
        f"{layer}.attention.self.key.weight": block["attention"]["key"]["kernel"].T,
        f"{layer}.output.LayerNorm.weight": block["feed_forward_norm"]["scale"],
    }
    for name, array in expected.items():
        np.testing.assert_array_equal(tensors[name], array, err_msg=name)
    assert len(tensors) == 5 + 2 * 16 + 5


def test_settings_and_card_are_those_of_the_run(exported):
    (config, vocabulary, *_), directory = exported
    values = read_json(directory / "config.json")
    expected = {"architectures": ["RobertaForMaskedLM"], "model_type": "roberta", "hidden_size": 32}
    expected |= {"max_position_embeddings": 32 + FIRST, "type_vocab_size": 1, "pad_token_id": 1}
    expected |= {"hidden_act": "gelu", "layer_norm_eps": 1e-5, "initializer_range": 0.03}
    expected |= {"bos_token_id": vocabulary.cls, "eos_token_id": vocabulary.sep}
    assert values == values | expected
    card = (directory / "README.md").read_text()
    assert "A RoBERTa of 2 layers" in card and "<mask>" in card


@pytest.mark.parametrize("name", ["AutoTokenizer", "RobertaTokenizerFast"])
def test_the_tokenizer_has_the_ids_of_transformers(exported, name):
    """Also with its own class, which frames texts by itself. <mask> takes the space before it."""
    (_, _, tokenizer, _), directory = exported
    theirs = getattr(transformers, name).from_pretrained(directory)
    special = tokenizer.spellings.values()
    texts = [text for text in [*PROSE[:60], *DIFFICULT] if not any(x in text for x in special)]
    ids = theirs(texts, add_special_tokens=False, verbose=False)["input_ids"]
    assert tokenizer.encode(texts) == ids
    a, b = tokenizer.encode(["the fox", " a dog"])
    assert theirs("the fox", " a dog") == {
        "input_ids": [0, *a, 2, 2, *b, 2],
        "attention_mask": [1] * (len(a) + len(b) + 4),
    }
    for text in ("the <mask> fox", "fox<mask>. A <mask>", "<mask> dog"):
        ids = theirs(text, add_special_tokens=False)["input_ids"]
        assert ids == tokenizer.encode_with_masks(text), text


def test_learned_positions_alone_are_exported(tmp_path):
    make_run(tmp_path / "run", *KEYS, "model.positions=rotary", kind="byte_bpe")
    command = ["export", "--model", str(tmp_path / "run"), "--output", str(tmp_path / "out")]
    assert main(command) == 2


def test_pairs_have_no_loss():
    with pytest.raises(BadInput, match="task.pair_task='nsp'"):
        small_config(*ROBERTA, "task.pair_task=nsp")


# --- Import ---------------------------------------------------------------------------------------


def test_an_export_is_imported_and_exported_again(exported, tmp_path):
    (_, vocabulary, _, params), directory = exported
    paths = "--source", str(directory), "--workdir", str(tmp_path / "run")
    assert main(["import", *paths]) == 0
    model = open_model.open_model(tmp_path / "run")
    assert (model.config.objective.name, model.config.task.name) == ("mlm", "full_sentences")
    assert model.info["fresh"] == model.info["imported"]["unused"] == []
    assert_same_params(model.params, params, vocabulary)
    assert model.vocabulary == vocabulary
    export(tmp_path / "run", tmp_path / "out")
    for name in (WEIGHTS, "config.json", "tokenizer_config.json", "tokenizer.json"):
        assert (tmp_path / "out" / name).read_bytes() == (directory / name).read_bytes(), name


def test_published_files_are_read(exported, tmp_path):
    """Without the beginning of names, with a pooler, copies of the output matrix and its bias, buffers, a layer of
    labels, and values in the rows that no token reads."""
    (_, vocabulary, _, params), directory = exported
    tensors = load_file(directory / WEIGHTS)
    ones = np.ones((32, 32), np.float32)
    tensors["roberta.pooler.dense.weight"] = tensors["classifier.dense.weight"] = ones
    tensors["roberta.pooler.dense.bias"] = tensors["classifier.dense.bias"] = ones[0]
    tensors["classifier.out_proj.weight"] = ones[:2]
    tensors[f"{EMBEDDINGS}position_ids"] = np.arange(34)
    tensors["lm_head.decoder.weight"] = tensors[f"{EMBEDDINGS}word_embeddings.weight"]
    tensors["lm_head.decoder.bias"] = tensors["lm_head.bias"]
    tensors[POSITIONS] = np.concatenate(
        [np.full((FIRST, 32), 7, np.float32), tensors[POSITIONS][FIRST:]]
    )
    source = external_models.copy(directory, tmp_path / "source")
    bare = {name.removeprefix("roberta."): array for name, array in tensors.items()}
    save_file(bare, source / WEIGHTS)
    model = open_model.open_model(source)
    assert model.info["imported"]["unused"] == ["pooler"]
    assert_same_params(model.params, params, vocabulary)
    body = open_model.open_model(source, head="")
    assert body.info["fresh"] == ["mlm"]


def test_a_segment_is_added_to_the_positions(exported, tmp_path):
    (_, _, _, params), _ = exported
    segment = np.linspace(-1, 1, 32, dtype=np.float32)[None]
    source = write_source(exported, tmp_path, {SEGMENTS: segment})
    embedder = open_model.open_model(source).params["network"]["embedder"]
    expected = np.asarray(params["network"]["embedder"]["positions"]) + segment
    np.testing.assert_array_equal(embedder["positions"], expected)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("pad_token_id", None),
        ("pad_token_id", -1),
        ("pad_token_id", True),
        ("max_position_embeddings", 2),
        ("max_position_embeddings", "34"),
        ("type_vocab_size", 2),
        ("is_decoder", True),
        ("hidden_act", "silu"),
    ],
)
def test_other_models_are_refused(exported, key, value):
    values = read_json(exported[1] / "config.json")
    assert settings.from_huggingface(values, "config.json")[0]["max_length"] == 32
    with pytest.raises(BadInput, match=f"config.json: {key}"):
        settings.from_huggingface(values | {key: value}, "config.json")


@pytest.mark.parametrize(
    ("name", "array"),
    [
        (POSITIONS, np.ones((33, 32), np.float32)),
        (POSITIONS, np.ones((), np.float32)),
        (POSITIONS, None),
        (SEGMENTS, np.ones((2, 32), np.float32)),
        ("lm_head.decoder.bias", np.ones(7, np.float32)),
    ],
)
def test_other_tensors_are_refused(exported, tmp_path, name, array):
    changes = {} if array is None else {name: array}
    source = write_source(exported, tmp_path, changes, left_out=[name] if array is None else [])
    assert name in refused_import(source)


def test_a_frame_of_bert_is_refused(exported, tmp_path):
    """That of pairs, which has one separator less."""
    source = external_models.copy(exported[1], tmp_path / "source")
    document = read_json(source / "tokenizer.json")
    document["post_processor"]["pair"].pop(2)
    external_models.write_config(source / "tokenizer.json", document)
    assert "frames a text as" in refused_import(source)


@pytest.mark.parametrize("files", ["both", "tokenizer.json", "vocab.json"])
def test_a_run_starts_from_a_published_directory(exported, words, tmp_path, files):
    """Whose tokenizer is of RoBERTa's class; the run has the published pieces."""
    (config, vocabulary, _, params), directory = exported
    source = external_models.copy(directory, tmp_path / "source")
    external_models.write_config(source / "tokenizer_config.json", {"model_max_length": 32})
    if files != "tokenizer.json":
        for name in ("vocab.json", "merges.txt"):
            (source / name).write_bytes((words / name).read_bytes())
    if files == "vocab.json":
        (source / "tokenizer.json").unlink()
    config = config.copy_and_resolve_references()
    config.init_from = str(source)
    config.tokenizer.path = str(source)
    assert_same_params(init_from.read(config, Cluster()).arrays, params, vocabulary)


# --- With PyTorch ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def opened(exported, tmp_path_factory):
    """(our model, theirs) of random weights that transformers saved, with a segment."""
    torch = pytest.importorskip("torch")
    *_, directory = exported
    source = external_models.copy(directory, tmp_path_factory.mktemp("opened") / "source")
    for name in (WEIGHTS, "config.json"):
        (source / name).unlink()
    config = transformers.AutoConfig.from_pretrained(directory)
    torch.manual_seed(0)
    theirs = transformers.AutoModelForMaskedLM.from_config(config)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    theirs.save_pretrained(source)
    transformers.AutoTokenizer.from_pretrained(directory).save_pretrained(source)
    return open_model.open_model(source, ["dtype=float32"]), theirs.double().eval()


@pytest.mark.full
def test_logits_loss_and_gradients_are_those_of_transformers(opened):
    """Theirs are computed in float64, with positions of its own. The gradient of the positions is that of its rows that
    tokens read; their sum is that of the segment."""
    import torch

    ours, theirs = opened
    size = ours.vocabulary.size
    batch = run_batch(ours.vocabulary, rows=9)
    is_real = batch["sequence_ids"] > 0
    inputs = {"input_ids": batch["tokens"], "attention_mask": batch["sequence_ids"]}
    inputs = {name: torch.tensor(array).long() for name, array in inputs.items()}
    expected = theirs(**inputs).logits
    places = torch.tensor(batch["masked_positions"]).long()[..., None].expand(-1, -1, size)
    nats = torch.nn.functional.cross_entropy(
        expected.gather(1, places).transpose(1, 2),
        torch.tensor(batch["masked_targets"]).long(),
        reduction="none",
    )
    weights = torch.tensor(batch["masked_weights"]).double()
    expected_loss = (nats * weights).sum() / (weights.sum() + 1e-5)
    expected_loss.backward()

    def compute(params):
        totals = ours.objective.weights(batch)
        return ours.objective.loss(params, batch, totals, np.uint32(0), train=False)[0]

    logits = np.asarray(jax.jit(ours.objective.outputs)(ours.params, batch)["mlm_logits"])
    chosen = np.take_along_axis(
        expected.detach().numpy(), batch["masked_positions"][..., None], axis=1
    )
    difference = np.abs(logits[..., :size] - chosen).max()
    loss, gradient = jax.device_get(jax.jit(jax.value_and_grad(compute))(ours.params))
    relative_loss = abs(loss / float(expected_loss.detach()) - 1)
    _, gradients = names.tensors(gradient, ours.config, size, "huggingface")
    gradients[SEGMENTS] = gradients[POSITIONS].sum(axis=0, keepdims=True)
    differences = {}
    for name, parameter in theirs.named_parameters():
        array = parameter.grad.numpy()
        if name == POSITIONS:
            array = array[FIRST:]
        scale = max(np.abs(array).max(), 1e-3)
        differences[name] = np.abs(gradients.pop(name) - array).max() / scale
    print(f"logits {difference:.1e} loss {relative_loss:.1e} {max(differences.values()):.1e}")
    assert not is_real.all() and difference < 2e-5 and relative_loss < 1e-6
    assert max(differences.values()) < 1e-4 and not gradients


@pytest.mark.full
@pytest.mark.parametrize("name", ["roberta_base", "roberta_large"])
def test_parameters_are_those_of_transformers(name):
    """But two rows of positions, which no token reads, and the segment."""
    torch = pytest.importorskip("torch")
    config = configs.load(name, ["dtype=float32"])
    vocabulary = Vocabulary(50_265, pad=1, unk=3, cls=0, sep=2, mask=50_264)
    objective = base.make(config, vocabulary)
    batch = run_batch(vocabulary, rows=1)
    params = jax.eval_shape(objective.init, jax.random.key(0), batch)
    counts = models.parameters(config, params, vocabulary.size)
    model = config.model
    with torch.device("meta"):
        theirs = transformers.RobertaForMaskedLM(
            transformers.RobertaConfig(
                vocab_size=vocabulary.size,
                hidden_size=model.width,
                num_hidden_layers=model.layers,
                num_attention_heads=model.heads,
                intermediate_size=4 * model.width,
                max_position_embeddings=514,
                type_vocab_size=1,
            )
        )
    surplus = 3 * model.width
    assert counts["parameters"] == theirs.num_parameters() - surplus
    assert counts["body_parameters"] == theirs.roberta.num_parameters() - surplus


@pytest.mark.full
def test_filled_masks_are_those_of_transformers(exported):
    """The mask takes the space before it."""
    pytest.importorskip("torch")
    *_, directory = exported
    text = "the quick <mask> fox"
    pipeline = transformers.pipeline("fill-mask", model=str(directory))
    expected = [entry["score"] for entry in pipeline(text, top_k=3)]
    (candidates,) = bert_jax.load(directory).fill(text, top=3)
    shares = [candidate["probability"] for candidate in candidates]
    np.testing.assert_allclose(shares, expected, rtol=1e-4)


@pytest.mark.full
def test_the_code_in_the_card_runs(exported, monkeypatch, capsys):
    pytest.importorskip("torch")
    *_, directory = exported
    monkeypatch.chdir(directory.parent)
    (code,) = re.findall(r"```python\n(.*?)```", (directory / "README.md").read_text(), re.DOTALL)
    capsys.readouterr()
    exec(code, {})
    assert capsys.readouterr().out
