"""A task refuses a vocabulary that lacks special tokens that it needs; nothing is appended to one unless asked."""

import pytest
from kits import corpora
from kits.malformed_inputs import refused
from kits.vocabularies import digits_like, gpt2_like

from bert_jax import config
from bert_jax.data import store as stores
from bert_jax.data.vocabulary import expected_vocabulary, tokenizer_from_file
from bert_jax.errors import BadInput
from bert_jax.inference import batches
from bert_jax.registry import registered
from bert_jax.tasks.feed import StoreFeed, open_feed
from bert_jax.tokenizers.special_tokens import Vocabulary, parse_frame

SIZE = 501  # pieces of the vocabulary, the last one of them special
ENDS = dict.fromkeys(("unk", "cls", "sep"), SIZE - 1)
BLOCKS = ("objective.name=causal_lm", "task.name=token_blocks")


@pytest.fixture
def make(tmp_path):
    """make(key=value...) -> a config with this vocabulary and a small corpus."""
    gpt2_like().save(str(tmp_path / "tokenizer.json"))

    def config_of(*changes):
        path = f"tokenizer.path={tmp_path}/tokenizer.json"
        texts = corpora.make_text(60)
        return corpora.config_of(tmp_path, texts, path, *changes)

    return config_of


@pytest.mark.parametrize("task", sorted(registered("task")))
def test_each_task_names_what_it_needs(tmp_path, make, task):
    changes = f"task.name={task}", "model.max_length=128", "phases.main.length=128"
    settings = make(*changes)
    if task == "token_blocks":
        assert tokenizer_from_file(settings).special == ENDS
        return
    with pytest.raises(BadInput) as error:
        expected_vocabulary(settings, print)
    (line,) = str(error.value).splitlines()
    for part in (f"{tmp_path}/tokenizer.json", "[PAD]", repr(task), "tokenizer.add_special=True"):
        assert part in line
    is_masked = task in ("sentence_pairs", "full_sentences", "packed_documents")
    assert ("[MASK]" in line) == is_masked
    settings = make(*changes, "tokenizer.add_special=True")
    expected = Vocabulary(SIZE + 2, pad=SIZE, mask=SIZE + 1, **ENDS)
    assert expected_vocabulary(settings, print) == expected


def test_a_store_keeps_the_pieces_of_a_given_vocabulary(tmp_path, make):
    """Blocks of text end documents with its only special token; a task with masks refuses the store."""
    settings = make(*BLOCKS)
    feed = open_feed(settings, 0)
    assert feed.vocabulary == Vocabulary(SIZE, **ENDS)
    assert len(stores.open_array(feed.path / "unigrams.npy")[0]) == SIZE
    (batch,) = feed.train(config.phases(settings)[0], 0, 1)
    assert batch["tokens"].max() == SIZE - 1
    assert (feed.store.splits["train"].tokens < SIZE - 1).all()
    with pytest.raises(BadInput, match=r"store.*\[PAD\], \[MASK\].*sentence_pairs"):
        open_feed(make("verify_store=False"))


def test_prepare_refuses_it_before_any_work(tmp_path, make):
    settings = make()
    config.save(settings, tmp_path / "config.json")
    before = sorted(tmp_path.rglob("*"))
    assert "[MASK]" in refused("prepare", "--config", tmp_path / "config.json")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("task", ["sentence_pairs", "full_sentences", "packed_documents"])
def test_only_masks_of_words_need_word_marks(tmp_path, make, task):
    """They are refused before `prepare` begins, or before a run with a store of masks of tokens compiles."""
    digits_like().save(str(tmp_path / "tokenizer.json"))
    keys = f"task.name={task}", "model.max_length=64", "phases.main.length=64"
    words = make(*keys, "task.masking=whole_word")
    config.save(words, tmp_path / "words.json")
    before = sorted(tmp_path.rglob("*"))
    line = refused("prepare", "--config", tmp_path / "words.json")
    assert "config.task.masking='whole_word'" in line and "tokenizer.json" in line
    assert sorted(tmp_path.rglob("*")) == before
    settings = make(*keys, "task.masking=token")
    feed = open_feed(settings, 0)
    (batch,) = feed.train(config.phases(settings)[0], 0, 1)
    assert batch["masked_weights"].sum() > 9
    assert expected_vocabulary(settings, print) == feed.vocabulary
    settings.task.masking = "span"
    for refuse in (
        lambda: StoreFeed(settings, feed.store),
        lambda: expected_vocabulary(settings, print),
    ):
        with pytest.raises(BadInput, match=f"task.masking='span'.*{tmp_path}/store"):
            refuse()


@pytest.mark.parametrize(
    "special, tokens",
    [
        ({}, [7, 8, 0, 0]),
        ({"cls": 9, "sep": 9}, [9, 7, 8, 9]),
        ({"pad": 5, "sep": 6, "mask": 8}, [7, 8, 6, 5]),
    ],
)
def test_batches_of_texts_have_the_special_tokens_that_there_are(special, tokens):
    frame = parse_frame("cls | sep | sep").ids(Vocabulary(10, **special)._asdict())
    batch = batches.make_batch([[frame.wrap([7, 8])]], 4, special.get("pad"))
    assert batch["tokens"].tolist() == [tokens]
    assert batch["sequence_ids"].sum() == 2 + len({"cls", "sep"} & special.keys())
