"""ALBERT beside transformers' (PyTorch): directories in both directions, tokenizers, refused settings, and a published
model. Logits of all heads: test_to_huggingface.py; losses and gradients: test_golden.py."""

import json
import re
import shutil
import unicodedata
import zipfile
from pathlib import Path

import jax
import numpy as np
import pytest
import tokenizers as library
import transformers
from kits import external_models, vocabularies
from kits.malformed_inputs import refused_import
from kits.paths import data
from kits.runs import make_run
from kits.small import ALBERT
from kits.texts import DIFFICULT, PROSE
from safetensors.numpy import load_file, save_file
from tokenizers import models, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from bert_jax.cli import main
from bert_jax.convert import (
    albert,
    open_model,
    pretrained_tokenizer,
    sentencepiece_to_json,
    settings,
)
from bert_jax.errors import BadInput
from bert_jax.inference import batches
from bert_jax.tokenizers import sentencepiece

WEIGHTS = "model.safetensors"
WHOLE = (*ALBERT, "task.pair_task=sop", "dtype=float32")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """(config, vocabulary, tokenizer, params) of a run, and its exported directory."""
    directory = tmp_path_factory.mktemp("exported")
    run = make_run(directory / "run", *WHOLE, "model.activation=gelu", kind="unigram")
    paths = "--model", str(directory / "run"), "--output", str(directory / "out")
    assert main(["export", *paths]) == 0
    return run, directory / "out"


def test_names_and_settings_are_those_of_transformers(exported):
    """They are spelled out here."""
    (config, vocabulary, _, params), directory = exported
    values = external_models.read_json(directory / "config.json")
    expected = {"architectures": ["AlbertForPreTraining"], "model_type": "albert"}
    expected |= {"embedding_size": 16, "hidden_size": 32, "num_hidden_layers": 3}
    expected |= {"num_hidden_groups": 1, "inner_group_num": 1, "hidden_act": "gelu"}
    expected |= {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    expected |= {"bos_token_id": vocabulary.cls, "eos_token_id": vocabulary.sep}
    assert values | expected == values
    read, _ = settings.from_huggingface(values, "config.json")
    assert read == {key: config.model[key] for key in read} | {"feed_forward": 128}
    assert config.model.keys() - read.keys() == {"attention"}
    tensors = load_file(directory / WEIGHTS)
    network = jax.device_get(params)["network"]
    block = network["blocks_0"]
    layer = "albert.encoder.albert_layer_groups.0.albert_layers.0"
    for name, kernel in {
        "albert.encoder.embedding_hidden_mapping_in": network["embedder_dense"]["kernel"],
        f"{layer}.attention.query": block["attention"]["query"]["kernel"],
        f"{layer}.attention.dense": block["attention"]["out"]["kernel"],
        f"{layer}.ffn": block["feed_forward"]["up"]["kernel"],
        f"{layer}.ffn_output": block["feed_forward"]["down"]["kernel"],
        "albert.pooler": network["pooler"]["kernel"],
        "predictions.dense": params["mlm"]["dense"]["kernel"],
        "sop_classifier.classifier": params["pair"]["kernel"],
    }.items():
        np.testing.assert_array_equal(tensors.pop(f"{name}.weight"), np.transpose(kernel))
    words = network["embedder"]["words"][: vocabulary.size]
    np.testing.assert_array_equal(tensors["albert.embeddings.word_embeddings.weight"], words)
    scale = block["feed_forward_norm"]["scale"]
    np.testing.assert_array_equal(tensors[f"{layer}.full_layer_layer_norm.weight"], scale)


CLASSES = [("ForPreTraining", []), ("ForMaskedLM", []), ("Model", ["mlm", "pair"])]


@pytest.mark.full
@pytest.mark.parametrize(("name", "fresh"), CLASSES)
def test_directories_of_transformers_are_read(exported, name, fresh, tmp_path):
    """They have the weights of an export that transformers opened, bit for bit; exported again, too."""
    pytest.importorskip("torch")
    directory = exported[1]
    source = external_models.copy(directory, tmp_path / "source")
    [(source / file).unlink() for file in (WEIGHTS, "config.json", "training.json")]
    getattr(transformers, f"Albert{name}").from_pretrained(directory).save_pretrained(source)
    model = open_model.open_model(source)
    assert model.info["fresh"] == fresh
    run, out = tmp_path / "run", tmp_path / "out"
    assert main(f"import --source {source} --workdir {run}".split()) == 0
    assert main(f"export --model {run} --output {out}".split()) == 0
    before, after = (load_file(path / WEIGHTS) for path in (directory, out))
    left_out = {"ForMaskedLM": ("albert.pooler.", "sop_"), "Model": ("predictions.", "sop_")}
    kept = {tensor for tensor in before if not tensor.startswith(left_out.get(name, "none"))}
    assert kept == after.keys()
    for tensor, array in after.items():
        np.testing.assert_array_equal(array, before[tensor], err_msg=tensor)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_groups", 2),
        ("inner_group_num", 2),
        ("position_embedding_type", "relative_key"),
        ("hidden_act", "silu"),
        ("embedding_size", 0),
        ("embedding_size", "128"),
    ],
)
def test_other_models_are_refused(exported, key, value):
    values = external_models.read_json(exported[1] / "config.json")
    with pytest.raises(BadInput, match=f"config.json: {key}"):
        settings.from_huggingface(values | {key: value}, "config.json")


def test_the_defaults_of_transformers_are_read():
    sizes = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256)
    values = sizes | dict(model_type="albert", max_position_embeddings=32)
    read, _ = settings.from_huggingface(values, "config.json")
    expected = {"activation": "gelu_tanh", "dropout": 0.0, "attention_dropout": 0.0}
    expected |= {"embedding_width": 128, "epsilon": 1e-12, "type_vocabulary": 2}
    assert read | expected == read


# --- Tokenizer ------------------------------------------------------------------------------------

SPELLED = dict(pad_piece="<pad>", unk_piece="<unk>", bos_piece="[CLS]", eos_piece="[SEP]")
SPELLED |= dict(pad_id=0, unk_id=1, bos_id=2, eos_id=3, control_symbols=["[MASK]"])
TEXTS = [*PROSE[:40], *(text for text in DIFFICULT if "[" not in text and "<" not in text)]
TEXTS += ["The ``Quick'' fox, École naïve", "a 1,000 and 25 or  İstanbul"]
# {name: tokenizer_config.json}
SETTINGS = {
    "default": {},
    "accents": {"keep_accents": True, "tokenizer_class": "AlbertTokenizer"},
    "cased": {"do_lower_case": False, "tokenizer_class": "AlbertTokenizerFast"},
}


def write_source(directory: Path, values: dict) -> Path:
    """Writes a directory with the tokenizer of a small model as the published ones have it."""
    directory.mkdir()
    (directory / "spiece.model").write_bytes(vocabularies.make_model(vocab_size=250, **SPELLED))
    external_models.write_config(directory / "tokenizer_config.json", values)
    external_models.write_config(directory / "config.json", {"model_type": "albert"})
    return directory


def read(directory: Path):
    return pretrained_tokenizer.read(directory, {}, "albert", albert.ALBERT)


@pytest.mark.parametrize("has_document", [False, True])
@pytest.mark.parametrize("name", SETTINGS)
def test_ids_equal_transformers(tmp_path, name, has_document):
    """Of spiece.model, or of a tokenizer.json, of which the class reads the pieces and the table of characters."""
    directory = write_source(tmp_path / "source", SETTINGS[name])
    ours = read(directory)
    model = sentencepiece.from_file(directory / "spiece.model", False)
    document = sentencepiece_to_json.document(model)
    (directory / "tokenizer.json").write_text(json.dumps(document))
    (directory / "spiece.model").unlink()
    theirs = transformers.AutoTokenizer.from_pretrained(directory)
    assert type(theirs) is transformers.AlbertTokenizer
    if has_document:
        ours = read(directory)
    assert ours.special == {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
    assert ours.size == len(theirs)
    assert ours.encode(TEXTS) == theirs(TEXTS, add_special_tokens=False)["input_ids"]
    pair = theirs("the fox", "a dog")
    a, b = ours.encode(["the fox", "a dog"])
    assert pair["input_ids"] == [2, *a, 3, *b, 3]
    lower, upper = ours.encode(["the fox", "The FOX"])
    assert (lower == upper) == (name != "cased")


def test_numbers_before_a_comma_are_split_as_in_the_published_file(tmp_path):
    texts = ["in 25, it was 7, and 7, and 7,"] * 40
    model = vocabularies.make_model(texts, vocab_size=60, **SPELLED)
    (tmp_path / "spiece.model").write_bytes(model)
    plain = sentencepiece.from_file(tmp_path / "spiece.model", False)
    joined = {piece for piece in plain.pieces if re.search(r"\d,$", piece)}
    assert joined
    ours = read(tmp_path)
    pieces = [ours.pieces[number] for number in ours.encode(texts[:1])[0]]
    assert not joined.intersection(pieces) and "," in pieces


def assert_as_sentencepiece(directory: Path, texts: list[str]) -> None:
    """Asserts the ids of the library, of texts as the authors' code prepares them."""
    model = sentencepiece.from_file(directory / "spiece.model", False)
    prepared = []
    for text in texts:
        text = unicodedata.normalize("NFKD", text)
        text = "".join(letter for letter in text if not unicodedata.combining(letter))
        prepared.append(" ".join(text.lower().split()))
    assert read(directory).encode(texts) == model.encode(prepared)


def test_symbols_of_spiece_model_are_those_of_sentencepiece(tmp_path):
    """They do not begin a word, which added tokens of transformers 5 make of what follows them."""
    model = vocabularies.make_model(vocab_size=250, user_defined_symbols=["(", "."], **SPELLED)
    (tmp_path / "spiece.model").write_bytes(model)
    texts = ["The fox(es) were there.And more", "(a) b. c", *PROSE[:20]]
    assert_as_sentencepiece(tmp_path, texts)


@pytest.mark.full
def test_ids_of_the_published_pieces_are_those_of_sentencepiece(tmp_path):
    shutil.copyfile(data("vocab", "albert_spiece_30k.model"), tmp_path / "spiece.model")
    texts = [text for text in PROSE if not re.search(r"\d,", text)]
    assert_as_sentencepiece(tmp_path, [*texts, "The (Old) Bank - a river-bank, £5.50 in 1999."])


def test_a_directory_without_a_tokenizer_is_refused(exported, tmp_path):
    source = external_models.copy(exported[1], tmp_path / "source")
    (source / "tokenizer.json").unlink()
    (source / "tokenizer_config.json").write_text('{"tokenizer_class": "AlbertTokenizer"}')
    assert "spiece.model" in refused_import(source)


# --- A published model ----------------------------------------------------------------------------

WHEEL = "rxnmapper-0.4.3-py3-none-any.whl"  # of PyPI; MIT
FOLDER = "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k/"
REACTIONS = """
    CC(=O)O.OCC>>CC(=O)OCC
    CC(=O)Cl.Nc1ccccc1>>CC(=O)Nc1ccccc1
    Brc1ccccc1.OB(O)c1ccccc1>>c1ccc(-c2ccccc2)cc1
    CCOC(=O)c1ccccc1.[Na+].[OH-]>>O=C(O)c1ccccc1
    O=C(O)c1ccccc1.O=S(Cl)Cl>>O=C(Cl)c1ccccc1
    O=[N+]([O-])c1ccccc1.[H][H]>>Nc1ccccc1
    CI.Oc1ccccc1>>COc1ccccc1
    CC(C)=O.[BH4-].[Na+]>>CC(C)O
    OCc1ccccc1.O=[Cr](=O)=O>>O=Cc1ccccc1
    C=CC=C.C=CC=O>>O=CC1CC=CCC1
    c1ccccc1.CC(=O)Cl>>CC(=O)c1ccccc1
    CC#N.O>>CC(N)=O
    NCCc1ccccc1.CC(C)(C)OC(=O)OC(=O)OC(C)(C)C>>CC(C)(C)OC(=O)NCCc1ccccc1
    CC(C)(C)OC(=O)NCc1ccccc1.O=C(O)C(F)(F)F>>NCc1ccccc1
    O=Cc1ccccc1.CC(C)=O>>CC(=O)C=Cc1ccccc1
    C[Mg]Br.O=Cc1ccccc1>>CC(O)c1ccccc1
    Clc1ncccn1.NC1CCCCC1>>c1cnc(NC2CCCCC2)nc1
    OC(=O)c1ccccc1O.CC(=O)OC(C)=O>>CC(=O)Oc1ccccc1C(=O)O
    C1CCNCC1.ClCc1ccccc1>>c1ccc(CN2CCCCC2)cc1
    O=C1CCCCC1.NO>>ON=C1CCCCC1
""".split()
EVERY = 5  # one token of so many is masked


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Directory of the weights of rxnmapper in safetensors, with its splitter in tokenizer.json."""
    torch = pytest.importorskip("torch")
    directory = tmp_path_factory.mktemp("rxnmapper")
    with zipfile.ZipFile(data(WHEEL)) as wheel:
        (directory / "config.json").write_bytes(wheel.read(f"{FOLDER}config.json"))
        pieces = wheel.read(f"{FOLDER}vocab.txt").decode().split("\n")
        source = wheel.read("rxnmapper/smiles_utils.py").decode()
        with wheel.open(f"{FOLDER}pytorch_model.bin") as file:
            tensors = torch.load(file, map_location="cpu", weights_only=True)
    save_file({name: tensor.numpy() for name, tensor in tensors.items()}, directory / WEIGHTS)
    (pattern,) = re.findall(r'SMI_REGEX_PATTERN = r"(.*)"', source)
    ids = {piece: number for number, piece in enumerate(filter(None, pieces))}
    write_word_level(directory / "tokenizer.json", ids, pattern)
    values = {"tokenizer_class": "PreTrainedTokenizerFast"}
    values |= {
        f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")
    }
    external_models.write_config(directory / "tokenizer_config.json", values)
    return directory, re.compile(pattern), ids


def write_word_level(path: Path, ids: dict[str, int], pattern: str) -> None:
    """Writes a tokenizer whose pieces are the matches of a pattern."""
    theirs = library.Tokenizer(models.WordLevel(ids, "[UNK]"))
    split = library.Regex(pattern), "removed", True
    theirs.pre_tokenizer = pre_tokenizers.Split(*split)
    theirs.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, ids[name]) for name in ("[CLS]", "[SEP]")],
    )
    theirs.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    theirs.save(str(path))


@pytest.mark.full
def test_a_published_model_predicts_what_it_does_in_transformers(published, tmp_path):
    """The pieces of every fifth token of 20 reactions, masked, and their probabilities; imported, and exported
    again."""
    import torch

    source, pattern, ids = published
    run, out = tmp_path / "run", tmp_path / "out"
    assert main(f"import --source {source} --workdir {run}".split()) == 0
    assert main(f"export --model {run} --output {out}".split()) == 0
    before, after = (load_file(directory / WEIGHTS) for directory in (source, out))
    kept = {name for name in before if not name.endswith(("decoder.weight", "decoder.bias"))}
    kept = {name for name in kept if not name.startswith("albert.pooler")}
    for name in kept & after.keys():
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)
    encoded = [[ids[word] for word in pattern.findall(text)] for text in REACTIONS]
    batch = make_batch(encoded, ids)
    is_masked = batch["tokens"] == ids["[MASK]"]
    labels = np.concatenate([row[2::EVERY] for row in encoded])
    for directory, opened in ((source, run), (out, out)):
        model = open_model.open_model(opened)
        assert model.tokenizer.encode(REACTIONS) == encoded
        logits = jax.jit(model.objective.outputs)(model.params, batch)["mlm_logits"]
        ours = np.asarray(jax.nn.softmax(logits[..., : len(ids)]))[batch["masked_weights"] > 0]
        network = transformers.AlbertForMaskedLM.from_pretrained(directory).eval()
        inputs = {"input_ids": batch["tokens"], "attention_mask": batch["sequence_ids"]}
        inputs = {name: torch.tensor(array).long() for name, array in inputs.items()}
        with torch.no_grad():
            theirs = torch.softmax(network(**inputs).logits, -1).numpy()[is_masked]
        best = ours.argmax(-1)
        difference = abs(ours - theirs).max()
        print(f"{(best == labels).sum()} of {len(labels)} right; probabilities {difference:.1e}")
        assert (best == theirs.argmax(-1)).all() and difference < 1e-4
        assert (best == labels).mean() > 0.9


def make_batch(encoded: list[list[int]], ids: dict[str, int]) -> dict:
    """Returns rows in which one token of EVERY is masked, and is predicted."""
    mask = ids["[MASK]"]
    rows = []
    for row in encoded:
        masked = [mask if place % EVERY == 2 else id for place, id in enumerate(row)]
        rows.append([([ids["[CLS]"], *masked, ids["[SEP]"]], 0)])
    batch = batches.make_batch(rows, max(len(row) for ((row, _),) in rows))
    return batches.add_masks(batch, mask, [row[2::EVERY] for row in encoded])
