"""A directory's tokenizer gives the ids of transformers, which reads all its files, on 3,000 hostile documents."""

import json
import random

import pytest
import tokenizers as library
import transformers
from kits import external_models
from kits.external_models import PIECES
from kits.malformed_inputs import refused_import
from kits.texts import DIFFICULT, PROSE, as_documents, difficult_text
from kits.vocabularies import characters_like, digits_like, gpt2_like, write_bpe_files
from tokenizers import models, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing

from bert_jax.convert import gpt2, names, open_model, pretrained_tokenizer
from bert_jax.errors import BadInput
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers import wordpiece
from bert_jax.tokenizers.special_tokens import SPECIAL, TEXT_END, Vocabulary

MARKERS = ["covid", "COVID", "<e1>", "</e1>", "école", "wild cat", "[unused7]"]
NAMES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def hostile(number: int) -> list[str]:
    """Returns texts in which added tokens stand alone, in words, and beside spaces, but none of the special ones."""
    draw, texts = random.Random(2), []
    for text in [*DIFFICULT, *PROSE[:60], *(difficult_text(draw) for _ in range(number))]:
        place = draw.randrange(len(text) + 1)
        marker = draw.choice(["", " "]) + draw.choice(MARKERS) + draw.choice(["", " "])
        texts.append(text[:place] + marker + text[place:])
    return [text for text in texts if not any(name in text for name in NAMES)]


TEXTS = hostile(3000)
FEW = TEXTS[:300]


def lines(pieces) -> str:
    return "".join(piece + "\n" for piece in pieces)


def token(content: str, **flags) -> dict:
    """Returns an added token as tokenizer_config.json has it."""
    usual = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"content": content, **usual, "special": False} | flags


@pytest.fixture(scope="module")
def documents() -> dict[str, dict]:
    """{kind: a parsed tokenizer.json}."""
    parsed = {}
    for lowercase in (True, False):
        model = models.WordPiece({piece: id for id, piece in enumerate(PIECES)}, unk_token="[UNK]")
        bert = library.Tokenizer(model)
        bert.normalizer = library.normalizers.BertNormalizer(lowercase=lowercase)
        bert.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        bert.add_special_tokens(list(SPECIAL.values()))
        parsed["uncased" if lowercase else "cased"] = json.loads(bert.to_str())
    roberta = library.Tokenizer(models.BPE())
    roberta.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    keys = {"initial_alphabet": alphabet, "special_tokens": NAMES[5:]}
    roberta.train_from_iterator(PROSE, trainers.BpeTrainer(vocab_size=500, **keys))
    parsed["digits"] = json.loads(digits_like().to_str())
    parsed["characters"] = json.loads(characters_like().to_str())
    parsed["bytes"] = json.loads(roberta.to_str())
    return {kind: framed(document) for kind, document in parsed.items()}


def framed(document: dict) -> dict:
    """Returns a tokenizer.json that puts texts into the frame of BERT."""
    theirs = library.Tokenizer.from_str(json.dumps(document))
    ids = {piece: theirs.token_to_id(piece) for piece in ("[CLS]", "<s>", "[SEP]", "</s>")}
    (cls, _), (sep, _) = ends = [(piece, id) for piece, id in ids.items() if id is not None]
    theirs.post_processor = TemplateProcessing(
        single=[cls, "$A", sep],
        pair=[cls, "$A", sep, "$B:1", f"{sep}:1"],
        special_tokens=ends,
    )
    return json.loads(theirs.to_str())


def test_padding_is_no_frame(tmp_path, documents):
    theirs = library.Tokenizer.from_str(json.dumps(documents["bytes"]))
    theirs.enable_padding(length=8)
    theirs.enable_truncation(3)
    padded = {"bytes": json.loads(theirs.to_str())}
    assert read(write(tmp_path / "model", padded, *DIRECTORIES["bytes"])).size


def test_a_tokenizer_of_another_frame_is_refused(tmp_path, documents):
    """Also one that differs for pairs alone."""
    directory = write(tmp_path / "model", documents, *DIRECTORIES["bytes"])
    path = directory / "tokenizer.json"
    document = json.loads(path.read_text())
    for part in ("pair", "single"):
        document["post_processor"][part].pop()
        path.write_text(json.dumps(document))
        with pytest.raises(BadInput, match=r"frames a text as .*'</s>'\]"):
            read(directory)
    document["post_processor"] = None
    path.write_text(json.dumps(document))
    with pytest.raises(BadInput, match="frames a text as"):
        read(directory)


ADDED = {"added_tokens_decoder": {str(len(PIECES)): token("<e1>", special=True)}}
SPACED = {"lstrip": True, "rstrip": True, "single_word": True}
MANY = {
    "9": token("wild cat", normalized=True),
    "7": token("covid", **SPACED),
    "8": token("école", normalized=True),
}
NAMED = {"pad_token": "<nothing>", "mask_token": {"__type": "AddedToken", **token("<blank>")}}
PLAIN = {"tokenizer_class": "PreTrainedTokenizerFast"}
ROBERTA = {"tokenizer_class": "RobertaTokenizer"}
OF_ROBERTA = {"config.json": {"model_type": "roberta"}}
# {name: (kind of tokenizer.json; None: vocab.txt instead, tokenizer_config.json, other files)}
DIRECTORIES = {
    "lower case off": ("uncased", {"do_lower_case": False}, {}),
    "lower case by default": ("cased", {}, {}),
    "the file's own rules": ("cased", PLAIN | {"do_lower_case": True}, {}),
    "accents": ("uncased", {"strip_accents": False, "tokenizer_class": "BertTokenizerFast"}, {}),
    "accents of cased words": (None, {"strip_accents": True, "do_lower_case": False}, {}),
    "accents as by default": ("uncased", {"strip_accents": False, "do_lower_case": False}, {}),
    "ideographs": ("uncased", {"tokenize_chinese_chars": False}, {}),
    "another class": ("cased", {"tokenizer_class": "ElectraTokenizer"}, {}),
    "added": ("uncased", ADDED, {}),
    "added, with flags": (None, {"added_tokens_decoder": MANY}, {}),
    "added to the file's own": ("cased", PLAIN | {"added_tokens_decoder": MANY}, {}),
    "added_tokens.json": (None, {}, {"added_tokens.json": {"covid": 68, "<e1>": 69}}),
    "special_tokens_map.json": (
        None,
        {},
        {
            "added_tokens.json": {"<e1>": 68, "covid": 69},
            "special_tokens_map.json": {"additional_special_tokens": ["<e1>"]},
        },
    ),
    "additional": ("uncased", {"additional_special_tokens": ["<e1>", "</e1>"]}, {}),
    "other names": (None, NAMED, {}),
    "two spellings": ("uncased", {"mask_token": "<mask>", "entity_token": "<e1>"}, {}),
    "bytes": ("bytes", PLAIN, {}),
    "no word marks": ("digits", PLAIN | {"mask_token": "[MASK]"}, {}),
    "characters": ("characters", PLAIN, {}),
    "bytes, added": ("bytes", PLAIN | {"extra_special_tokens": ["<e1>", "covid"]}, {}),
    "RoBERTa": ("bytes", ROBERTA, OF_ROBERTA),
    "RoBERTa, a space before each text": (
        "bytes",
        ROBERTA | {"add_prefix_space": True},
        OF_ROBERTA,
    ),
    "RoBERTa, other names": ("bytes", ROBERTA | NAMED, OF_ROBERTA),
}


def write(directory, documents, kind, settings, files):
    directory.mkdir()
    files = {"config.json": {"model_type": "bert"}, "tokenizer_config.json": settings} | files
    if kind:
        files["tokenizer.json"] = documents[kind]
    else:
        (directory / "vocab.txt").write_text(lines(PIECES), encoding="utf-8")
    for name, values in files.items():
        (directory / name).write_text(json.dumps(values))
    return directory


def read(directory):
    values = external_models.read_json(directory / "config.json")
    return pretrained_tokenizer.read(directory, values, *names.find_model(values, directory))


# Those with exactly BERT's rules, which are read as WordPiece.
PLAIN_BERT = "lower case off", "lower case by default", "accents as by default", "another class"


@pytest.mark.parametrize("texts", [FEW, pytest.param(TEXTS, marks=pytest.mark.full)], ids=len)
@pytest.mark.parametrize("name", DIRECTORIES)
def test_ids_equal_transformers(tmp_path, documents, name, texts):
    directory = write(tmp_path / "model", documents, *DIRECTORIES[name])
    ours, theirs = read(directory), transformers.AutoTokenizer.from_pretrained(directory)

    def encode(texts):
        return theirs(texts, add_special_tokens=False, verbose=False)["input_ids"]

    assert ours.encode(texts) == encode(texts)
    assert ours.size == len(theirs)
    documents = as_documents(texts)
    expected = encode([" ".join(document) for document in documents])
    assert ours.corpus_encoder()(documents)[0].tolist() == sum(expected, [])
    special = {name: getattr(theirs, f"{name}_token_id") for name in SPECIAL}
    named = {name: id for name, id in special.items() if id is not None}
    assert ours.special | named == ours.special
    assert name not in PLAIN_BERT or ours.kind == wordpiece.KIND


GPT2 = {"tokenizer_class": "GPT2Tokenizer"}
GPT = {"tokenizer_class": "OpenAIGPTTokenizer"}
# {name: (settings, whether there is a tokenizer.json instead of two files, its changes)}
GENERATORS = {
    "GPT-2, two files": (GPT2, False, {}),
    "GPT-2": (GPT2, True, {"normalizer": {"type": "Lowercase"}}),
    "GPT-2, a space before each text": (GPT2 | {"add_prefix_space": True}, True, {}),
    "GPT-2, other tokens": (GPT2 | {"eos_token": "covid", "pad_token": "<e1>"}, False, {}),
    "GPT, two files": (GPT, False, {}),
    "GPT": (GPT, True, {"normalizer": None}),
    "GPT, other tokens": (GPT | {"unk_token": "fox</w>", "eos_token": "<e1>"}, False, {}),
}


@pytest.mark.parametrize("name", GENERATORS)
def test_ids_of_models_that_generate_equal_transformers(tmp_path, name):
    settings, has_document, changes = GENERATORS[name]
    files = ("vocab.json", "merges.txt")
    directory = write_bpe_files(tmp_path / "model", files, is_gpt="GPT-2" not in name)
    if has_document:
        document = tokenizers.from_file(directory, True).document | changes
        (directory / "tokenizer.json").write_text(json.dumps(document))
        for file in files:
            (directory / file).unlink()
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    (directory / "config.json").write_text('{"model_type": "gpt2"}')
    ours = read(directory)
    theirs = transformers.AutoTokenizer.from_pretrained(directory)
    special = ["<unk>", TEXT_END, *theirs.special_tokens_map.values()]
    texts = [text for text in FEW if not any(piece in text for piece in special)]
    expected = theirs(texts, add_special_tokens=False, verbose=False)["input_ids"]
    assert ours.encode(texts) == expected and ours.size == len(theirs)
    assert ours.special.get("pad") == theirs.pad_token_id
    assert ours.special.get("sep") == theirs.eos_token_id
    assert ours.unk == theirs.unk_token_id
    space = int("add_prefix_space" in settings)  # which the text does not have
    decoded = [theirs.decode(ids, skip_special_tokens=True)[space:] for ids in expected]
    assert [ours.decode(ids) for ids in expected] == decoded


BEGIN, END = {"bos_token": "<s>"}, {"eos_token": "</s>"}
# {name: (tokenizer_config.json, config.json, generation_config.json, what begins and ends texts)}
ENDS = {
    "both named": (BEGIN | END, {"bos_token_id": 9, "eos_token_id": 9}, {}, ("<s>", "</s>")),
    "by the model": ({}, {"bos_token_id": 501, "eos_token_id": 502}, {}, ("<s>", "</s>")),
    "by generation": (END, {}, {"bos_token_id": 503, "eos_token_id": [501]}, ("<e1>", "</s>")),
    "generation first": (END, {"bos_token_id": 502}, {"bos_token_id": 501}, ("<s>", "</s>")),
    "not separators": (BEGIN | END | {"sep_token": "<e1>"}, {}, {}, ("<s>", "</s>")),
    "one": (END | {"bos_token": "</s>"}, {}, {}, ("</s>", "</s>")),
    "pieces of text": (END, {"bos_token_id": 7, "eos_token_id": 8}, {}, ("</s>", "</s>")),
    "none": (END, {"bos_token_id": None}, {"bos_token_id": 50256}, ("</s>", "</s>")),
}


@pytest.mark.parametrize("name", ENDS)
def test_what_begins_and_ends_texts_is_that_of_transformers(tmp_path, name):
    """As the tokenizer names it, which transformers' Trainer takes first, or the model."""
    settings, values, generation, expected = ENDS[name]
    library = gpt2_like()
    library.add_special_tokens(["<s>", "</s>", "<e1>"])  # 501 to 503
    library.save(str(tmp_path / "tokenizer.json"))
    files = {"tokenizer_config.json": PLAIN | settings, "generation_config.json": generation}
    for file, content in files.items():
        (tmp_path / file).write_text(json.dumps(content))
    ours = pretrained_tokenizer.read(tmp_path, values, "gpt", gpt2.GPT2)
    begin = Vocabulary(ours.size, **ours.special).begin
    assert (ours.pieces[begin], ours.pieces[ours.sep]) == expected
    assert ("bos" in ours.special) == (expected[0] != expected[1])
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for token_id, number in ((theirs.bos_token_id, begin), (theirs.eos_token_id, ours.sep)):
        assert token_id in (None, number)
    ours.save(tmp_path / "saved")
    again = tokenizers.from_file(tmp_path / "saved", False)
    assert (again.special, again.fingerprint) == (ours.special, ours.fingerprint)


@pytest.mark.parametrize("name", ["added, with flags", "other names", "two spellings", "bytes"])
def test_a_saved_tokenizer_is_the_same_as_a_file(tmp_path, documents, name):
    """A run names the file of its tokenizer in its config."""
    ours = read(write(tmp_path / "model", documents, *DIRECTORIES[name]))
    for tokenizer in (ours, pretrained_tokenizer.with_unused(ours, ours.size + 5)):
        tokenizer.save(tmp_path / "saved")
        for again in (
            tokenizers.load(tmp_path / "saved"),
            tokenizers.from_file(tmp_path / "saved" / tokenizer.file, False),
        ):
            assert again.fingerprint == tokenizer.fingerprint
            assert again.special == ours.special and again.size == tokenizer.size
        texts = [*TEXTS[:200], f"[unused{ours.size}]"]
        assert tokenizer.encode(texts) == ours.encode(texts)


@pytest.mark.parametrize("kind", ["vocab.txt", "uncased", "added"])
def test_rows_that_pad_the_embeddings_get_pieces(tmp_path, documents, kind):
    """The pieces before them are those of the files."""
    pieces = [*PIECES, *(f"[unused{number}]" for number in range(len(PIECES), 80))]
    tensors = {
        name: external_models.padded(array, 80)
        for name, array in external_models.make_tensors().items()
    }
    directory = external_models.write_huggingface(tmp_path / "model", tensors, vocab_size=80)
    if kind != "vocab.txt":
        (directory / "tokenizer.json").write_text(json.dumps(documents["uncased"]))
    if kind == "added":
        (directory / "tokenizer_config.json").write_text(json.dumps(ADDED))
        pieces[len(PIECES)] = "<e1>"
    tokenizer = open_model.read_source(directory).tokenizer
    assert tokenizer.pieces == pieces
    assert max(tokenizer.encode(["[unused75] unable"])[0]) < len(PIECES)


@pytest.mark.parametrize(
    ("settings", "kind", "named"),
    [
        ({"tokenizer_class": "BertJapaneseTokenizer", "mecab_kwargs": {}}, None, "BertJapanese"),
        ({"tokenizer_class": "MyTokenizer"}, None, "MyTokenizer"),
        ({"auto_map": {"AutoTokenizer": ["mine.Mine", None]}}, None, "auto_map"),
        (PLAIN, None, "no tokenizer.json"),
        ({"do_lower_case": "yes"}, None, "tokenizer_config.json"),
        ({"added_tokens_decoder": [1]}, None, "tokenizer_config.json"),
        ({"added_tokens_decoder": {"68": "covid"}}, None, "tokenizer_config.json"),
        ({"tokenizer_class": 3}, None, "tokenizer_class 3"),
        # transformers gives these classes rules of their own, whatever tokenizer.json has.
        ({"tokenizer_class": "MPNetTokenizer"}, "uncased", "MPNetTokenizer"),
        ({"tokenizer_class": "XLMRobertaTokenizer"}, "bytes", "XLMRobertaTokenizer"),
        ({"tokenizer_class": "GPTNeoXTokenizerFast"}, "bytes", "GPTNeoXTokenizerFast"),
        (ROBERTA, "bytes", "frames a text as"),
        ({"tokenizer_class": "GPT2Tokenizer"}, None, "vocab.json"),
        # The class has another type of model.
        ({"tokenizer_class": "OpenAIGPTTokenizer"}, "uncased", "OpenAIGPTTokenizer"),
        ({}, "bytes", "BertTokenizer"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(tmp_path, documents, settings, kind, named):
    directory = external_models.write_huggingface(tmp_path / "model")
    if kind:
        (directory / "tokenizer.json").write_text(json.dumps(documents[kind]))
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    line = refused_import(directory)
    assert line.startswith(str(directory)) and named in line


def test_the_hint_of_a_refusal_works(tmp_path, documents):
    """transformers writes a tokenizer.json for files that have none; it has all rules if the settings say so. That of
    this class has another frame."""
    settings = {"tokenizer_class": "BartTokenizer"}
    model = documents["bytes"]["model"]
    directory = write(tmp_path / "bytes", documents, None, settings, {"vocab.json": model["vocab"]})
    (directory / "merges.txt").write_text(lines(map(" ".join, model["merges"])))
    with pytest.raises(BadInput, match=r"save_pretrained.*PreTrainedTokenizerFast"):
        read(directory)
    theirs = transformers.AutoTokenizer.from_pretrained(directory)
    theirs.save_pretrained(directory)
    (directory / "tokenizer_config.json").write_text(json.dumps(PLAIN))
    path = directory / "tokenizer.json"
    path.write_text(json.dumps(framed(json.loads(path.read_text()))))
    ids = theirs(PROSE, add_special_tokens=False)["input_ids"]
    assert read(directory).encode(PROSE) == ids


def test_rules_of_special_tokens_are_those_of_the_file(tmp_path, documents):
    """ModernBERT's [MASK] takes the space before it; its settings name it by its spelling alone."""
    document = json.loads(json.dumps(documents["bytes"]))
    [mask] = [token for token in document["added_tokens"] if token["content"] == "<mask>"]
    mask["lstrip"] = True
    roles = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
    settings = PLAIN | {f"{role}_token": piece for role, piece in roles.items()}
    directory = write(tmp_path / "model", documents | {"bytes": document}, "bytes", settings, {})
    ours = read(directory)
    assert ours.rules == tokenizers.from_file(directory / "tokenizer.json", False).rules


def test_special_tokens_that_settings_name_alone_have_the_ids_of_transformers(tmp_path, documents):
    """Also in a run with the tokenizer.json as its tokenizer."""
    roles = {"cls": "<s>", "pad": "<P>", "mask": "<M>", "sep": "</s>", "unk": "<unk>"}
    settings = PLAIN | {f"{role}_token": piece for role, piece in roles.items()}
    directory = write(tmp_path / "model", documents, "bytes", settings, {})
    ours = read(directory)
    theirs = transformers.AutoTokenizer.from_pretrained(directory)
    assert ours.special == {role: getattr(theirs, f"{role}_token_id") for role in ours.special}
    assert ours.spellings == roles
    assert ours.rules == tokenizers.from_file(directory, False, add_special=True).rules
