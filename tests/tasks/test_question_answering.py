"""Questions about texts: windows, exact spans, SQuAD's scores and files, and a run that learns to answer."""

import json
import random
import tarfile
from dataclasses import replace

import numpy as np
import pytest
from kits import labelled
from kits.labelled import LENGTH
from kits.paths import data
from kits.runs import make_run, use_devices
from kits.texts import DIFFICULT, PROSE, difficult_text, published

from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.data import store as stores
from bert_jax.data import stream
from bert_jax.errors import BadInput
from bert_jax.tasks import question_answering
from bert_jax.tasks.question_answering import answer_scores, squad, windows
from bert_jax.tasks.supervised import examples
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.tokenizers.base import Tokenizer
from bert_jax.tokenizers.special_tokens import BERT_FRAME, parse_frame

NAMES = "Ada Ben Cleo Dan Eve".split()
PLACES = "Rome Oslo Lima Nice Bern Kyoto".split()


def articles(count: int, seed: int = 0, no_answer: bool = False) -> list[dict]:
    """Returns articles of two texts: sentences about people, and a question about where one lives."""
    draw = random.Random(seed)

    def paragraph(number: int) -> dict:
        place, name, *others = draw.choice(PLACES), *draw.sample(NAMES, 4)
        said = [f"{name}  lives in {place}.", *(f"{other} sleeps." for other in others)]
        context = "\n".join([f"Naïve façade {number}", *draw.sample(said, 4)])
        is_impossible = no_answer and number % 3 == 0
        answer = {"text": place, "answer_start": context.index(place)}
        asked = f"Where is {'nobody' if is_impossible else name}?"
        own = {"id": f"q{number}", "question": asked, "is_impossible": is_impossible}
        qas = [own | {"answers": [] if is_impossible else [answer, answer]}]
        return {"context": context, "qas": qas}

    numbers = ((2 * article, 2 * article + 1) for article in range(count))
    return [{"title": f"t{pair[0]}", "paragraphs": [*map(paragraph, pair)]} for pair in numbers]


def write(path, found: list[dict]):
    path.write_text(json.dumps({"version": "v2.0", "data": found}))


@pytest.fixture
def opened(tmp_path):
    """(config, store) of questions, some without an answer, in few windows and many."""
    write(tmp_path / "a.json", articles(12, no_answer=True))
    words = tokenizers.train("wordpiece", PROSE, 120, True)
    keys = labelled.places("", tmp_path) | {"task.no_answer": True, "task.heldout": 0.5}
    config = labelled.load("squad", keys)
    return config, examples.open_or_build(config, words)


# --- Windows and spans ----------------------------------------------------------------------------


def spans_of_original(size: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Returns the start and size of each window of a text of `size` pieces, one after the other."""
    found, start = [], 0
    while not found or sum(found[-1]) < size:
        found.append((start, min(size - start, room)))
        start += min(found[-1][1], stride)
    return found


def test_windows_cover_every_text_and_know_its_answer(tmp_path):
    """Also texts of one piece, and a stride that is longer than a window."""
    draw = np.random.default_rng(0)
    for stride in (1, 5, 12, 100):
        sizes = draw.integers(1, 60, (40, 2))
        firsts = [int(draw.integers(-1, size)) for size in sizes[:, 1]]
        ends = np.minimum(np.array(firsts) + draw.integers(0, 9, 40), sizes[:, 1] - 1).tolist()
        answers = [(f, e if f >= 0 else f) for f, e in zip(firsts, ends, strict=True)]
        np.save(tmp_path / "spans.npy", np.array(answers))
        ends = np.cumsum(sizes.ravel())
        split = stores.Split(tmp_path, None, ends, np.arange(2, 81, 2), None, range(40))
        rows = windows.rows(split, LENGTH, parse_frame(BERT_FRAME), 6, stride)[:, 0]
        assert rows.dtype == np.int64
        for number, (question, size) in enumerate(sizes.tolist()):
            mine = rows[rows[:, 4] == number]
            begin, asked = int(ends[2 * number + 1]) - size, min(question, 6)
            expected = spans_of_original(size, LENGTH - 3 - asked, stride)
            assert [(int(row[2]) - begin, int(row[3])) for row in mine] == expected
            assert (mine[:, 0] == begin - question).all() and (mine[:, 1] == asked).all()
            first, last = answers[number]
            for (before, inside), targets in zip(expected, mine[:, 5:].tolist(), strict=True):
                whole = 0 <= first - before and last - before < inside and first >= 0
                shift = asked + 2 - before
                assert targets == ([first + shift, last + shift] if whole else [0, 0])


def check_spans(tokenizer: Tokenizer, text: str, draw: random.Random) -> None:
    """Asserts that random spans of whole pieces are found again; of pieces that overlap, all are found."""
    (ids, offsets), (same,) = next(tokenizer.encode_with_offsets([text])), tokenizer.encode([text])
    assert ids == same
    places = windows.locate(text, offsets)
    assert (np.diff(places, axis=0) >= 0).all() and (places[:, 0] <= places[:, 1]).all()
    for _ in range(10):
        first, last = sorted(draw.choices(range(len(places)), k=2))
        start, end = places[first, 0], places[last, 1]
        if text[start:end].strip():
            found = windows.find_span(places, start, text[start:end])
            found = places[found[0], 0], places[found[1], 1]
            overlap = (places[first:, 0] < end).sum() > last - first + 1
            overlap |= (places[:first, 1] > start).any()
            assert found == (start, end) or (overlap and found[0] <= start and end <= found[1])


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "byte_bpe"])
def test_spans_of_pieces_are_exact_in_difficult_texts(kind):
    draw = random.Random(0)
    size = {"wordpiece": 150, "unigram": 200, "byte_bpe": 300}[kind]
    tokenizer = tokenizers.train(kind, [*PROSE, *DIFFICULT * 20], size, True)
    for text in [*DIFFICULT, *(difficult_text(draw) for _ in range(200))]:
        check_spans(tokenizer, text, draw)


def test_removed_characters_are_in_the_answers_around_them():
    """WordPiece strips accents, and removes control characters."""
    tokenizer = tokenizers.train("wordpiece", PROSE, 150, True)
    text = "The cafe\u0301\u0323 in I\u0307stanbul\u200b, Zu\x00rich \u4e2d\u56fd \U0001f600!"
    _, offsets = next(tokenizer.encode_with_offsets([text]))
    places = windows.locate(text, offsets)
    for answer in ("cafe\u0301\u0323", "I\u0307stanbul", "Zu\x00rich", "\u56fd", "\U0001f600"):
        first, last = windows.find_span(places, text.index(answer), answer)
        assert text[places[first, 0] : places[last, 1]] == answer
    assert windows.find_span(places, text.index(" in"), " ") == (-1, -1)


# --- The store and its batches --------------------------------------------------------------------


def point_at_targets(rows) -> np.ndarray:
    """Returns the logits of a model that knows all answers, float32[R, L, 2]."""
    logits = np.zeros((len(rows), LENGTH, 2), np.float32)
    for side in (0, 1):
        target, start = rows[:, 0, 5 + side], rows[:, 0, 5]
        logits[np.arange(len(rows)), target, side] = np.where(start, 9, 1)
    return logits


def test_targets_decode_to_the_answers(opened):
    """Logits that point at the targets give all answers, '' for none, and perfect scores; batches point there, too."""
    config, store = opened
    dataset, phase = question_answering.make(config, store), configs.phases(config)[0]
    for split in ("train", "dev"):
        rows = dataset.rows(phase, split, 0)
        logits = point_at_targets(rows)
        questions = question_answering.read_questions(store, split, rows)
        found = question_answering.decode(config, store, split, {"label_logits": logits}, rows)
        assert [each["id"] for each in found] == [name for name, *_ in questions]
        wanted = [answers[0] if answers else "" for *_, answers in questions]
        assert [each["prediction"] for each in found] == wanted and "" in wanted
        scores = dataset.score(split, {"label_logits": logits}, rows)
        assert {scores[name] for name in ("exact", "f1", "has_answer_f1", "best_f1")} == {1.0}
        assert len(rows) > 2 * len(questions)
        review = dataset.review(split, {"label_logits": logits}, rows, 4)
        assert [part["guess"] for _, part in review["samples"]] == wanted[:4]
        assert len(review["tables"]["wrong predictions"]) == 1  # the heads
    pieces, tokens = tokenizers.load(store.path / "tokenizer").pieces, set()
    for arrays in stream.EvaluationBatches(dataset, phase, "dev", 1000, 8):
        names = "tokens", "start_positions", "end_positions"
        for row, first, last in zip(*(arrays[name] for name in names), strict=True):
            tokens.add("".join(pieces[i] for i in row[first : last + 1]).replace("##", ""))
    wanted = {answers[0].lower() for *_, answers in questions if answers}
    assert tokens - {"[UNK]"} <= wanted | {"[CLS]"} and "[CLS]" in tokens


@pytest.mark.parametrize("most", [1, 7, 20, 33])
def test_a_part_of_the_rows_has_all_windows_of_its_questions(opened, most):
    """So a model that knows all answers has perfect scores. The rows are the same without batches of similar sizes."""
    config, store = opened
    dataset, phase = question_answering.make(config, store), configs.phases(config)[0]
    numbers, counts = np.unique(dataset.rows(phase, "dev", 0)[:, 0, 4], return_counts=True)
    windows_of = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    rows = stream.EvaluationBatches(dataset, phase, "dev", most, 8).chosen()
    found, counts = np.unique(rows[:, 0, 4], return_counts=True)
    assert {n: windows_of[n] for n in found.tolist()} == dict(zip(found, counts, strict=True))
    assert most - max(windows_of.values()) < len(rows) <= max(most, windows_of[found[0]])
    scores = dataset.score("dev", {"label_logits": point_at_targets(rows)}, rows)
    assert scores["exact"] == scores["f1"] == 1.0
    other = stream.EvaluationBatches(replace(dataset, sizes=None), phase, "dev", most, 8).chosen()
    assert sorted(map(tuple, other[:, 0])) == sorted(map(tuple, rows[:, 0]))


def test_articles_are_not_divided(opened):
    config, _ = opened
    parts, _ = examples.read(config)
    train, dev = ({example.group for example in parts[split]} for split in ("train", "dev"))
    assert train and dev and not train & dev


def test_keys_of_windows_do_not_need_another_store(opened):
    config, store = opened
    config.update({"task": {"stride": 3, "null_threshold": 1.0, "answer_length": 2}})
    assert examples.open_or_build(config).fingerprint == store.fingerprint


@pytest.mark.parametrize("start, text", [(10_000, "Rome"), (-1, "."), (0, "Rome")])
def test_a_wrong_answer_is_refused(tmp_path, start, text):
    found = articles(1)
    found[0]["paragraphs"][1]["qas"][0]["answers"] = [{"answer_start": start, "text": text}]
    write(tmp_path / "a.json", found)
    with pytest.raises(BadInput, match=rf"a\.json: question q1: answer_start={start}") as error:
        squad.load(None, tmp_path / "a.json")
    assert "\n" not in str(error.value)


def test_a_file_with_a_mark_and_lone_surrogates_is_read(tmp_path):
    """They become U+FFFD, one for one, so that answers stay where they are; pairs are characters."""
    found = articles(1)
    question = found[0]["paragraphs"][0]["qas"][0]
    question["question"] = "\ud83d\ude00\ud83d?"
    path = tmp_path / "a.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"data": found}).encode())
    assert "\U0001f600\ufffd?" in [example.texts[0] for example in squad.load(None, path)]


@pytest.mark.parametrize("content", ["", "[]", '{"data": [{}]}', '{"data": 3}', b"\xff"])
def test_another_file_is_refused(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadInput, match=r"a\.json"):
        squad.load(None, tmp_path / "a.json")


def test_rows_without_room_for_a_text_are_refused_with_the_key(tmp_path):
    keys = labelled.places("", tmp_path) | {"task.question_length": LENGTH}
    with pytest.raises(BadInput, match=f"length={LENGTH}: .*question_length={LENGTH}"):
        labelled.load("squad", keys)


def test_two_questions_with_an_id_are_refused(tmp_path):
    """Their predictions would be one. 1 and "1" are the same key of JSON."""
    found = articles(2)
    for article, name in zip(found, (1, "1"), strict=True):
        article["paragraphs"][0]["qas"][0]["id"] = name
    write(tmp_path / "a.json", found)
    with pytest.raises(BadInput, match=r"a\.json: 2 .*'1'"):
        squad.load(None, tmp_path / "a.json")


# --- Runs -----------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_run_learns_to_answer(tmp_path, capsys, monkeypatch):
    """It is evaluated on other articles; then it answers a question about a text."""
    use_devices(monkeypatch, 1)
    write(tmp_path / "a.json", articles(150))
    words = tokenizers.train("wordpiece", [f"{name}." for name in NAMES + PLACES] * 9, 90, True)
    make_run(tmp_path / "first", words=words)
    keys, run = labelled.places(tmp_path / "first", tmp_path), tmp_path / "run"
    last = labelled.tune(labelled.load("squad", keys, **{"task.epochs": 6}), run)
    assert last["split"] == "dev" and 0.9 < last["exact"] <= last["f1"]
    (tmp_path / "text").write_text("Naïve façade\nDan sleeps.\nEve  lives in Lima.\nBen sleeps.")
    asked = "--context", str(tmp_path / "text"), "--question", "Where is Eve?", "--json", "-"
    capsys.readouterr()
    assert main(["predict", "--model", str(run), *asked]) == 0
    assert json.loads(capsys.readouterr().out)[0]["prediction"] == "Lima"


# --- Scores on SQuAD ------------------------------------------------------------------------------

PUBLISHED = {
    "1.1": ("1.1_MatchLSTMwithAnsPtrBoundaryEnsembleSinga", 0.67635, 0.76756),
    "2.0": ("v2.0_BERTsinglemodelGoogleAILanguage", 0.78742, 0.81775),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    directory = tmp_path_factory.mktemp("squad")
    with tarfile.open(data("squad.tar.xz")) as file:
        file.extractall(directory, filter="data")
    return directory / "squad"


@pytest.mark.parametrize(
    "correct, said, expected",
    [
        (["The cat!", "dog"], "a  CAT", (1, 1)),  # case, articles, punctuation and spaces
        (["b c d e", "x b c"], "b c y", (0, 2 / 3)),  # the best of several, precision and recall
        (["b b c"], "b d", (0, 2 / 5)),  # a word counts as often as both have it
        ([], "", (1, 1)),
        (["b"], "", (0, 0)),
        (["the", "b"], "a", (0, 0)),  # an answer of no words is none if there is another
    ],
)
def test_an_answer_is_compared_by_its_words(correct, said, expected):
    assert answer_scores.compare(correct, said) == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.parametrize("version", PUBLISHED)
def test_published_predictions_have_their_published_scores(folder, version):
    name, exact, f1 = PUBLISHED[version]
    path = folder / f"dev-v{version}.rebuilt.json"
    said = json.loads((folder / "predictions" / f"{name}.json").read_text())
    found = squad.load(None, path)
    answers = [[answer["text"] for answer in example.label] for example in found]
    scores = answer_scores.score(answers, [said[example.location] for example in found])
    assert (scores["exact"], scores["f1"]) == pytest.approx((exact, f1), abs=6e-6)


@pytest.mark.slow
@pytest.mark.parametrize("file", ["dev-v1.1.rebuilt", "cs224n-dev-v2.0", "xquad.zh"])
def test_all_answers_of_squad_are_found_again(folder, file):
    """More than 99 % are whole pieces, and have their exact text; the others are within their pieces."""
    tokenizer = tokenizers.from_file(published("bert_base_uncased_vocab.txt"), True)
    places, whole = {}, []
    for example in squad.load(None, folder / f"{file}.json"):
        text = example.texts[1]
        if text not in places:
            ids, offsets = next(tokenizer.encode_with_offsets([text]))
            assert [ids] == tokenizer.encode([text])
            places[text] = windows.locate(text, offsets)
        for answer in example.label:
            first, last = windows.find_span(places[text], answer["answer_start"], answer["text"])
            start, end = places[text][first, 0], places[text][last, 1]
            assert start <= answer["answer_start"] and answer["text"] in text[start:end]
            whole.append(text[start:end] == answer["text"])
    assert np.mean(whole) > 0.99
