"""The parts of SentencePiece's model file that are read here, as messages; all else in it is kept as it is.

The module that comes with `sentencepiece` refuses a protobuf older than the one that generated it (7.36 for 0.2.3), and
Apache Beam wants one below 7. Numbers, kinds and defaults are those of sentencepiece_model.proto.
"""

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto

# Types of a piece, and kinds of models.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = range(1, 6)
UNIGRAM, BPE = 1, 2

# Of each message, its fields: (name, number, type, default). A type of another message is its name.
MESSAGES = {
    "Piece": [
        ("piece", 1, Field.TYPE_STRING, ""),
        ("score", 2, Field.TYPE_FLOAT, "0"),
        ("type", 3, Field.TYPE_INT32, str(NORMAL)),
    ],
    "Trainer": [
        ("model_type", 3, Field.TYPE_INT32, str(UNIGRAM)),
        ("treat_whitespace_as_suffix", 24, Field.TYPE_BOOL, "false"),
        ("byte_fallback", 35, Field.TYPE_BOOL, "false"),
    ],
    "Normalizer": [
        ("precompiled_charsmap", 2, Field.TYPE_BYTES, ""),
        ("add_dummy_prefix", 3, Field.TYPE_BOOL, "true"),
        ("remove_extra_whitespaces", 4, Field.TYPE_BOOL, "true"),
    ],
    "Model": [
        ("pieces", 1, "Piece", None),
        ("trainer_spec", 2, "Trainer", None),
        ("normalizer_spec", 3, "Normalizer", None),
    ],
    # A model of which nothing but the pieces is touched: the rest keeps its bytes, and its order.
    "Pieces": [("pieces", 1, "Piece", None)],
}


def describe() -> FileDescriptorProto:
    file = FileDescriptorProto(name="bert_jax/model.proto", package="bert_jax", syntax="proto2")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, default in fields:
            added = message.field.add(name=field, number=number, label=Field.LABEL_OPTIONAL)
            if field == "pieces":
                added.label = Field.LABEL_REPEATED
            if isinstance(kind, str):
                added.type, added.type_name = Field.TYPE_MESSAGE, f".bert_jax.{kind}"
            else:
                added.type, added.default_value = kind, default
    return file


POOL = descriptor_pool.DescriptorPool()
POOL.Add(describe())
Model, Pieces = (
    message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"bert_jax.{name}"))
    for name in ("Model", "Pieces")
)
