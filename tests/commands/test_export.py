"""bert-jax export: a whole directory or none, a card whose numbers and code are right, one line for bad input."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest
from kits.runs import TRAIN, make_run, save
from kits.small import SMALL, overrides, write_corpus
from safetensors.numpy import load_file

from bert_jax import config as configs
from bert_jax.cli import main
from bert_jax.commands import export as exporting
from bert_jax.tokenizers import tokenizer, wordpiece
from bert_jax.tokenizers.special import SPECIAL

FILES = {"README.md", "config.json", "model.safetensors", "tokenizer.json"}
FILES |= {"tokenizer_config.json", "training.json"}


def export(directory, *options) -> int:
    places = ["--workdir", str(directory / "run"), "--output", str(directory / "out")]
    return main(["export", *places, *map(str, options)])


def card(directory) -> str:
    return (directory / "out/README.md").read_text()


def test_results_and_files(tmp_path, capsys):
    _, vocabulary, _, _ = make_run(tmp_path / "run")
    assert export(tmp_path, "--json", "-") == 0
    values = json.loads(capsys.readouterr().out)
    found = {path.name: path.stat().st_size for path in (tmp_path / "out").iterdir()}
    assert set(found) == set(values["files"]) == FILES | {"vocab.txt"}
    assert values["bytes"] == sum(found.values()) and values["step"] == 7 and values["seconds"] > 0
    tensors = load_file(tmp_path / "out/model.safetensors")
    assert values["parameters"] == sum(array.size for array in tensors.values())
    assert len(tensors["bert.embeddings.word_embeddings.weight"]) == vocabulary.size
    assert {path.name for path in tmp_path.iterdir()} == {"run", "out"}


def test_the_newest_checkpoint_is_exported_bit_for_bit(tmp_path):
    *_, params = make_run(tmp_path / "run", kind="byte_bpe")
    params["encoder"]["pooler"]["bias"] = newest = np.arange(32, dtype=np.float32) / 3
    save(tmp_path / "run", 9, params)
    assert export(tmp_path) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == FILES
    tensors = load_file(tmp_path / "out/model.safetensors")
    assert np.array_equal(tensors["bert.pooler.dense.bias"], newest)
    expected = np.asarray(params["encoder"]["blocks_1"]["feed_forward"]["up"]["kernel"]).T
    assert np.array_equal(tensors["bert.encoder.layer.1.intermediate.dense.weight"], expected)


def test_heads_that_nobody_trained(tmp_path):
    imported = {"fresh": ["mlm", "pair"], "imported": {"source": "theirs", "format": "google"}}
    *_, params = make_run(tmp_path / "run", step=0, **imported)
    assert export(tmp_path) == 0
    values = json.loads((tmp_path / "out/config.json").read_text())
    assert values["architectures"] == ["BertModel"]
    assert "feature-extraction" in card(tmp_path) and "AutoModel" in card(tmp_path)
    assert "weights of `theirs`" in card(tmp_path)
    (tmp_path / "out").rename(tmp_path / "before")
    save(tmp_path / "run", 1, params)  # one step trains them all
    assert export(tmp_path) == 0
    values = json.loads((tmp_path / "out/config.json").read_text())
    assert values["architectures"] == ["BertForPreTraining"]


def front_matter(text: str) -> dict:
    import yaml

    return yaml.safe_load(text.split("---\n")[1])


@pytest.mark.slow
def test_the_card_says_what_the_run_knows(tmp_path):
    write_corpus(tmp_path / "corpus.txt", documents=60)
    places = {"corpus.source": tmp_path / "corpus.txt", "store": tmp_path / "store"}
    few = {"phases.main.steps": 4, "log.every": 2, "checkpoint.every": 4, "evaluate.every": 0}
    keys = [f"--config.{key}" for key in overrides(SMALL | places | few)]
    assert main(["pretrain", "--config", "demo", *keys, "--workdir", str(tmp_path / "run")]) == 0
    data = "--data-license", "cc-by-sa-4.0"
    assert (
        export(tmp_path, "--name", "mine", "--license", "apache-2.0", "--language", "no", *data)
        == 0
    )
    text, summary = card(tmp_path), json.loads((tmp_path / "run/summary.json").read_text())
    lines = map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines())
    real = sum(2 * 16 * 32 * line["fill"] for line in lines if line["split"] == "train")
    report = json.loads((tmp_path / "store/report.json").read_text())
    expected = {"license": "apache-2.0", "language": "no", "library_name": "transformers"}
    found = front_matter(text)
    assert found | expected | {"pipeline_tag": "fill-mask"} == found
    for part in (
        "# mine\n",
        f"{summary['parameters']:,} parameters",
        f"tokens seen: {4 * 16 * 32:,}, {real:,.0f} without padding",
        f"train: {report['train']['documents']:,} documents",
        f"{report['duplicates']} duplicates",
        f"| mlm_loss_masked | {summary['heldout']['mlm_loss_masked']:.4f} |",
        f"| unigram_entropy | {summary['unigram_entropy']:.4f} |",
        "seed 12345",
        "model.width = 32 (usually 768)",
        "--config training.json",
        "hf upload USER/mine out .",
        "of the weights: apache-2.0",
        "trained on: cc-by-sa-4.0",
    ):
        assert part in text, part
    training = configs.load(str(tmp_path / "out/training.json"))
    before = configs.load(str(tmp_path / "run/config.json"))
    assert set(configs.differences(before, training)) == {
        "corpus.source",
        "store",
        "compilation_cache",
    }
    assert str(tmp_path / "store") not in (tmp_path / "out/training.json").read_text()


def test_the_card_of_a_run_that_skipped_steps(tmp_path):
    """Lines of metrics without numbers count as no text of no step."""
    make_run(tmp_path / "run", "phases.main.steps=7")
    told = [(3, None), (5, 0.25), (7, 0.75)]
    told = [TRAIN | {"step": step, "fill": fill} for step, fill in told]
    (tmp_path / "run/metrics.jsonl").write_text("\n".join(map(json.dumps, told)) + "\n")
    assert export(tmp_path) == 0
    assert "50% of them text" in card(tmp_path)


def test_the_card_of_a_run_that_lost_its_store(tmp_path):
    make_run(tmp_path / "run", f"store={tmp_path / 'gone'}")
    assert export(tmp_path) == 0
    text = card(tmp_path)
    assert front_matter(text)["license"] == "other" and "choose one" in text
    assert "name it before publishing" in text
    assert "not there any more" in text and "None were taken." in text and "2 x cpu" in text


def test_the_card_of_an_import(tmp_path):
    """Before its first step it claims no training; later it says what it started from, and how."""
    imported = {"imported": {"source": "theirs", "format": "huggingface"}}
    make_run(tmp_path / "run", step=0, **imported)
    assert export(tmp_path) == 0
    text = card(tmp_path)
    assert "weights of `theirs`, as they were imported: no step" in text
    assert "Pretrained" not in text and "held out" not in text and "sources" not in text
    shutil.rmtree(tmp_path / "out")
    save(tmp_path / "run", 8, make_run(tmp_path / "other")[-1])
    assert export(tmp_path) == 0
    text = card(tmp_path)
    assert "what `theirs` was trained on is not known here" in text
    assert "bert-jax import --source theirs --workdir runs/run" in text
    assert "not trained on since the import" in text


@pytest.mark.parametrize(
    "output, path", [("a b/out", "a b/out"), ("{}/a b/out", "out")], ids=["typed", "whole"]
)
def test_the_cards_path_is_the_one_that_was_typed(tmp_path, monkeypatch, output, path):
    make_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert main(["export", "--workdir", "run", "--output", output.format(tmp_path)]) == 0
    text = (tmp_path / "a b/out/README.md").read_text()
    assert f'model="{path}"' in text.replace("'", '"')
    assert f"hf upload USER/run {shlex.quote(path)} ." in text


@pytest.mark.full
@pytest.mark.parametrize("fresh", [[], ["mlm", "pair"]])
def test_the_cards_code_works_as_pasted(tmp_path, fresh):
    pytest.importorskip("torch")
    make_run(tmp_path / "run", step=0, kind="unigram", fresh=fresh)
    assert export(tmp_path) == 0
    (code,) = re.findall(r"```python\n(.*?)```", card(tmp_path), re.DOTALL)
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    assert len(lines) == (1 if fresh else 5), lines


@pytest.mark.parametrize(
    "options, words",
    [
        (["--workdir", "nowhere", "--output", "out"], "nowhere: not a run"),
        (["--workdir", "empty", "--output", "out"], "no checkpoints yet"),
        (["--workdir", "run", "--output", "full"], "--output full: there already"),
        (["--workdir", "run", "--output", "file"], "--output file: there already"),
        (["--workdir", "run", "--output", "file/out"], "cannot be made"),
        (["--workdir", "run", "--output", "out", "--license", "a b"], "--license a b"),
        (["--workdir", "run", "--output", "out", "--name", "a/b"], "--name a/b"),
        (
            ["--workdir", "run", "--output", "out", "--format", "google", "--name", "b"],
            "--name b: a TensorFlow checkpoint has no model card",
        ),
        (["--workdir", "run", "--output", "out", "--config.seed=1"], "takes no config"),
    ],
)
def test_bad_input(tmp_path, monkeypatch, capsys, options, words):
    make_run(tmp_path / "run")
    os.makedirs(tmp_path / "empty/checkpoints")
    for name in ("config.json", "run.json"):
        (tmp_path / "empty" / name).write_bytes((tmp_path / "run" / name).read_bytes())
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("")
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert main(["export", *options]) == 2
    error = capsys.readouterr().err.strip()
    assert words in error and "\n" not in error
    assert sorted(tmp_path.iterdir()) == before and os.listdir("full") == ["file"]


def test_what_fails_leaves_nothing(tmp_path, monkeypatch, capsys):
    *_, params = make_run(tmp_path / "run")
    params["mlm"]["norm"]["scale"] = np.full(32, np.nan, np.float32)
    save(tmp_path / "run", 8, params)
    assert export(tmp_path) == 2
    assert "cls.predictions.transform.LayerNorm.weight" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_other_models_have_no_name_elsewhere(tmp_path, monkeypatch):
    config, *_ = make_run(tmp_path / "run")
    run = type("Run", (), {"config": config})
    config.objective.name = "electra"
    with pytest.raises(exporting.BadInput, match="objective.name=electra: only mlm"):
        exporting.check_run(run, tmp_path)


PEAK = """
from bert_jax.cli import main

assert main(["export", "--workdir", "run", "--output", "out", "--json", "out.json"]) == 0
# Not getrusage: it remembers how large the process was that started this one.
(peak,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(peak)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_bert_base_takes_ten_seconds_and_less_than_twice_its_weights(tmp_path):
    pieces = [*SPECIAL.values(), *(f"piece{number}" for number in range(30522 - 5))]
    words = tokenizer.Tokenizer(wordpiece.WordPiece(pieces, True))
    base = {"width": 768, "layers": 12, "heads": 12, "positions": 512}
    make_run(tmp_path / "run", *(f"model.{key}={base[key]}" for key in base), words=words)
    process = subprocess.run(
        [sys.executable, "-c", PEAK], cwd=tmp_path, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    values = json.loads((tmp_path / "out.json").read_text())
    assert values["parameters"] == 110_106_428 and values["seconds"] < 10
    kilobytes = int(process.stdout.splitlines()[-1])
    assert kilobytes * 1024 < 2 * 4 * values["parameters"]


def test_no_path_of_this_machine_is_published(tmp_path):
    corpus, words = tmp_path / "private" / "text.txt", tmp_path / "private" / "vocab.txt"
    overrides = f"corpus.source={corpus}", f"tokenizer.path={words}", f"store={tmp_path / 'store'}"
    make_run(tmp_path / "run", *overrides)
    exporting.export(tmp_path / "run", tmp_path / "out")
    for path in (tmp_path / "out").iterdir():
        assert str(tmp_path).encode() not in path.read_bytes(), path
    assert "`text.txt`" in (tmp_path / "out" / "README.md").read_text()
