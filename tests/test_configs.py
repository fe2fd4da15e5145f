"""Every file of configs/ is a valid config."""

import jax
import pytest
from kits.paths import ROOT

from bert_jax import config
from bert_jax.layers import counts
from bert_jax.models import base as models
from bert_jax.objectives import base
from bert_jax.tasks import base as dataset
from bert_jax.tasks.text import mlm_batch
from bert_jax.tokenizers.special_tokens import Vocabulary

FOLDER = ROOT / "configs"
NAMES = sorted(file.stem for file in FOLDER.glob("*.py") if file.stem not in ("__init__", "base"))

# Parameters of the published encoders: 30,522 pieces, with pooler, without heads (arXiv:1908.08962, arXiv:1810.04805).
PUBLISHED = {
    "tiny": 4_385_920,
    "mini": 11_170_560,
    "small": 28_763_648,
    "medium": 41_373_184,
    "base": 109_482_240,
    "large": 335_141_888,
}
# Of AlbertModel of transformers, 30,000 pieces, with pooler (arXiv:1909.11942, table 1, has them in millions).
ALBERT = {
    "base": 11_683_584,
    "large": 17_683_968,
    "xlarge": 58_724_864,
    "xxlarge": 222_595_584,
}

# Of ElectraModel of transformers, 30,522 pieces.
ELECTRA = {"small": 13_483_008, "base": 108_891_648, "large": 334_092_288}

# Of GPT-2, 50,257 pieces, and of GPT, 40,478, with all that they have.
GPT = {
    "gpt2_small": 124_439_808,
    "gpt2_medium": 354_823_168,
    "gpt2_large": 774_030_080,
    "gpt2_xl": 1_557_611_200,
    "gpt": 116_534_784,
}


@pytest.mark.parametrize("name", GPT)
def test_parameter_counts_of_gpt_equal_the_published_ones(name):
    resolved = config.load(name, ["dtype=float32"])
    size = resolved.tokenizer.size
    objective = base.make(resolved, Vocabulary(size, sep=size - 1))
    shapes = dataset.make(resolved).shapes(config.phases(resolved)[0], 1)
    params = jax.eval_shape(objective.init, jax.random.key(0), shapes)
    assert counts.count(params, size) == GPT[name]


# Of RobertaForMaskedLM of transformers, 50,265 pieces, without two rows of positions and a segment.
ROBERTA = {"roberta_base": 124_697_433 - 3 * 768, "roberta_large": 355_412_057 - 3 * 1024}


@pytest.mark.parametrize("name", ROBERTA)
def test_parameter_counts_of_roberta_equal_the_published_ones(name):
    resolved = config.load(name, ["dtype=float32"])
    size = resolved.tokenizer.size
    objective = base.make(resolved, Vocabulary(size, pad=1, unk=3, cls=0, sep=2, mask=size - 1))
    params = jax.eval_shape(objective.init, jax.random.key(0), mlm_batch.shapes(1, 8, 1))
    assert counts.count(params, size) == ROBERTA[name]


def body_parameters(name: str, pieces: int) -> int:
    resolved = config.load(name, ["dtype=float32"])
    objective = base.make(resolved, Vocabulary(pieces, pad=0, unk=100, cls=101, sep=102, mask=103))
    params = jax.eval_shape(objective.init, jax.random.key(0), mlm_batch.shapes(1, 8, 1))
    return models.parameters(resolved, params, pieces)["body_parameters"]


@pytest.mark.parametrize("size", PUBLISHED)
def test_parameter_counts_equal_the_published_ones(size):
    assert body_parameters(f"bert_{size}", 30_522) == PUBLISHED[size]


@pytest.mark.parametrize("size", ALBERT)
def test_parameter_counts_of_albert_equal_the_published_ones(size):
    assert body_parameters(f"albert_{size}", 30_000) == ALBERT[size]


@pytest.mark.parametrize("size", ELECTRA)
def test_parameter_counts_of_electra_equal_those_of_transformers(size):
    assert body_parameters(f"electra_{size}", 30_522) == ELECTRA[size]


@pytest.mark.parametrize(("version", "rate"), [("v1", 0.1), ("v2", 0.0)])
def test_versions_of_albert_differ_in_dropout(version, rate):
    model = config.load(f"albert_large:{version}").model
    assert model.layers == 24 and {model.dropout, model.attention_dropout} == {rate}


def keys(tree, prefix=""):
    """Yields the dotted names of all keys, with * for the names of phases."""
    for key, value in tree.items():
        if hasattr(value, "items"):
            yield from keys(value, f"{prefix}{'*' if prefix == 'phases.' else key}.")
        else:
            yield prefix + key


@pytest.mark.parametrize("name", NAMES)
def test_a_config_has_the_keys_of_base_and_its_command(name):
    source = FOLDER / f"{name}.py"
    by_name = config.load(name)
    by_path = config.load(str(source))
    assert by_name.to_json() == by_path.to_json()
    assert set(keys(by_name)) == set(keys(config.base(by_name)))
    text = source.read_text(encoding="utf-8")
    named = f"--config {name} " in text or f"--config {name}:" in text
    assert named, "the docstring should say how to run it"


@pytest.mark.parametrize("name, warmup", [("modern_base", 3), ("modern_large", 2)])
def test_modernbert_has_the_tokens_of_the_paper(name, warmup):
    settings = config.load(name)

    def billions(last: int, least: int = 0) -> float:
        parts = [(min(p.stop, last) - p.first, p) for p in config.phases(settings)]
        return sum(n * p.batch * p.length for n, p in parts if n > 0 and p.length > least) / 1e9

    total = config.total_steps(settings)
    found = billions(settings.schedule.warmup), billions(total), billions(total, least=1024)
    assert found == pytest.approx((warmup, 2019, 300), rel=1e-3)
