"""Greedy continuations and beams of a random GPT-2, compared with those that transformers generates from its export."""

import numpy as np
import pytest
from kits import vocabularies
from kits.runs import make_run
from kits.texts import PROSE

from bert_jax.cli import main
from bert_jax.inference import predict
from bert_jax.tokenizers import huggingface

pytestmark = pytest.mark.full

PROMPTS = 200
TOKENS = 20
KEYS = ["model.name=gpt", "objective.name=causal_lm", "task.name=token_blocks"]
KEYS += ["model.max_length=64", "phases.main.length=64", "model.initializer=0.2"]


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """Returns (run, prompts, a function (options) -> texts that transformers generates)."""
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    directory = tmp_path_factory.mktemp("generation")
    words = huggingface.from_library(vocabularies.gpt2_like(), "tokenizer.json", {})
    make_run(directory / "run", *KEYS, words=words)
    arguments = ["--model", str(directory / "run"), "--output", str(directory / "out")]
    assert main(["export", *arguments]) == 0
    tokenizer = AutoTokenizer.from_pretrained(directory / "out")
    model = AutoModelForCausalLM.from_pretrained(directory / "out").eval()
    draw = np.random.default_rng(0)
    prompts = [""]
    while len(prompts) < PROMPTS:
        text = str(draw.choice(PROSE))
        start, size = draw.integers(0, len(text)), draw.integers(1, 40)
        prompts.append(text[start : start + size])

    def generate(**options):
        texts = []
        for prompt in prompts:
            ids = tokenizer(prompt)["input_ids"] or [tokenizer.eos_token_id]
            inputs = torch.tensor([ids], dtype=torch.long)
            (output,) = model.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                max_length=None,
                max_new_tokens=TOKENS,
                pad_token_id=tokenizer.eos_token_id,
                **options,
            )
            texts.append(tokenizer.decode(output[len(ids) :], skip_special_tokens=True))
        return texts

    return directory / "run", prompts, generate


@pytest.mark.parametrize(
    "ours, theirs",
    [
        ({}, {"do_sample": False}),
        (
            {"beams": 4, "length_penalty": 0.7},
            {"num_beams": 4, "length_penalty": 0.7, "early_stopping": "never"},
        ),
    ],
    ids=["greedy", "beam"],
)
def test_texts_are_those_of_transformers(generated, ours, theirs):
    run, prompts, generate = generated
    results, _ = predict.predict(run, prompts, search={"tokens": TOKENS, **ours})
    expected = generate(**theirs)
    pairs = [*zip([result["continuations"] for result in results], expected, strict=True)]
    different = [pair for pair in pairs if pair[0] != [pair[1]]]
    print(f"{len(different)} of {len(pairs)} differ; {different[:3]}; {len(set(expected))} texts")
    assert len(set(expected)) > PROMPTS / 2
    assert not different
