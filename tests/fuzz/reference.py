"""What answers are compared with: BERT in NumPy and WordPiece in plain Python, neither taken from bert_jax."""

import json
import math
import re
import unicodedata
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import load_file

WEIGHTS = "model.safetensors"
NAMED = re.compile(r"(\[MASK\]|\[SEP\]|\[CLS\])")  # in the texts of predict
LONGEST_WORD = 100  # characters; a longer one is [UNK]
LONGEST_LINE = 2000  # characters; a longer one is parted
# Characters of which all versions of Unicode think alike: ASCII, Latin, Arabic, kana and ideographs.
CLEAR = re.compile(r"[ -~\u00c0-\u00d6\u00d8-\u00f6\u0620-\u064a\u3041-\u3096\u4e00-\u9fa5\n。]*")


# --- WordPiece ------------------------------------------------------------------------------------


def is_clear(text: str) -> bool:
    return CLEAR.fullmatch(text) is not None and max(map(len, text.split("\n"))) <= LONGEST_LINE


def words(text: str) -> list[str]:
    """As BERT parts a clear text: at white space, punctuation and ideographs; without accents, lower-cased."""
    plain = unicodedata.normalize("NFD", text)
    plain = "".join(c for c in plain if unicodedata.category(c) != "Mn").lower()
    return "".join(f" {c} " if is_alone(c) else c for c in plain).split()


def is_alone(character: str) -> bool:
    code = ord(character)
    ascii_symbol = code < 128 and not character.isalnum() and not character.isspace()
    ideograph = 0x4E00 <= code <= 0x9FFF
    return ascii_symbol or ideograph or unicodedata.category(character)[0] == "P"


def cut(text: str, pieces: list[str]) -> list[int]:
    """The ids of a text: of each word the longest piece first."""
    ids, table = [], {piece: number for number, piece in enumerate(pieces)}
    for word in words(text):
        ids += cut_word(word, table) if len(word) <= LONGEST_WORD else [table["[UNK]"]]
    return ids


def cut_word(word: str, table: dict[str, int]) -> list[int]:
    ids, start = [], 0
    while start < len(word):
        mark = "##" if start else ""
        ends = range(len(word), start, -1)
        end = next((end for end in ends if mark + word[start:end] in table), None)
        if end is None:
            return [table["[UNK]"]]
        ids.append(table[mark + word[start:end]])
        start = end
    return ids


# --- BERT -----------------------------------------------------------------------------------------


class Model(NamedTuple):
    """A model by the names of Hugging Face."""

    tensors: dict[str, np.ndarray]
    settings: dict  # config.json
    pieces: list[str]

    def fill(self, text: str) -> np.ndarray:
        """float64[masks, pieces]: how likely each piece is in place of each mask of a clear text."""
        ids = [self.pieces.index("[CLS]")]
        for part in NAMED.split(text):
            known = NAMED.fullmatch(part)
            ids += [self.pieces.index(part)] if known else cut(part, self.pieces)
        ids = np.array([*ids, self.pieces.index("[SEP]")])
        hidden = self.encode(ids)[ids == self.pieces.index("[MASK]")]
        hidden = self.activate(self.dense(hidden, "cls.predictions.transform.dense"))
        hidden = self.norm(hidden, "cls.predictions.transform.LayerNorm")
        table = self.get("bert.embeddings.word_embeddings.weight")
        return softmax(hidden @ table.T + self.get("cls.predictions.bias"))

    def encode(self, ids: np.ndarray) -> np.ndarray:
        embeddings = "bert.embeddings"
        hidden = self.get(f"{embeddings}.word_embeddings.weight")[ids]
        hidden = hidden + self.get(f"{embeddings}.position_embeddings.weight")[: len(ids)]
        hidden = hidden + self.get(f"{embeddings}.token_type_embeddings.weight")[0]
        hidden = self.norm(hidden, f"{embeddings}.LayerNorm")
        for number in range(self.settings["num_hidden_layers"]):
            place = f"bert.encoder.layer.{number}"
            mixed = self.dense(self.attend(hidden, place), f"{place}.attention.output.dense")
            hidden = self.norm(hidden + mixed, f"{place}.attention.output.LayerNorm")
            wide = self.activate(self.dense(hidden, f"{place}.intermediate.dense"))
            narrow = self.dense(wide, f"{place}.output.dense")
            hidden = self.norm(hidden + narrow, f"{place}.output.LayerNorm")
        return hidden

    def attend(self, hidden: np.ndarray, place: str) -> np.ndarray:
        length, heads = len(hidden), self.settings["num_attention_heads"]
        query, key, value = (
            self.dense(hidden, f"{place}.attention.self.{name}").reshape(length, heads, -1)
            for name in ("query", "key", "value")
        )
        scores = np.einsum("lhk,mhk->hlm", query, key) / math.sqrt(query.shape[-1])
        return np.einsum("hlm,mhk->lhk", softmax(scores), value).reshape(length, -1)

    def get(self, name: str) -> np.ndarray:
        return self.tensors[name].astype(np.float64)

    def dense(self, inputs: np.ndarray, name: str) -> np.ndarray:
        return inputs @ self.get(f"{name}.weight").T + self.get(f"{name}.bias")

    def norm(self, inputs: np.ndarray, name: str) -> np.ndarray:
        centred = inputs - inputs.mean(-1, keepdims=True)
        variance = (centred**2).mean(-1, keepdims=True) + self.settings.get("layer_norm_eps", 1e-12)
        return centred / np.sqrt(variance) * self.get(f"{name}.weight") + self.get(f"{name}.bias")

    def activate(self, inputs: np.ndarray) -> np.ndarray:
        kind = self.settings.get("hidden_act", "gelu")
        if kind == "relu":
            return np.maximum(inputs, 0)
        if kind == "gelu":
            return inputs * (1 + np.vectorize(math.erf)(inputs / math.sqrt(2))) / 2
        inner = math.sqrt(2 / math.pi) * (inputs + 0.044715 * inputs**3)
        return inputs * (1 + np.tanh(inner)) / 2


def softmax(scores: np.ndarray) -> np.ndarray:
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


# --- Directories ----------------------------------------------------------------------------------


def open_model(directory: Path, kind: str = "huggingface") -> Model:
    """What another program left: kind is huggingface or google."""
    pieces = (directory / "vocab.txt").read_text().removesuffix("\n").split("\n")
    if kind == "huggingface":
        settings = json.loads((directory / "config.json").read_text())
        return Model(load_file(directory / WEIGHTS), settings, pieces)
    settings = json.loads((directory / "bert_config.json").read_text())
    act = settings.get("hidden_act", "gelu")
    settings |= {"hidden_act": "gelu_new" if act == "gelu" else act, "layer_norm_eps": 1e-12}
    return Model(read_google(directory / "bert_model.ckpt"), settings, pieces)


def read_google(path: Path) -> dict[str, np.ndarray]:
    """{name of Hugging Face: array}, by the rules with which its authors converted the original's checkpoints."""
    import tensorflow as tf

    reader, found = tf.train.load_checkpoint(str(path)), {}
    for theirs in reader.get_variable_to_shape_map():
        array, name = reader.get_tensor(theirs), re.sub(r"layer_(\d+)", r"layer.\1", theirs)
        array = array.T if name.endswith("/kernel") else array
        name = re.sub(r"/(kernel|gamma|output_weights)$", "/weight", name)
        name = re.sub(r"/(beta|output_bias)$", "/bias", name)
        name = re.sub(r"_embeddings$", "_embeddings/weight", name)
        found[name.replace("/", ".")] = np.ascontiguousarray(array, np.float32)
    return found


# --- Answers of predict ---------------------------------------------------------------------------


def filled(model: Model, text: str, top: int, result: dict) -> str:
    """What is wrong with the candidates for the masks of a text, or an empty text."""
    if result["text"] != text:
        return f"{text!r} became {result['text']!r}"
    if len(result["masks"]) != text.count("[MASK]"):
        return f"{len(result['masks'])} masks"
    known = is_clear(text) and top <= len(model.pieces)
    expected = model.fill(text) if known else [None] * len(result["masks"])
    for shares, mask in zip(expected, result["masks"], strict=True):
        problem = candidates(mask, top) or (known and other_numbers(model.pieces, shares, mask))
        if problem:
            return problem
    return ""


def candidates(mask: list[dict], top: int) -> str:
    shares = [candidate["probability"] for candidate in mask]
    right = np.all(np.diff(shares) <= 0) and 0 <= min(shares) and sum(shares) <= 1 + 1e-5
    return "" if right and len(shares) == top else f"probabilities {shares}"


def other_numbers(pieces: list[str], shares: np.ndarray, mask: list[dict]) -> str:
    """Where the candidates are not the likeliest pieces, or not as likely as they are said to be."""
    best = np.sort(shares)[::-1]
    for place, candidate in enumerate(mask):
        said, piece = candidate["probability"], candidate["piece"]
        for expected in (best[place], shares[pieces.index(piece)]):
            if not math.isclose(said, expected, rel_tol=1e-4, abs_tol=1e-7):
                return f"candidate {place}, {piece}: {said}, by NumPy {expected}"
    return ""
