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

# (message, field, number, type, default); the type of a message field is the message's name.
FIELDS = [
    ("Piece", "piece", 1, Field.TYPE_STRING, ""),
    ("Piece", "score", 2, Field.TYPE_FLOAT, "0"),
    ("Piece", "type", 3, Field.TYPE_INT32, str(NORMAL)),
    ("Trainer", "model_type", 3, Field.TYPE_INT32, str(UNIGRAM)),
    ("Trainer", "treat_whitespace_as_suffix", 24, Field.TYPE_BOOL, "false"),
    ("Trainer", "byte_fallback", 35, Field.TYPE_BOOL, "false"),
    ("Normalizer", "precompiled_charsmap", 2, Field.TYPE_BYTES, ""),
    ("Normalizer", "add_dummy_prefix", 3, Field.TYPE_BOOL, "true"),
    ("Normalizer", "remove_extra_whitespaces", 4, Field.TYPE_BOOL, "true"),
    ("Model", "pieces", 1, "Piece", None),
    ("Model", "trainer_spec", 2, "Trainer", None),
    ("Model", "normalizer_spec", 3, "Normalizer", None),
    # A model with only its pieces parsed; all other fields keep their bytes and order.
    ("Pieces", "pieces", 1, "Piece", None),
]


def build_descriptor() -> FileDescriptorProto:
    """Builds the descriptor of the messages in FIELDS."""
    file = FileDescriptorProto(name="bert_jax/model.proto", package="bert_jax", syntax="proto2")
    messages = {}
    for message, name, number, field_type, default in FIELDS:
        if message not in messages:
            messages[message] = file.message_type.add(name=message)
        label = Field.LABEL_REPEATED if name == "pieces" else Field.LABEL_OPTIONAL
        field = messages[message].field.add(name=name, number=number, label=label)
        if isinstance(field_type, str):
            field.type = Field.TYPE_MESSAGE
            field.type_name = f".bert_jax.{field_type}"
        else:
            field.type = field_type
            field.default_value = default
    return file


POOL = descriptor_pool.DescriptorPool()
POOL.Add(build_descriptor())
Model = message_factory.GetMessageClass(POOL.FindMessageTypeByName("bert_jax.Model"))
Pieces = message_factory.GetMessageClass(POOL.FindMessageTypeByName("bert_jax.Pieces"))
