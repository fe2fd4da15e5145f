"""The training step on the CPU, side by side with transformers on PyTorch, in turns in one run.

    python benchmarks/step.py [--shapes bert_mini:32 bert_base:8] [--steps 7] [--fused] [--same-memory]
        [--config.KEY=VALUE ...]

A shape is CONFIG:ROWS, with the rows of its phase `short`. Three processes take one step each, in turns: ours,
`BertForPreTraining` as it comes (every position meets the vocabulary), and that with its head gathered at the masked
positions. All have the same rows (full, 20 predictions each), float32, dropout as published, Adam, clipping, and as
many threads as there are cores (taskset gives fewer). Each runs as its users run it: ours with the settings of the C
library's memory that `bert-jax env` prints, PyTorch without; --same-memory gives it those of ours. Prints a Markdown
row for each shape: medians, and the median over the turns of the ratio of two steps. Needs the extra `parity`.
"""

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import NamedTuple

import numpy as np

from bert_jax import config
from bert_jax import config as configs
from bert_jax.cli import Parser, positive
from bert_jax.commands.env import MEMORY
from bert_jax.data import batch
from bert_jax.errors import BadInput

SIDES = ("ours", "as it comes", "gathered")
TARGETS = {"bert_mini:32": (2.4, 1.1), "bert_base:8": (1.5, 1.2)}  # as it comes, gathered
WARM_UP = 2  # steps


class Side(NamedTuple):
    step: Callable[[], float]  # -> its loss
    parameters: int
    threads: int
    versions: str


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", default=list(TARGETS), metavar="CONFIG:ROWS")
    parser.add_argument("--steps", type=positive, default=7, help="timed, of every side")
    parser.add_argument("--fused", action="store_true", help="PyTorch's AdamW in one kernel")
    parser.add_argument("--same-memory", action="store_true", help="PyTorch with ours' settings")
    parser.add_argument("--side", choices=SIDES, help="be one of the processes")
    try:
        options, overrides = parser.parse_known_args(arguments)
        if options.side:
            serve(make(options.side, load(options.shapes[0], overrides), options.fused))
            return 0
        configs = {shape: load(shape, overrides) for shape in options.shapes}
        missing = [name for name in ("torch", "transformers") if not importlib.util.find_spec(name)]
        if missing:
            raise BadInput(
                f"{', '.join(missing)}: not installed; pip install -e '.[parity]' brings it"
            )
        for shape, settings in configs.items():
            command = ["--shapes", shape, *["--fused"] * options.fused, *overrides]
            print(compare(shape, settings, command, options.steps, options.same_memory), flush=True)
    except BadInput as error:
        print(f"step.py: {error}", file=sys.stderr)
        return 2
    return 0


def load(shape: str, overrides: list[str]):
    name, _, rows = shape.partition(":")
    if not rows.isdecimal():
        raise BadInput(f"--shapes {shape}: expected CONFIG:ROWS, as bert_base:8")
    unknown = [key for key in overrides if not key.startswith("--config.")]
    if unknown:
        raise BadInput(f"{unknown[0]}: unknown; see --help")
    keys = ["dtype=float32", f"phases.short.batch={rows}", *overrides]
    made = config.load(name, [key.removeprefix("--config.") for key in keys])
    if "short" not in made.phase_order:
        raise BadInput(f"--shapes {shape}: has no phase `short`")
    return made


def compare(shape: str, settings, command: list[str], steps: int, is_same_memory: bool) -> str:
    """The row of a shape."""
    processes, facts = {}, {}
    try:
        for side in SIDES:
            processes[side] = start([*command, "--side", side], side == "ours" or is_same_memory)
            facts[side] = hear(processes[side])
        seconds = {side: [] for side in SIDES}
        for _ in range(steps):
            for side, process in processes.items():
                process.stdin.write("step\n")
                process.stdin.flush()
                seconds[side].append(hear(process))
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    return describe(shape, settings, facts, seconds)


def describe(shape: str, settings, facts: dict, seconds: dict) -> str:
    phase, model = settings.phases.short, settings.model
    tokens = {side: phase.batch * phase.length / statistics.median(seconds[side]) for side in SIDES}
    ratios = [
        statistics.median(
            theirs / ours for theirs, ours in zip(seconds[side], seconds["ours"], strict=True)
        )
        for side in SIDES[1:]
    ]
    targets = [f"{target} x" for target in TARGETS.get(shape, ())] or ["-", "-"]
    known = "; ".join(dict.fromkeys(fact["versions"] for fact in facts.values()))
    threads = "/".join(str(fact["threads"]) for fact in facts.values())
    return (
        f"| step, tokens a second, {model.layers}/{model.width} at {phase.batch} x {phase.length}"
        f" ({known}; {threads} threads, {len(seconds['ours'])} turns)"
        f" | {targets[0]} PyTorch as it comes, {targets[1]} with its head gathered"
        f" | {tokens['ours']:,.0f}: **{ratios[0]:.2f} x, {ratios[1]:.2f} x**"
        f" | {tokens['as it comes']:,.0f} as it comes; {tokens['gathered']:,.0f} gathered |"
    )


def start(arguments: list[str], is_lasting: bool) -> subprocess.Popen:
    """is_lasting: with the settings of memory that `bert-jax env` prints."""
    variables = {key: os.environ[key] for key in os.environ if key != "GLIBC_TUNABLES"}
    variables |= {"JAX_PLATFORMS": "cpu"} | ({"GLIBC_TUNABLES": MEMORY} if is_lasting else {})
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return subprocess.Popen([sys.executable, __file__, *arguments], env=variables, **pipes)


def hear(process: subprocess.Popen):
    """What a side says next."""
    line = process.stdout.readline()
    if not line:
        raise SystemExit("a side has ended")
    return json.loads(line)


def serve(side: Side) -> None:
    """Says what it is once it is warm, then takes a step for every line that it reads, and says how long that took."""
    for _ in range(WARM_UP):
        side.step()
    print(json.dumps(dict(threads=side.threads, versions=side.versions)), flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        side.step()
        print(json.dumps(time.perf_counter() - begin), flush=True)


def make(side: str, settings, is_fused: bool = False) -> Side:
    return ours(settings) if side == "ours" else theirs(settings, side == "gathered", is_fused)


def rows_of(settings) -> dict:
    phase = settings.phases.short
    return batch.synthetic(
        phase.batch, phase.length, phase.max_predictions, settings.tokenizer.size
    )


def ours(settings) -> Side:
    import jax

    from bert_jax import build
    from bert_jax.models import bert
    from bert_jax.objectives.base import Vocabulary
    from bert_jax.parallel import mesh as meshes
    from bert_jax.runs import jax_setup
    from bert_jax.tokenizers.special_tokens import SPECIAL

    settings = jax_setup.start(settings)
    (phase,) = configs.choose_phases(settings, "short")
    mesh = build.make_mesh(settings, [phase], jax.devices()[:1])
    special = {name: id for id, name in enumerate(SPECIAL)}
    vocabulary = Vocabulary(settings.tokenizer.size, **special)
    design = build.design(settings, mesh, vocabulary)
    with jax.set_mesh(mesh):
        train = build.lower_train(settings, design, phase).compile()
    state = jax.jit(design.initialize, out_shardings=design.shardings)()
    places = np.arange(phase.batch)
    arrays = meshes.to_devices(mesh, rows_of(settings), places, phase.batch)

    def step() -> float:
        nonlocal state
        state, values, _ = jax.block_until_ready(train(state, arrays))
        return float(values["loss"][0])

    count = bert.count(design.shapes.params, vocabulary.size)
    return Side(step, count, cores(), f"jax {version('jax')}")


def theirs(settings, is_gathered: bool, is_fused: bool) -> Side:
    """With the erf that its gelu comes with, which costs it less than the tanh of ours."""
    import torch
    from torch.nn.functional import cross_entropy
    from transformers import BertConfig, BertForPreTraining

    torch.set_num_threads(cores())
    torch.manual_seed(settings.seed)
    given = settings.model
    model = BertForPreTraining(
        BertConfig(
            vocab_size=settings.tokenizer.size,
            num_hidden_layers=given.layers,
            hidden_size=given.width,
            num_attention_heads=given.heads,
            intermediate_size=given.feed_forward or 4 * given.width,
            max_position_embeddings=given.max_length,
            hidden_dropout_prob=given.dropout,
            attention_probs_dropout_prob=given.attention_dropout,
        )
    )
    model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings.optimizer.learning_rate, fused=is_fused
    )
    rows = {name: torch.from_numpy(array) for name, array in rows_of(settings).items()}
    positions, targets = rows["masked_positions"].long(), rows["masked_targets"].long()
    pairs = rows["pair_labels"][:, 0].long()
    inputs = dict(
        input_ids=rows["tokens"].long(),
        token_type_ids=rows["segments"].long(),
        attention_mask=torch.ones_like(rows["tokens"]),
    )
    labels = torch.full(positions.shape[:1] + rows["tokens"].shape[1:], -100)
    labels.scatter_(1, positions, targets)

    def loss():
        if not is_gathered:
            return model(**inputs, labels=labels, next_sentence_label=pairs).loss
        states = model.bert(**inputs)
        masked = states.last_hidden_state[torch.arange(len(positions))[:, None], positions]
        words = model.cls.predictions(masked).flatten(0, 1)
        order = model.cls.seq_relationship(states.pooler_output)
        return cross_entropy(words, targets.flatten()) + cross_entropy(order, pairs)

    def step() -> float:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.optimizer.clip)
        optimizer.step()
        return value.item()

    count = sum(parameter.numel() for parameter in model.parameters())
    known = f"torch {version('torch')}, transformers {version('transformers')}"
    return Side(step, count, torch.get_num_threads(), known)


def cores() -> int:
    """That this process may use, and XLA does."""
    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    sys.exit(main())
