"""Vocabularies that other libraries train: SentencePiece models, and one like GPT-2's."""

import io
import json
import random
from pathlib import Path

import sentencepiece
import tokenizers as library
from kits.texts import PROSE
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.special_tokens import SPECIAL, TEXT_END


def make_model(texts=PROSE, **settings) -> bytes:
    """Trains a SentencePiece unigram model with the library's default settings."""
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=file,
        hard_vocab_limit=False,
        minloglevel=2,
        **{"vocab_size": 300, **settings},
    )
    return file.getvalue()


def save_and_open(tmp_path, model: bytes, add_special: bool = False) -> tokenizers.Tokenizer:
    path = tmp_path / "some.model"
    path.write_bytes(model)
    return tokenizers.from_file(path, True, add_special)


def gpt2_like():
    """Byte-level BPE with one special token, which is the last piece, as GPT-2 has it."""
    theirs = library.Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet)
    theirs.train_from_iterator(PROSE, trainer)
    theirs.add_special_tokens([TEXT_END])
    return theirs


def llama_like():
    """BPE over ▁ with bytes for unknown characters, without padding and mask tokens."""
    theirs = library.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    parts = normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")
    theirs.normalizer = normalizers.Sequence([*parts])
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    spaces = decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()
    theirs.decoder = decoders.Sequence([*spaces, decoders.Strip(" ", 1)])
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=special)
    words = sorted({word for text in PROSE for word in text.split()})
    theirs.train_from_iterator(words, trainer)
    return theirs


def digits_like():
    """BPE whose pieces contain spaces, and do not mark words; digits are split by three."""
    theirs = library.Tokenizer(models.BPE(unk_token="[UNK]"))
    digits = library.Regex(r"\d{1,3}(?=(?:\d{3})*(?!\d))")
    words = pre_tokenizers.Split(" ", "merged_with_next")
    splits = [pre_tokenizers.Split(digits, "isolated"), words]
    theirs.pre_tokenizer = pre_tokenizers.Sequence(splits)
    theirs.decoder = decoders.Fuse()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["[UNK]"])
    theirs.train_from_iterator([*PROSE, "in 1234567 or 2024"], trainer)
    theirs.add_special_tokens(["[PAD]", "[CLS]", "[SEP]", "[MASK]"])
    return theirs


def dna_like():
    """BPE of runs of A, C, G and T without spaces."""
    theirs = library.Tokenizer(models.BPE(unk_token="[UNK]"))
    theirs.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=200, special_tokens=[*SPECIAL.values()])
    theirs.train_from_iterator(dna(200), trainer)
    return theirs


def characters_like():
    """WordLevel of ten pieces: the special tokens, A, C, G, T and N."""
    pieces = [*SPECIAL.values(), *"ACGTN"]
    numbers = {piece: number for number, piece in enumerate(pieces)}
    theirs = library.Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    theirs.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    theirs.decoder = decoders.Fuse()
    theirs.add_special_tokens([*SPECIAL.values()])
    return theirs


def dna(number: int) -> list[str]:
    """Returns random sequences of nucleotides."""
    draw = random.Random(number)
    return ["".join(draw.choices("ACGT", k=draw.randrange(1, 200))) for _ in range(number)]


LLM_JP = {name: f"<{name.upper()}|LLM-jp>" for name in ("cls", "sep", "mask", "pad")}


def write_named(directory: Path) -> Path:
    """Writes a unigram tokenizer.json with <s>, </s> and <unk>, whose settings name other special tokens."""
    theirs = library.Tokenizer(models.Unigram())
    theirs.pre_tokenizer = pre_tokenizers.Metaspace()
    theirs.decoder = decoders.Metaspace()
    special = ["<unk>", "<s>", "</s>", LLM_JP["mask"], LLM_JP["pad"], LLM_JP["cls"], LLM_JP["sep"]]
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=special, unk_token="<unk>")
    theirs.train_from_iterator(PROSE, trainer)
    directory.mkdir(exist_ok=True)
    theirs.save(str(directory / "tokenizer.json"))
    settings = {f"{name}_token": piece for name, piece in LLM_JP.items()}
    settings |= {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return directory


def write_roberta(directory: Path) -> Path:
    """Writes a vocabulary and its merges as RoBERTa has them, with <mask> at the end; returns the directory."""
    write_bpe_files(directory, ("vocab.json", "merges.txt"), is_gpt=False)
    path = directory / "vocab.json"
    pieces = json.loads(path.read_text())
    del pieces[TEXT_END]
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *sorted(pieces, key=pieces.get), "<mask>"]
    path.write_text(json.dumps({piece: number for number, piece in enumerate(pieces)}))
    return directory


def write_bpe_files(directory: Path, names: tuple[str, str], is_gpt: bool) -> Path:
    """Writes a vocabulary and its merges as GPT-2 or GPT have them; returns the directory.

    is_gpt: lower-cased words that end with </w>, and an unknown token, the first piece.
    """
    theirs = library.Tokenizer(models.BPE())
    if is_gpt:
        theirs.normalizer = normalizers.BertNormalizer(lowercase=True)
        theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        keys = {"special_tokens": ["<unk>"], "end_of_word_suffix": "</w>"}
    else:
        theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        keys = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    theirs.train_from_iterator(PROSE, trainers.BpeTrainer(vocab_size=500, **keys))
    model = json.loads(theirs.to_str())["model"]
    pieces = model["vocab"]
    if not is_gpt:
        pieces[TEXT_END] = len(pieces)
    directory.mkdir(exist_ok=True)
    (directory / names[0]).write_text(json.dumps(pieces))
    lines = ["#version: 0.2", *map(" ".join, model["merges"]), ""]
    (directory / names[1]).write_text("\n".join(lines), encoding="utf-8")
    return directory
