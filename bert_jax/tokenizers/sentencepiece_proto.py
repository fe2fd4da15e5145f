"""Protobuf messages for the fields of SentencePiece's model file that this project reads; others are kept unchanged.

The module that `sentencepiece` includes refuses a protobuf older than the one that generated it (7.36 for 0.2.3), while
Apache Beam requires protobuf below 7. Field numbers, types and defaults are those of sentencepiece_model.proto.
"""

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto

# Types of pieces, and types of models.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = range(1, 6)
UNIGRAM = 1
BPE = 2

# {message: its fields, (name, number, type, default)}; the type of a message field is the message's name.
FIELDS = {
    "Piece": [
        ("piece", 1, "STRING", ""),
        ("score", 2, "FLOAT", "0"),
        ("type", 3, "INT32", str(NORMAL)),
    ],
    "Trainer": [
        ("model_type", 3, "INT32", str(UNIGRAM)),
        ("treat_whitespace_as_suffix", 24, "BOOL", "false"),
        ("byte_fallback", 35, "BOOL", "false"),
    ],
    "Normalizer": [
        ("precompiled_charsmap", 2, "BYTES", ""),
        ("add_dummy_prefix", 3, "BOOL", "true"),
        ("remove_extra_whitespaces", 4, "BOOL", "true"),
    ],
    "Model": [
        ("pieces", 1, "Piece", None),
        ("trainer_spec", 2, "Trainer", None),
        ("normalizer_spec", 3, "Normalizer", None),
    ],
    # A model with only its pieces parsed; all other fields keep their bytes and order.
    "Pieces": [("pieces", 1, "Piece", None)],
}


def build_descriptor() -> FileDescriptorProto:
    """Builds the descriptor of the messages in FIELDS."""
    file = FileDescriptorProto(name="bert_jax/model.proto", package="bert_jax", syntax="proto2")
    for message, fields in FIELDS.items():
        descriptor = file.message_type.add(name=message)
        for name, number, kind, default in fields:
            label = Field.LABEL_REPEATED if name == "pieces" else Field.LABEL_OPTIONAL
            field = descriptor.field.add(name=name, number=number, label=label)
            if kind in FIELDS:
                field.type = Field.TYPE_MESSAGE
                field.type_name = f".bert_jax.{kind}"
            else:
                field.type = getattr(Field, f"TYPE_{kind}")
                field.default_value = default
    return file


POOL = descriptor_pool.DescriptorPool()
POOL.Add(build_descriptor())
Model = message_factory.GetMessageClass(POOL.FindMessageTypeByName("bert_jax.Model"))
Pieces = message_factory.GetMessageClass(POOL.FindMessageTypeByName("bert_jax.Pieces"))
