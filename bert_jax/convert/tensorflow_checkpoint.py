"""The original program's checkpoints, in and out: bert_config.json, vocab.txt and bert_model.ckpt.* of TensorFlow."""

import re
from pathlib import Path

import jax
import numpy as np
from ml_collections import ConfigDict

from bert_jax.convert import names
from bert_jax.convert import settings as bert_config
from bert_jax.convert.external_model import Source
from bert_jax.errors import BadInput
from bert_jax.runs import workdir
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers import wordpiece

CONFIG, CHECKPOINT, NEWEST = "bert_config.json", "bert_model.ckpt", "checkpoint"
TOKENIZER = "tokenizer_config.json"

# What optimizers keep of their own beside the parameters.
STATE = re.compile(r"(.*/)?(global_step|(adam|lamb)_[mv]|Adam(_1)?|beta[12]_power|loss_scale)")
FLOATS = ("float32", "float16", "bfloat16")  # float32 holds them all exactly


def is_here(directory: Path) -> bool:
    """Whether a directory is meant for the original program."""
    return (directory / CONFIG).is_file() or bool(checkpoints(directory))


# --- Reading --------------------------------------------------------------------------------------


def read(directory: Path) -> Source:
    """Settings, tokenizer and the names of the tensors; raises BadInput for what cannot be one of our models.

    Whether words are lower-cased is not in bert_config.json: the original takes it from the command line. It is what
    tokenizer_config.json says, where there is one; else the vocabulary tells: a piece with a capital letter is of no
    use where words are lower-cased, so with one (special pieces in brackets aside) the model is cased.
    """
    directory = Path(directory)
    path = directory / CONFIG
    values = workdir.read_json(path)
    settings = bert_config.from_google(values, path)
    pieces = bert_config.size(values, "vocab_size", path)
    load = Loader(find(directory))
    words = read_tokenizer(directory)
    return Source(directory, "google", settings, pieces, words, load.shapes, load)


def checkpoints(directory: Path) -> list[Path]:
    """The checkpoints in a directory, as TensorFlow names them: what stands before .index."""
    return sorted(path.with_suffix("") for path in directory.glob("*.ckpt*.index"))


def find(directory: Path) -> Path:
    """The one checkpoint, or the one of several that the file `checkpoint` names."""
    found = checkpoints(directory)
    if not found:
        raise BadInput(f"{directory}: no {CHECKPOINT}.index, nor any other *.ckpt*.index")
    if len(found) == 1:
        return found[0]
    several = ", ".join(path.name for path in found)
    newest = directory / NEWEST
    if not newest.is_file():
        raise BadInput(
            f"{directory}: several checkpoints, {several}, and no file {NEWEST!r} that names one"
        )
    text = newest.read_text(encoding="utf-8", errors="replace")
    named = re.search(r'^model_checkpoint_path: "(.*)"', text, re.MULTILINE)
    # It may be the path on the machine that wrote it.
    chosen = [path for path in found if named and path.name == Path(named[1]).name]
    if not chosen:
        raise BadInput(f"{newest}: names none of {several}")
    return chosen[0]


class Loader:
    """Shapes and values of a checkpoint's tensors. TensorFlow checks the CRC of every index block and every tensor."""

    def __init__(self, path: Path):
        self.path = path
        self.errors, load_checkpoint = errors(path), import_tensorflow(path).train.load_checkpoint
        index = f"{path}.index"
        self.reader = self.call(f"{index}: not readable", load_checkpoint, str(path))
        types = self.reader.get_variable_to_dtype_map()
        shapes = {
            name: tuple(shape) for name, shape in self.reader.get_variable_to_shape_map().items()
        }
        self.shapes = {name: shapes[name] for name in shapes if not STATE.fullmatch(name)}
        for name in sorted(self.shapes):
            if types[name].name not in FLOATS:
                known = ", ".join(FLOATS)
                raise BadInput(f"{path}: {name} is {types[name].name}, expected one of {known}")

    def __call__(self, name: str) -> np.ndarray:
        return self.call(f"{self.path}: {name} cannot be read", self.reader.get_tensor, name)

    def call(self, problem: str, function, argument: str):
        try:
            return function(argument)
        except self.errors as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise BadInput(f"{problem} ({reason})") from None


def import_tensorflow(path: Path):
    """TensorFlow, which accelerator images often lack, and which takes seconds to import."""
    try:
        import tensorflow
    except ImportError:
        raise BadInput(f"{path}: a TensorFlow checkpoint, and there is no TensorFlow") from None
    return tensorflow


def errors(path: Path) -> tuple[type[Exception], ...]:
    """What TensorFlow's reader raises: the error's code picks the class, as the built-in ones for a short read."""
    return import_tensorflow(path).errors.OpError, IndexError, ValueError, RuntimeError


def read_tokenizer(directory: Path) -> tokenizers.Tokenizer:
    cased = tokenizers.from_file(directory / wordpiece.FILE, lowercase=False)
    path = directory / TOKENIZER
    told = workdir.read_json(path).get("do_lower_case") if path.is_file() else None
    lowercase = told if isinstance(told, bool) else not has_capitals(cased.pieces)
    return wordpiece.WordPiece(cased.pieces, lowercase)


def has_capitals(pieces: list[str]) -> bool:
    special = re.compile(r"\[.*\]")
    return any(piece != piece.lower() for piece in pieces if not special.fullmatch(piece))


# --- Writing --------------------------------------------------------------------------------------


def write(
    directory: Path,
    config: ConfigDict,
    vocabulary,
    tokenizer: tokenizers.Tokenizer,
    params,
) -> None:
    """bert_config.json, vocab.txt, bert_model.ckpt.{index,data-00000-of-00001}; and tokenizer_config.json, which the
    original does not read, so that a later import need not guess whether words are lower-cased.

    params: the tree that the objective's init makes; the heads that it has are written. Raises BadInput, before
    anything is written, for a model that the original program could not compute.
    """
    directory = Path(directory)
    bert_config.check_google(config.model)
    if tokenizer.kind != wordpiece.KIND:
        kind = tokenizer.kind
        raise BadInput(f"a tokenizer of kind {kind}: the original program reads WordPiece alone")
    tensorflow = import_tensorflow(directory / CHECKPOINT)
    tensors = named(params, config.model.layers, vocabulary.size)
    for name, array in tensors.items():
        if not jax.numpy.isfinite(array).all():
            raise BadInput(f"{name}: the checkpoint's values are not finite")
    workdir.write_json(directory / CONFIG, bert_config.to_google(config.model, vocabulary.size))
    tokenizer.write(directory)
    workdir.write_json(directory / TOKENIZER, {"do_lower_case": tokenizer.lowercase})
    tensorflow.raw_ops.SaveV2(
        prefix=str(directory / CHECKPOINT),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=[shared(tensorflow, array) for array in tensors.values()],
    )


def named(params, layers: int, pieces: int) -> dict[str, jax.Array]:
    """{the original's name: float32, without padding} of our parameters."""
    tensors = {}
    for item, array in names.present(params, layers):
        array = array[:pieces] if item.padded else array
        tensors[item.google] = array.T if "google" in item.transposed else array
    return tensors


def shared(tensorflow, array: jax.Array):
    """A tensor in the same memory, where that is the host's: all go to SaveV2 at once, and tf.constant copies twice."""
    if array.device.platform != "cpu":
        array = np.array(array)
    return tensorflow.experimental.dlpack.from_dlpack(array.__dlpack__())
