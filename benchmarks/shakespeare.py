"""Tiny Shakespeare by character: `--config shakespeare_char`, and a PyTorch loop of the same shape.

    python benchmarks/shakespeare.py --text input.txt --runs runs/shakespeare --seeds 3

Prints a line of JSON for each seed: the validation loss in nats, over the whole last tenth of the text, and the seconds
of the steps, without those of compilation and validation. Both sides run in processes of their own, with all cores:
`bert-jax pretrain`, as its users start it, and PyTorch, which draws random blocks as nanoGPT does, at a constant rate
and without validation. Runs are resumed by the same command. Keys of the config follow as --config.KEY=VALUE. Needs the
extra `parity`.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

from bert_jax import cli
from bert_jax import config as configs
from bert_jax.errors import BadInput
from bert_jax.runs import workdir


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = cli.Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True, help="where to train")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--torch", action="store_true", help="run as the process of PyTorch")
    try:
        words, overrides = cli.split_overrides(arguments)
        options = parser.parse_args(words)
        keys = [f"corpus.source={options.text}", f"store={options.runs / 'store'}", *overrides]
        config = configs.load("shakespeare_char", keys)
    except BadInput as error:
        cli.print_error(str(error))
        return 2
    if options.torch:
        print(json.dumps(train_in_torch(config, options.text)))
        return 0
    for seed in range(1, 1 + options.seeds):
        path = options.runs / f"seed_{seed}"
        flags = [f"--config.{key}" for key in (*keys, f"seed={seed}")]
        command = ["-m", "bert_jax", "pretrain", "--config", "shakespeare_char", "--workdir", path]
        subprocess.run([sys.executable, *command, *flags], check=True, stdout=sys.stderr)
        summary = workdir.read_summary(path)
        loss = summary["heldout"]["lm_loss"]
        result = {"seed": seed, "loss": loss, "seconds": summary["seconds"]}
        command = [sys.executable, __file__, "--torch", *arguments, f"--config.seed={seed}"]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        print(json.dumps(result | {"torch": json.loads(output)}), flush=True)
    return 0


def train_in_torch(config, text: Path) -> dict:
    """Trains the model of a config, float32, and returns the seconds of all steps and the last loss."""
    import torch
    from torch.nn import functional

    torch.manual_seed(config.seed)
    keys = config.model
    (phase,) = configs.phases(config)
    characters = torch.frombuffer(bytearray(text.read_bytes()), dtype=torch.uint8).long()
    data = torch.unique(characters, return_inverse=True)[1]
    data = data[: int(0.9 * len(data))]
    size = int(data.max()) + 1

    mask = torch.nn.Transformer.generate_square_subsequent_mask(phase.length)

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words = torch.nn.Embedding(size, keys.width)
            self.positions = torch.nn.Embedding(phase.length, keys.width)
            sizes = keys.width, keys.heads, 4 * keys.width
            fields = dict(dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
            block = torch.nn.TransformerEncoderLayer(*sizes, **fields)
            norm = torch.nn.LayerNorm(keys.width)
            self.blocks = torch.nn.TransformerEncoder(block, keys.layers, norm, False)

        def forward(self, tokens):
            x = self.words(tokens) + self.positions(torch.arange(phase.length))
            x = self.blocks(x, mask=mask, is_causal=True)
            return functional.linear(x, self.words.weight)

    network = Network()
    for weight in network.parameters():
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.02)
    rate = config.optimizer.learning_rate
    betas = config.optimizer.beta1, config.optimizer.beta2
    optimizer = torch.optim.AdamW(network.parameters(), rate, betas, weight_decay=0.1)
    start = time.perf_counter()
    for _ in range(phase.stop):
        firsts = torch.randint(len(data) - phase.length, (phase.batch,))
        rows = torch.stack([data[first : first + phase.length + 1] for first in firsts])
        logits = network(rows[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), config.optimizer.clip)
        optimizer.step()
    return {"seconds": time.perf_counter() - start, "last_training_loss": loss.item()}


if __name__ == "__main__":
    sys.exit(main())
