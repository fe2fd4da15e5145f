"""Two systems from outside of the package (tests/external): a causal decoder that generates, and an encoder-decoder
that learns from pairs of texts. No file of the package knows them. And some models of the package."""

import json
import os
import signal
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kits import corpora, faulty_program, processes, runs, small
from kits.malformed_inputs import refused
from kits.objectives import assert_halves_add_up
from kits.packed import one_pair_per_row
from kits.paths import ROOT
from kits.runs import assert_same_bits, assert_same_run, lines, load, params, pretraining
from kits.slices import needs_libtpu
from kits.small import SMALL

from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.commands import inspect_batch
from bert_jax.convert import open_model
from bert_jax.layers import decoding
from bert_jax.models import base as models
from bert_jax.runs import workdir as workdirs
from bert_jax.tasks.feed import open_feed
from bert_jax.train import pretrain

LETTERS = "abcdefgh"
GENERAL = {key: value for key, value in SMALL.items() if not key.startswith("model.")}
del GENERAL["phases.main.max_predictions"]
BERT = {"model.layers": 1, "model.width": 64, "model.heads": 4, "model.max_length": 80}
BERT |= {"model.dropout": 0.0, "model.attention_dropout": 0.0}
REVERSAL = {
    "task.name": "external.reversal",
    "task.epochs": 0,
    "phases.main.length": 24,
    "phases.main.batch": 64,
    "optimizer.learning_rate": 3e-3,
    "tokenizer.size": 40,
}
TRANSLATOR = {"model.name": "external.translator", "model.decoder_layers": 1}
TRANSLATOR |= BERT | REVERSAL | {"objective.name": "translation"}
# The Transformer of the package, on the same pairs.
TRANSFORMER = {
    "seed": 1,
    "model.name": "transformer",
    "model.layers": 1,
    "model.decoder_layers": 1,
    "model.width": 32,
    "model.heads": 4,
    "model.feed_forward": 64,
    "objective.name": "translation",
}
TRANSFORMER |= REVERSAL | {"task.name": "translation", "task.max_pieces": 20}
ALBERT = {"model.width": 32, "model.heads": 4, "model.max_length": 32}
ALBERT |= dict(key.split("=") for key in small.ALBERT)
ALBERT |= {"task.pair_task": "sop", "task.masking": "ngram", "phases.main.max_predictions": 5}
ELECTRA = {"model.width": 32, "model.heads": 4, "model.max_length": 32, "model.layers": 1}
ELECTRA |= dict(key.split("=") for key in small.ELECTRA)
ELECTRA |= {"objective.generator": 2, "phases.main.max_predictions": 5}
PAIRS = "translator", "transformer"  # of texts
SYSTEMS = "decoder", "albert", "electra", "roberta", *PAIRS
FULL = {name: pytest.param(name, marks=pytest.mark.full) for name in SYSTEMS}
DECODER = {
    "model.name": "external.decoder",
    "objective.name": "external.generation",
    "task.name": "token_blocks",
}

ROBERTA = {
    "model.name": "roberta",
    "model.layers": 1,
    "model.width": 32,
    "model.heads": 4,
    "task.name": "full_sentences",
    "tokenizer.kind": "byte_bpe",
    "tokenizer.size": 300,
}

# {system: places of a step, of all sequences}
TOKENS = dict.fromkeys(("decoder", "albert", "electra", "roberta"), 16 * 32)
TOKENS |= {"translator": 2 * 64 * 24, "transformer": 2 * 64 * 24}


def write_pairs(directory) -> None:
    """Writes strings of letters with blanks between them, and the same in the opposite order, as parallel files."""
    draw = np.random.default_rng(0)
    texts = set()
    while len(texts) < 3100:
        texts.add(" ".join(draw.choice([*LETTERS], draw.integers(3, 9))))
    texts = sorted(texts)
    draw.shuffle(texts)
    for name, part in (("train", texts[:3000]), ("dev", texts[3000:])):
        (directory / f"{name}.source").write_text("\n".join(part))
        (directory / f"{name}.target").write_text("\n".join(text[::-1] for text in part))


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """{name: (settings, workdir)} of an undisturbed run of each system, of 20 steps on eight devices."""
    directory = tmp_path_factory.mktemp("systems")
    write_pairs(directory)
    corpora.write(directory / "corpus.txt", corpora.make_text(150))
    data = {"corpus.source": directory / "corpus.txt", "store": directory / "blocks"}
    pairs = {"task.data": directory, "task.train": "train", "task.dev": "dev"}
    pairs["store"] = directory / "pairs"
    worlds = {"decoder": GENERAL | DECODER | data, "translator": GENERAL | TRANSLATOR | pairs}
    worlds["albert"] = GENERAL | ALBERT | data | {"store": directory / "sentences"}
    worlds["electra"] = GENERAL | ELECTRA | data | {"store": directory / "segments"}
    pairs = pairs | {"store": directory / "packed_pairs"}
    worlds["transformer"] = GENERAL | TRANSFORMER | pairs
    worlds["roberta"] = GENERAL | ROBERTA | data | {"store": directory / "full_sentences"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT / "tests"), prepend=os.pathsep)  # of new processes
        for name, settings in worlds.items():
            assert pretrain(load(settings), directory / name) == 0
        yield {name: (settings, directory / name) for name, settings in worlds.items()}


@pytest.mark.slow
def test_strings_are_reversed_exactly(worlds, tmp_path):
    """Held-out ones, decoded greedily; rows that are trained on have two pairs, and held-out ones have one."""
    settings, _ = worlds["translator"]
    keys = {"phases.main.steps": 300, "schedule.warmup": 50, "evaluate.every": 300}
    keys |= {"log.every": 100, "checkpoint.every": 300, "evaluate.rows": 100}
    assert pretrain(load(settings, **keys), tmp_path / "run") == 0
    assert lines(tmp_path / "run")[-1]["exact"] == 1.0


@pytest.mark.parametrize("system", PAIRS)
def test_both_sequences_are_counted_and_shown(worlds, system):
    settings, workdir = worlds[system]
    batches = [inspect_batch.inspect(load(settings), step, 2) for step in range(5)]
    shares = [batch["real_token_share"] for batch in batches]
    assert lines(workdir)[0]["real_token_share"] == pytest.approx(np.mean(shares), rel=1e-6)
    texts = dict(row.split(": ") for row in batches[0]["rows"])
    assert len(texts) >= 2 * 2 * 2  # rows, pairs, sequences
    for name in [name for name in texts if not name.endswith("target")]:
        pieces = [piece for piece in texts[name].split() if piece not in ("[CLS]", "[SEP]")]
        assert texts[f"{name} target"].split() == ["[CLS]", *reversed(pieces), "[SEP]"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_halves_of_a_batch_add_up(worlds, system):
    """With dropout and rows of several sequences."""
    run = open_model.open_model(worlds[system][1])
    (phase,) = configs.phases(run.config)
    batch = next(open_feed(run.config).train(phase, 0, 1))
    assert_halves_add_up(run.objective, run.params, batch)


def test_a_prompt_is_continued_by_the_cache_as_without_it(worlds):
    """Prompts of different lengths in one batch, compared with the whole text computed anew for each token."""
    _, workdir = worlds["decoder"]
    run = open_model.open_model(workdir)
    draw = np.random.default_rng(0)
    lengths = np.array([1, 4, 9])
    tokens = draw.integers(5, run.vocabulary.size, (3, 32)).astype(np.int32)
    positions = np.broadcast_to(np.arange(32, dtype=np.int32), (3, 32))

    def make_batch(lengths):
        ids = (np.arange(32) < lengths[:, None]).astype(np.int32)
        batch = {"tokens": tokens.copy(), "sequence_ids": ids, "positions": positions}
        return batch | {"rows": np.arange(3)}

    continued = jax.jit(run.objective.outputs)(run.params, make_batch(lengths))["continuation"]
    network = models.make(run.config, run.vocabulary.size)

    @jax.jit
    def predict(params, batch):
        states = network.apply({"params": params["network"]}, batch)
        logits = network.apply({"params": params["network"]}, states, method="vocabulary_logits")
        return logits.argmax(axis=-1)

    for number in range(continued.shape[1]):
        best = predict(run.params, make_batch(lengths + number))
        for row in range(3):
            place = lengths[row] + number
            tokens[row, place] = best[row, place - 1]
            ended = run.vocabulary.sep in continued[row, :number]
            assert continued[row, number] == (0 if ended else tokens[row, place])


def test_beams_take_their_caches_with_them(worlds, monkeypatch):
    """The score of each hypothesis is that of its tokens, computed at once and without a cache, which grows twice."""
    monkeypatch.setattr(decoding, "ROOM", 2)
    _, workdir = worlds["decoder"]
    run = open_model.open_model(workdir)
    draw = np.random.default_rng(1)
    rows, length, beams = 3, 8, 4
    tokens = draw.integers(5, run.vocabulary.size, (rows, 32)).astype(np.int32)
    prompts = np.array([2, 5, 9])
    longest = max(prompts)  # of its cache, no more than the tokens to come has room
    is_prompt = np.arange(longest) < prompts[:, None]
    batch = {"tokens": tokens[:, :longest], "sequence_ids": is_prompt.astype(np.int32)}
    variables = {"params": jax.device_put(run.params)}
    call = partial(run.objective.module.apply, variables)

    @jax.jit
    def search(batch):
        first = jnp.take_along_axis(batch["tokens"], prompts[:, None] - 1, axis=1)[:, 0]
        step = partial(call, method="step")
        stop = decoding.Stop(-1, length)  # no token ends a row
        cache = call(batch, decoding.rooms(length)[0] * beams, method="start")
        return decoding.beam(step, cache, first, stop, decoding.Search(beams))

    found = jax.tree.map(np.asarray, search(batch))
    texts = np.repeat(tokens, beams, axis=0)
    for number, text in enumerate(texts):
        start = prompts[number // beams]
        text[start : start + length] = found.tokens[number // beams, number % beams]
    positions = np.broadcast_to(np.arange(32, dtype=np.int32), texts.shape)
    ids = np.ones_like(texts)
    whole = {"tokens": texts, "sequence_ids": ids, "positions": positions}
    logits = jax.jit(call)(whole)["lm_logits"]
    log_probs = np.asarray(jax.nn.log_softmax(logits))
    for number, text in enumerate(texts):
        row, beam = divmod(number, beams)
        places = prompts[row] + np.arange(length)
        total = log_probs[number, places - 1, text[places]].sum()
        assert found.scores[row, beam] == pytest.approx(total, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "system",
    ["decoder", *(FULL[system] for system in SYSTEMS[1:-1]), "transformer"],
)
@pytest.mark.parametrize(
    "devices, changes",
    [
        pytest.param(1, {}, marks=pytest.mark.full),
        (8, {"mesh.fsdp": 2, "mesh.tensor": 2, "train.micro_batches": 4}),
    ],
)
def test_the_division_of_a_batch_does_not_matter(
    worlds, tmp_path, monkeypatch, system, devices, changes
):
    settings, undisturbed = worlds[system]
    runs.use_devices(monkeypatch, devices)
    assert pretrain(load(settings, **changes), tmp_path / "run") == 0
    last = lines(undisturbed)[-1]["split"]
    for split in ("train", last):
        assert_same_run(tmp_path / "run", undisturbed, split)


@pytest.mark.slow
@pytest.mark.parametrize("system", [*(FULL[system] for system in SYSTEMS[:-1]), "transformer"])
def test_killed_and_resumed_it_has_the_same_bits(worlds, tmp_path, system):
    settings, undisturbed = worlds[system]
    fault = {faulty_program.FAULT: "0:step:15:kill"}
    (ended,) = processes.run(pretraining(settings, tmp_path / "run"), tmp_path, 1, 8, **fault)
    assert ended.code == -signal.SIGKILL, ended
    assert pretrain(load(settings), tmp_path / "run") == 0
    assert_same_bits(params(tmp_path / "run"), params(undisturbed))
    assert [line["step"] for line in lines(tmp_path / "run") if line["split"] == "train"] == [
        5,
        10,
        15,
        20,
    ]


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_its_step_is_timed(worlds, capsys, system):
    path = worlds[system][1] / "config.json"
    assert main(["benchmark", "--config", str(path), "--steps", "1", "--json", "-"]) == 0
    timed = json.loads(capsys.readouterr().out)["phases"]["main"]
    tokens = timed["tokens_per_second"] * timed["step_seconds"]
    assert tokens == pytest.approx(TOKENS[system])
    assert workdirs.read_info(path.parent)["phases"]["main"]["tokens_per_step"] == TOKENS[system]


@pytest.mark.slow
def test_commands_read_the_transformer(worlds, tmp_path, capsys):
    """Vectors are those of its encoder, of sources as it was trained on: without a begin token."""
    settings, workdir = worlds["transformer"]
    texts = ["a b c d", "h g", "e"]
    (tmp_path / "lines.txt").write_text("\n".join(texts))

    def run(*command):
        capsys.readouterr()
        assert main([*map(str, command), "--json", "-"]) == 0
        return json.loads(capsys.readouterr().out)

    output = tmp_path / "vectors.npy"
    files = "--input", tmp_path / "lines.txt", "--output", output
    assert run("features", "--model", workdir, *files, "--layers", ":")["shape"] == [10, 2 * 32]
    model = open_model.open_model(workdir)
    ids = [[*ids, model.vocabulary.sep] for ids in model.tokenizer.encode(texts)]
    network = models.make(model.config, model.vocabulary.size)
    expected = []
    for row in ids:
        batch = {
            "tokens": [row],
            "positions": [[*range(len(row))]],
            "sequence_ids": [[1] * len(row)],
        }
        batch = {name: np.array(array, np.int32) for name, array in batch.items()}
        params = {"params": jax.device_put(model.params["network"])}
        states = network.apply(params, batch, method="states")
        expected.append(np.concatenate(states, axis=-1)[0])
    np.testing.assert_allclose(np.load(output), np.concatenate(expected), atol=1e-5)
    assert run("status", "--workdir", workdir)["state"] == "done"


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize(
    "system",
    ["decoder", *(FULL[system] for system in SYSTEMS[1:-1]), "transformer"],
)
def test_its_step_is_planned(worlds, capsys, system):
    path = str(worlds[system][1] / "config.json")
    assert main(["plan", "--config", path, "--topology", "v5e:2x2", "--json", "-"]) == 0
    planned = json.loads(capsys.readouterr().out)["phases"]["main"]
    assert planned["fits"] and planned["flops_per_step"] > 0
    places = planned["tokens_per_second"] * planned["seconds_per_step"]
    assert places == pytest.approx(planned["real_token_share"] * TOKENS[system])


def test_packed_rows_of_the_decoder_are_those_of_each_text_alone(worlds):
    _, workdir = worlds["decoder"]
    run = open_model.open_model(workdir)
    network = models.make(run.config, run.vocabulary.size)
    draw = np.random.default_rng(0)
    texts = [draw.integers(5, run.vocabulary.size, size) for size in (7, 12)]

    def compute(parts):
        batch = {
            "tokens": np.concatenate(parts)[None],
            "positions": np.concatenate([np.arange(len(part)) for part in parts])[None],
            "sequence_ids": np.repeat([1, 2][: len(parts)], [*map(len, parts)])[None],
        }
        batch = {name: array.astype(np.int32) for name, array in batch.items()}
        return jax.jit(network.apply)({"params": run.params["network"]}, batch)[0]

    alone = np.concatenate([compute([text]) for text in texts])
    np.testing.assert_allclose(compute(texts), alone, atol=1e-5)


@pytest.mark.slow
def test_the_decoder_is_trained_on_packed_rows(worlds, tmp_path):
    """On eight devices. Several documents of a row have the loss of each in a row of its own."""
    settings, _ = worlds["decoder"]
    keys = {"task.name": "packed_documents", "phases.main.max_predictions": 5}
    keys |= {"task.mask_share": 0, "task.random_share": 0}
    keys |= {"model.max_length": 96, "phases.main.length": 96}
    assert pretrain(load(settings, **keys), tmp_path / "run") == 0
    first, *_, last = [line for line in lines(tmp_path / "run") if line["split"] == "train"]
    assert last["lm_loss"] < first["lm_loss"] - 0.1
    run = open_model.open_model(tmp_path / "run")
    (phase,) = configs.phases(run.config)
    packed = next(open_feed(run.config).train(phase, 0, 1))
    alone = one_pair_per_row(packed)
    assert len(alone["rows"]) > 1.5 * len(packed["rows"])

    @jax.jit
    def compute(params, batch):
        totals = run.objective.weights(batch)
        return run.objective.loss(params, batch, totals, jnp.uint32(0), train=False)[0]

    together, apart = (float(compute(run.params, batch)) for batch in (packed, alone))
    assert together == pytest.approx(apart, rel=1e-6)


@pytest.mark.full
def test_init_from_takes_what_fits_by_name(worlds, tmp_path, capsys):
    """The encoder of a BERT for that of the translator, and a causal body for a classifier; but no causal body for a
    translator."""
    translation, _ = worlds["translator"]
    generation, body = worlds["decoder"]
    words = {"tokenizer.path": generation["store"] / "tokenizer/vocab.txt"}
    short = {"phases.main.steps": 5, "evaluate.every": 5, "checkpoint.every": 5}
    masks = GENERAL | BERT | short | words | {"corpus.source": generation["corpus.source"]}
    masks |= {"phases.main.max_predictions": 5, "store": tmp_path / "masks"}
    assert pretrain(load(masks), tmp_path / "bert") == 0
    translation = translation | short | words | {"store": tmp_path / "pairs"}

    def start(settings, source, name):
        assert pretrain(load(settings, init_from=source), tmp_path / name) == 0
        return capsys.readouterr().out

    assert main(["prepare", *pretraining(translation, tmp_path / "none")[1:-2]]) == 0
    assert "(network/encoder); fresh:" in start(translation, tmp_path / "bert", "translator")
    table = "text\tlabel\n" + "".join(f"dog {n}\t{n % 2}\n" for n in range(100))
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text(table)
    labels = generation | short | {"task.name": "classification", "objective.name": "classifier"}
    labels |= {"task.data": tmp_path, "task.epochs": 0}
    labels |= {"store": tmp_path / "labels", "task.text": "text", "task.label": "label"}
    command = pretraining(labels | {"init_from": body}, tmp_path / "classifier")
    assert main(["finetune", *command[1:]]) == 0
    assert "(network); fresh: label" in capsys.readouterr().out
    words = pretraining(translation | {"init_from": body}, tmp_path / "wrong")
    message = refused(*words)
    assert message.startswith("config.model.name='external.translator'")
    assert "external.decoder" in message and not (tmp_path / "wrong").exists()
