"""Compares decoding with transformers, in PyTorch: its beam search, and its cuts of the distribution."""

import jax.numpy as jnp
import numpy as np
import pytest
from kits import decoding as kit

from bert_jax.layers import decoding
from bert_jax.layers.decoding import Cut, Search, Stop

pytestmark = pytest.mark.full

ROWS, BEGIN, END, PADDING = 40, 0, 1, 99


@pytest.fixture(scope="module")
def generate():
    """Returns a function that searches by transformers: (arguments of `generate`) -> its output, for the random models
    of all rows."""
    torch = pytest.importorskip("torch")
    from transformers import GenerationConfig, GenerationMixin, PretrainedConfig, PreTrainedModel
    from transformers.modeling_outputs import CausalLMOutput

    class Model(PreTrainedModel, GenerationMixin):
        """Its inputs begin with the number of a row."""

        config_class = PretrainedConfig
        main_input_name = "input_ids"

        def __init__(self, config):
            super().__init__(config)
            self.weight = torch.nn.Parameter(torch.zeros(1))
            self.post_init()

        def forward(self, input_ids, **options):
            values = []
            for row, *prefix in input_ids.tolist():
                values.append(kit.next_log_probs(row, prefix, self.config.vocab_size))
            return CausalLMOutput(logits=torch.tensor(np.float32(values))[:, None])

    def call(vocabulary: int, **options):
        config = PretrainedConfig(vocab_size=vocabulary, num_hidden_layers=1, is_decoder=True)
        settings = GenerationConfig(
            early_stopping="never",
            eos_token_id=END,
            pad_token_id=PADDING,
            use_cache=False,
            output_scores=True,
            return_dict_in_generate=True,
            **options,
        )
        inputs = torch.tensor([[row, BEGIN] for row in range(ROWS)])
        return Model(config).generate(
            inputs, attention_mask=torch.ones_like(inputs), generation_config=settings
        )

    return call


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize(("beams", "length"), [(4, 8), (3, 3)])
def test_beams_are_those_of_transformers(generate, beams, length, alpha):
    theirs = generate(
        11,
        num_beams=beams,
        num_return_sequences=beams,
        length_penalty=alpha,
        max_new_tokens=length,
    )
    rows = jnp.arange(ROWS)
    search = Search(beams, alpha, "transformers")
    stop = Stop(END, length)
    ours = decoding.beam(kit.step_of(11, 16), kit.start(rows), jnp.full(ROWS, BEGIN), stop, search)
    tokens = theirs.sequences.numpy()[:, 2:].reshape(ROWS, beams, -1)
    scores = theirs.sequences_scores.numpy().reshape(ROWS, beams)
    tokens = np.where(tokens == PADDING, 0, tokens)
    size = tokens.shape[-1]
    np.testing.assert_array_equal(ours.tokens[..., :size], tokens)
    assert not ours.tokens[..., size:].any()
    difference = float(abs(ours.scores - scores).max())
    print(f"{difference:.1e}")
    assert difference < 1e-5


CUTS = [Cut(0.7), Cut(top_k=7), Cut(top_k=99), Cut(top_p=0.9), Cut(top_p=1e-3), Cut(1.3, 9, 0.6)]


@pytest.mark.parametrize("cut", CUTS)
def test_cuts_leave_the_tokens_that_transformers_leaves(cut):
    torch = pytest.importorskip("torch")
    from transformers.generation import logits_process

    logits = 3 * np.random.default_rng(0).normal(size=(500, 200)).astype(np.float32)
    theirs = torch.tensor(logits)
    steps = [logits_process.TemperatureLogitsWarper(cut.temperature)]
    if cut.top_k:
        steps.append(logits_process.TopKLogitsWarper(cut.top_k))
    if cut.top_p < 1:
        steps.append(logits_process.TopPLogitsWarper(cut.top_p))
    for step in steps:
        theirs = step(None, theirs)
    np.testing.assert_allclose(decoding.cut_logits(logits, cut), theirs.numpy(), rtol=1e-6)
