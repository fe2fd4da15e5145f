"""Translations by a run: in evaluations while it trains, by `predict`, and by `evaluate` with a reference."""

import json

import numpy as np
import pytest
import sacrebleu
from kits import runs
from kits.malformed_inputs import refused
from kits.runs import lines
from kits.small import overrides

from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.inference import predict
from bert_jax.runs import workdir as workdirs
from bert_jax.tasks.supervised import epochs
from bert_jax.tokenizers import tokenizer as tokenizers
from bert_jax.train import pretrain

LETTERS = [*"abcdefgh"]
KEYS = {
    "dtype": "float32",
    "compilation_cache": "",
    "tokenizer.kind": "bpe",
    "tokenizer.size": 22,
    "model.layers": 1,
    "model.decoder_layers": 1,
    "model.width": 32,
    "model.heads": 4,
    "model.feed_forward": 64,
    "model.max_length": 64,
    "model.dropout": 0.0,
    "task.text": "en,de",
    "task.train": "train",
    "task.dev": "dev",
    "task.max_pieces": 20,
    "task.metrics": "bleu,chrf",
    "schedule.warmup": 30,
    "phases.main.length": 32,
    "phases.main.batch": 16,
    "phases.main.steps": 60,
    "log.every": 10,
    "evaluate.every": 30,
    "evaluate.batch": 16,
    "checkpoint.every": 30,
    "checkpoint.average": 1,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(directory of the files, settings, workdir) of a run of a few steps; its translations are wrong."""
    directory = tmp_path_factory.mktemp("translate")
    draw = np.random.default_rng(0)
    for name, number in (("train", 400), ("dev", 30)):
        texts = [" ".join(draw.choice(LETTERS, draw.integers(1, 9))) for _ in range(number)]
        (directory / f"{name}.en").write_text("\n".join(texts) + "\n")
        (directory / f"{name}.de").write_text("\n".join(text[::-1] for text in texts) + "\n")
    settings = KEYS | {"task.data": directory, "store": directory / "store"}
    config = configs.load("translate", overrides(settings))
    assert pretrain(config, directory / "run") == 0
    return directory, settings, directory / "run"


def arguments(settings: dict) -> list[str]:
    return [f"--config.{override}" for override in overrides(settings)]


def read(path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


@pytest.mark.slow
def test_evaluations_have_scores_of_all_pairs(trained):
    """Greedy ones, which `predict` with one beam repeats; sacrebleu computes the same from its texts."""
    directory, _, run = trained
    evaluated = [line for line in lines(run) if line["split"] == "dev"]
    assert evaluated[0]["target_perplexity"] == pytest.approx(np.exp(evaluated[0]["target_nll"]))
    assert [line["step"] for line in evaluated] == [30, 60]
    output = directory / "greedy.de"
    source = ["--input", str(directory / "dev.en"), "--beam", "1"]
    assert main(["predict", "--model", str(run), *source, "--output", str(output)]) == 0
    references = [read(directory / "dev.de")]
    expected = sacrebleu.corpus_bleu(read(output), references, force=True).score
    assert evaluated[-1]["bleu"] == pytest.approx(expected, rel=1e-6)
    assert evaluated[-1]["chrf"] == pytest.approx(
        sacrebleu.corpus_chrf(read(output), references).score
    )
    assert main(["export", "--model", str(run), "--output", str(directory / "exported")]) == 0
    card = (directory / "exported" / "README.md").read_text()
    assert f"bleu: sacrebleu, `{evaluated[-1]['bleu_signature']}`" in card
    summary = workdirs.read_summary(run)
    assert summary["dev"]["bleu_signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a|")


@pytest.mark.slow
def test_the_best_run_is_that_of_the_first_score(trained, tmp_path):
    _, settings, _ = trained
    keys = settings | {"evaluate.patience": 5, "checkpoint.average": 1}
    assert pretrain(configs.load("translate", overrides(keys)), tmp_path / "run") == 0
    best = workdirs.read_summary(tmp_path / "run")["best"]
    scores = [line["bleu"] for line in lines(tmp_path / "run") if line["split"] == "dev"]
    assert (best["metric"], best["value"]) == ("bleu", max(scores))


@pytest.mark.slow
def test_a_run_needs_only_saved_batches(trained, tmp_path):
    """Those of the loss: it has no scores, and the files may be missing."""
    directory, settings, run = trained
    keys = settings | {"phases.main.steps": 30}
    command = ["inspect", "--config", "translate", "--steps", "0:30"]
    message = refused(*command, *arguments(keys), "--save", tmp_path / "saved")
    assert "task.metrics=()" in message
    keys |= {"task.metrics": "()"}
    assert main([*command, *arguments(keys), "--save", str(tmp_path / "saved")]) == 0
    keys |= {"task.data": tmp_path, "store": tmp_path / "none", "batches": tmp_path / "saved"}
    assert pretrain(configs.load("translate", overrides(keys)), tmp_path / "run") == 0
    ours, theirs = (
        [line["loss"] for line in lines(path) if line["step"] <= 30]
        for path in (tmp_path / "run", run)
    )
    assert ours == pytest.approx(theirs, rel=1e-5)
    changed = keys | {"task.max_ratio": 3.0}
    command = ["pretrain", "--config", "translate", *arguments(changed)]
    assert "task.max_ratio" in refused(*command, "--workdir", tmp_path / "other")


@pytest.mark.slow
def test_epochs_have_a_warm_up_and_checkpoints_that_suit_them(trained):
    """As steps do: a third of them, and those that are averaged of the last sixth."""
    follows = (
        "schedule.warmup checkpoint.every checkpoint.average log.every phases.main.steps".split()
    )
    keys = {key: value for key, value in trained[1].items() if key not in follows}
    settings = overrides(keys | {"task.epochs": 50})
    config = epochs.resolve(configs.load("translate", settings), settings)
    steps = config.phases.main.steps
    assert 90 < steps < 1000 and config.schedule.warmup == round(steps / 3)
    assert config.checkpoint.every == 50 * steps // 3000 and config.checkpoint.average == 10
    assert config.checkpoint.every % config.log.every == 0
    settings.append("schedule.warmup=7")
    assert epochs.resolve(configs.load("translate", settings), settings).schedule.warmup == 7


@pytest.mark.slow
def test_a_text_is_translated_as_it_is_alone(trained, capsys):
    """In the order of the input, of any lengths; an empty line stays empty, and other hypotheses are worse."""
    directory, _, run = trained
    sources = ["a b c", "h", "\u200b▁", *[" ".join(LETTERS * size) for size in (3, 5, 1)]]
    (directory / "test.en").write_text("\n".join(sources) + "\n")
    command = ["predict", "--model", str(run), "--json", "-", "--input", str(directory / "test.en")]
    assert main(command) == 0
    results = json.loads(capsys.readouterr().out)
    assert [result["text"] for result in results] == sources
    assert results[2]["prediction"] == ""
    for source, result in zip(sources, results, strict=True):
        if source == "\u200b▁":
            assert not result["at_limit"]
            continue
        (alone,), _ = predict.predict(run, [source])
        assert alone["prediction"] == result["prediction"]
        assert len(result["hypotheses"]) == 4
        scores = [hypothesis["score"] for hypothesis in result["hypotheses"]]
        assert scores == sorted(scores, reverse=True)
        assert result["hypotheses"][0]["text"] == result["prediction"]


@pytest.mark.slow
def test_translations_at_their_limit_are_counted(trained, tmp_path, capsys):
    """They go on with a later limit; those of one beam are a part of what follows then."""
    directory, _, run = trained
    source = ["--input", str(directory / "dev.en")]
    results = {}
    for extra in (1, 40):
        keys = f"--config.task.extra_pieces={extra}", "--json", str(tmp_path / "out.json")
        assert main(["predict", "--model", str(run), *source, "--beam", "1", *keys]) == 0
        results[extra] = json.loads((tmp_path / "out.json").read_text())
        number = sum(result["at_limit"] for result in results[extra])
        assert (f"{number} of 30 " in capsys.readouterr().err) == (number > 0)
    for short, long in zip(results[1], results[40], strict=True):
        assert long["prediction"].startswith(short["prediction"])
        if long["prediction"] != short["prediction"]:
            assert short["at_limit"]
    number = sum(result["at_limit"] for result in results[1])
    assert number > 0
    command = ["evaluate", "--model", str(run), "--config.task.extra_pieces=1", "--json", "-"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["at_limit"] == number
    reference = ["--reference", str(directory / "dev.de"), "--beam", "1"]
    assert main([*command, *source, *reference]) == 0
    assert json.loads(capsys.readouterr().out)["at_limit"] == number


@pytest.mark.slow
def test_tables_are_translated_by_their_columns(trained, tmp_path, capsys):
    """Sources and references; several references are those of sacrebleu. A table's results are a table."""
    directory, _, run = trained
    sources, targets = (read(directory / f"dev.{language}") for language in ("en", "de"))
    rows = [{"translation": {"en": a, "de": b}} for a, b in zip(sources, targets, strict=True)]
    (tmp_path / "dev.jsonl").write_text("\n".join(map(json.dumps, rows)))
    lines = [f"{a}\t{b}\n" for a, b in zip(sources, targets, strict=True)]
    (tmp_path / "dev.tsv").write_text("".join(["en\tde\n", *lines]))
    other = tmp_path / "other.de"
    other.write_text("\n".join(reversed(targets)) + "\n")
    output = tmp_path / "out.jsonl"
    values = []
    for name in (directory / "dev.en", tmp_path / "dev.jsonl", tmp_path / "dev.tsv"):
        command = ["predict", "--model", str(run), "--input", str(name), "--output", str(output)]
        assert main([*command, "--json", "-"]) == 0
        results = json.loads(capsys.readouterr().out)
        assert [json.loads(line) for line in read(output)] == results
        assert [result["text"] for result in results] == sources
        files = ["--input", str(name), "--reference", str(other)]
        second = directory / "dev.de" if name.suffix == ".en" else name
        command = ["evaluate", "--model", str(run), *files, "--reference", str(second)]
        assert main([*command, "--json", "-"]) == 0
        values.append(json.loads(capsys.readouterr().out))
    assert values[0] == values[1] == values[2]
    translated = [result["prediction"] for result in results]
    bleu = sacrebleu.BLEU(force=True)
    assert values[0]["bleu"] == bleu.corpus_score(translated, [read(other), targets]).score
    assert values[0]["bleu_signature"].startswith("nrefs:2|")
    (tmp_path / "dev.tsv").write_text("".join(lines))
    assert "'en'" in refused("predict", "--model", run, "--input", tmp_path / "dev.tsv")


@pytest.mark.slow
def test_the_length_penalty_prefers_longer_translations(trained):
    _, _, run = trained
    sizes = []
    for penalty in ("0", "3"):
        search = {"beams": "4", "length_penalty": penalty}
        results, _ = predict.predict(run, ["a b c d e", "b", "h g f"], search=search)
        sizes.append(sum(len(result["prediction"]) for result in results))
    assert sizes[0] < sizes[1]


@pytest.mark.slow
def test_translations_are_compared_with_a_reference(trained, capsys):
    directory, _, run = trained
    files = ["--input", str(directory / "dev.en"), "--reference", str(directory / "dev.de")]
    keys = ["--config.task.lowercase=True", "--config.task.tokenize=none"]
    assert main(["evaluate", "--model", str(run), *files, *keys, "--json", "-"]) == 0
    values = json.loads(capsys.readouterr().out)
    output = directory / "beam.de"
    command = ["predict", "--model", str(run), *files[:2], "--output", str(output)]
    assert main([*command, "--beam", "4", "--length-penalty", "0.6"]) == 0
    assert len(read(output)) == 30
    bleu = sacrebleu.BLEU(lowercase=True, tokenize="none")
    assert values["bleu"] == bleu.corpus_score(read(output), [read(directory / "dev.de")]).score
    assert values["bleu_signature"] == str(bleu.get_signature())
    assert values["chrf_signature"].startswith("nrefs:1|case:lc|")


@pytest.mark.slow
def test_bad_input_is_refused(trained, tmp_path):
    directory, _, run = trained
    short = tmp_path / "short.de"
    short.write_text("a\n")
    source = ("--input", directory / "dev.en")
    message = refused("evaluate", "--model", run, *source, "--reference", short)
    assert f"{directory}/dev.en: 30 " in message and f"{short}: 1 " in message
    assert "'translation'" in refused("evaluate", "--model", run, *source)
    long = tmp_path / "long.en"
    long.write_text("a b\n" + " ".join(LETTERS * 12) + "\n")
    message = refused("predict", "--model", run, "--input", long)
    assert f"{long}:2" in message and "model.max_length=64" in message
    empty = tmp_path / "empty"
    empty.write_text("")
    for files in (("--input", empty), ("--input", empty, "--reference", empty)):
        message = refused(["predict", "evaluate"][len(files) // 4], "--model", run, *files)
        assert f"{empty}: has no rows" in message
    both = (*source, "--reference", short, "--config", "translate")
    assert "--config" in refused("evaluate", "--model", run, *both)
    output = tmp_path / "none" / "out.de"
    assert str(output) in refused("predict", "--model", run, *source, "--output", output)
    assert "length_penalty" in refused("predict", "--model", run, "a", "--length-penalty", "-1")
    assert "--beam" in refused("predict", "--model", run, "a", "--beam", "0")


def test_one_model_is_compared_with_a_reference(tmp_path):
    names = ("--input", "a", "--reference", "b")
    assert "one --model" in refused("evaluate", "--model", "x", "--model", tmp_path, *names)


def test_models_that_generate_no_text_have_no_search(tmp_path):
    runs.make_run(tmp_path / "run")
    for option, value in (("--beam", 5), ("--length-penalty", 1)):
        message = refused("predict", "--model", tmp_path / "run", "a [MASK]", option, value)
        assert message.startswith(f"{option}: ") and "'mlm'" in message


def test_the_end_is_no_text_even_if_it_is_the_unknown_token():
    tokenizer = tokenizers.train("byte_bpe", ["the cat"], 300, True)
    tokenizer.special = tokenizer.special | {"unk": tokenizer.sep}
    assert tokenizer.decode([*tokenizer.encode(["the cat"])[0], tokenizer.sep]) == "the cat"


def test_a_rate_of_0_is_that_of_the_paper():
    """(width x warm-up)^-0.5 (arXiv:1706.03762, section 5.3); only inverse_sqrt has it."""
    config = configs.load("transformer_base")
    assert configs.peak_rate(config) == pytest.approx(512**-0.5 * 4000**-0.5)
    assert configs.peak_rate(configs.load("translate")) == 0.005
    assert configs.peak_rate(configs.load("demo", ["optimizer.learning_rate=0"])) == 0


@pytest.mark.parametrize(
    "kind, size", [("bpe", 50), ("unigram", 26), ("byte_bpe", 300), ("wordpiece", 90)]
)
def test_ids_become_the_text_again(kind, size):
    texts = ["the cat sat on the mat", "a mat, a cat: the hat.", "sat 7 hats at 10"]
    tokenizer = tokenizers.train(kind, texts, size, True)
    for text, ids in zip(texts, tokenizer.encode(texts), strict=True):
        expected = text
        if kind == "wordpiece":  # its pieces do not say where spaces are
            expected = tokenizer.tokenizer.decode(ids)
            assert expected.replace(" ", "") == text.replace(" ", "")
        assert tokenizer.decode([tokenizer.cls, *ids, tokenizer.sep, tokenizer.pad]) == expected
