"""The training step compared with transformers on PyTorch, on the CPU or a GPU; both run in turns.

    python benchmarks/step.py [--shapes bert_mini:32 bert_base:8] [--steps 7] [--device cuda] [--fused]
        [--same-memory] [--packed] [--config.KEY=VALUE ...]

A shape is CONFIG:ROWS, with the rows per step of its phase `short`. Three processes take two steps in turns: ours;
`BertForPreTraining` as it comes, which computes vocabulary logits at every position; and the same with its head applied
to the masked positions only. For ModernBERT it is `ModernBertForMaskedLM`, and the same with `sparse_prediction`. All
have the same rows (no padding), float32, dropout as published (none for ModernBERT), Adam, clipping, and one thread per
core (limit them by taskset); with --config.dtype=bfloat16 PyTorch's products are in bfloat16, too (autocast). Each runs
as its users run it: ours with the malloc settings that `bert-jax env` prints, PyTorch without them, unless
--same-memory is given.

With --packed, rows come from config.store: ours has rows of packed documents, and PyTorch has the same documents with
the same masks, one to a row, padded to the longest (for configs of ModernBERT). So a step has the same real tokens on
all sides. Prints a Markdown row for each shape: medians of real tokens a second, and the median over the turns of the
ratio of two steps. Needs the extra `parity`.
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

from bert_jax import config as configs
from bert_jax.cli import Parser, positive
from bert_jax.data import batch
from bert_jax.errors import BadInput
from bert_jax.runs import environment
from bert_jax.tasks import base as tasks
from bert_jax.tasks import feed

SIDES = ("ours", "as it comes", "gathered")
TARGETS = {"bert_mini:32": (2.4, 1.1), "bert_base:8": (1.5, 1.2)}  # as it comes, gathered
OPTIMIZER = ["optimizer.name=adam", "optimizer.clip=1.0", "optimizer.weight_decay=0.01"]
WARM_UP = 2  # steps


class Side(NamedTuple):
    """An implementation to compare."""

    step: Callable[[], float]  # takes a step and returns its loss
    parameters: int
    threads: int
    versions: str
    rows: str  # their shape, and the share of real tokens
    tokens: int  # real ones of a step


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", default=list(TARGETS), metavar="CONFIG:ROWS")
    parser.add_argument("--steps", type=positive, default=7, help="timed steps of each process")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--fused", action="store_true", help="PyTorch's AdamW in one kernel")
    parser.add_argument("--same-memory", action="store_true", help="PyTorch with our settings")
    parser.add_argument("--packed", action="store_true", help="documents of config.store")
    parser.add_argument("--side", choices=SIDES, help="run as one of the processes")
    try:
        options, overrides = parser.parse_known_args(arguments)
        if options.side:
            settings = load(options.shapes[0], overrides)
            rows = rows_of(settings, options.packed)
            serve(make(options.side, settings, rows, options.fused, options.device))
            return 0
        loaded = {shape: load(shape, overrides) for shape in options.shapes}
        models = {settings.model.name for settings in loaded.values()}
        if options.packed and models != {"modernbert"}:
            raise BadInput("--packed: expected configs of ModernBERT, such as modern_small:8")
        missing = [name for name in ("torch", "transformers") if not importlib.util.find_spec(name)]
        if missing:
            raise BadInput(
                f"{', '.join(missing)}: not installed; run pip install -c constraints.txt -e '.[parity]'"
            )
        for shape, settings in loaded.items():
            command = ["--shapes", shape, "--device", options.device, *overrides]
            if options.fused:
                command.append("--fused")
            if options.packed:
                command.append("--packed")
            print(compare(shape, settings, command, options.steps, options.same_memory), flush=True)
    except BadInput as error:
        print(f"step.py: {error}", file=sys.stderr)
        return 2
    return 0


def load(shape: str, overrides: list[str]):
    name, _, rows = shape.partition(":")
    if not rows.isdecimal():
        raise BadInput(f"--shapes {shape}: expected CONFIG:ROWS, such as bert_base:8")
    unknown = [key for key in overrides if not key.startswith("--config.")]
    if unknown:
        raise BadInput(f"{unknown[0]}: unknown option; see --help")
    keys = ["dtype=float32", f"phases.short.batch={rows}", *OPTIMIZER, *overrides]
    settings = configs.load(name, [key.removeprefix("--config.") for key in keys])
    if "short" not in settings.phase_order:
        raise BadInput(f"--shapes {shape}: the config has no phase `short`")
    if settings.model.name == "modernbert":
        settings.model.dropout = 0.0
    return settings


def compare(shape: str, settings, command: list[str], steps: int, is_same_memory: bool) -> str:
    """Measures all sides of a shape in turns; returns its Markdown row."""
    processes = {}
    facts = {}
    try:
        for side in SIDES:
            is_tuned = side == "ours" or is_same_memory
            processes[side] = start([*command, "--side", side], is_tuned)
            facts[side] = receive(processes[side])
        seconds = {side: [] for side in SIDES}
        for _ in range(steps):
            for side, process in processes.items():
                print("step", file=process.stdin, flush=True)
                seconds[side].append(receive(process))
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    return describe(shape, settings, facts, seconds)


def describe(shape: str, settings, facts: dict, seconds: dict) -> str:
    model = settings.model
    tokens = {side: facts[side]["tokens"] / statistics.median(seconds[side]) for side in SIDES}
    ratios = []
    for side in SIDES[1:]:
        pairs = zip(seconds[side], seconds["ours"], strict=True)
        ratios.append(statistics.median(theirs / ours for theirs, ours in pairs))
    targets = [f"{target} x" for target in TARGETS.get(shape, ())] or ["-", "-"]
    versions = "; ".join(dict.fromkeys(fact["versions"] for fact in facts.values()))
    threads = "/".join(str(fact["threads"]) for fact in facts.values())
    rows = "; ".join(dict.fromkeys(fact["rows"] for fact in facts.values()))
    return (
        f"| step, real tokens per second, {model.layers}/{model.width}, {rows}"
        f" ({versions}; {threads} threads, {len(seconds['ours'])} turns)"
        f" | {targets[0]} PyTorch as it comes, {targets[1]} with its head gathered"
        f" | {tokens['ours']:,.0f}: **{ratios[0]:.2f} x, {ratios[1]:.2f} x**"
        f" | {tokens['as it comes']:,.0f} as it comes; {tokens['gathered']:,.0f} gathered |"
    )


def start(arguments: list[str], is_tuned: bool) -> subprocess.Popen:
    """Starts the process of a side. is_tuned: whether with the malloc settings that `bert-jax env` prints."""
    variables = {key: os.environ[key] for key in os.environ if key != "GLIBC_TUNABLES"}
    # Without preallocation JAX leaves memory of a GPU to PyTorch.
    variables["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    if is_tuned:
        variables["GLIBC_TUNABLES"] = environment.MALLOC
    if "cuda" not in arguments:
        variables["JAX_PLATFORMS"] = "cpu"
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return subprocess.Popen([sys.executable, __file__, *arguments], env=variables, **pipes)


def receive(process: subprocess.Popen):
    """Returns the next JSON line of a side's process."""
    line = process.stdout.readline()
    if not line:
        raise SystemExit("step.py: a side's process has ended")
    return json.loads(line)


def serve(side: Side) -> None:
    """Warms up and prints facts of the side; then, for each line of input, takes two steps, and prints the seconds of
    the second: a virtual machine may have returned the memory that the first one takes to its host."""
    for _ in range(WARM_UP):
        side.step()
    facts = {key: value for key, value in side._asdict().items() if key != "step"}
    print(json.dumps(facts), flush=True)
    for _ in sys.stdin:
        side.step()
        begin = time.perf_counter()
        side.step()
        print(json.dumps(time.perf_counter() - begin), flush=True)


def make(side: str, settings, rows: dict, is_fused: bool = False, device: str = "cpu") -> Side:
    if side == "ours":
        return ours(settings, rows)
    return theirs(settings, rows, side == "gathered", is_fused, device)


def rows_of(settings, is_packed: bool = False) -> dict:
    """Returns the first batch of config.store or, unless packed, one of random tokens."""
    (phase,) = configs.choose_phases(settings, "short")
    if is_packed:
        return next(iter(feed.open_feed(settings).train(phase, phase.first, phase.first + 1)))
    shapes = tasks.make(settings).shapes(phase, phase.batch)
    rows = batch.synthetic(shapes, settings.tokenizer.size)
    # No position twice in a row: the side that predicts all positions has one target for each.
    rows["masked_positions"][:] = np.arange(phase.keys.max_predictions)
    return rows


def size(real: np.ndarray) -> tuple[str, int]:
    """Returns `rows` and `tokens` of a Side. real: bool[B, L]."""
    return f"{len(real)} x {real.shape[1]}, {real.mean():.1%} real", int(real.sum())


def labels_of(rows: dict) -> np.ndarray:
    """Returns the target of each place, int64[B, L]; -100 where there is none."""
    labels = np.full(rows["tokens"].shape, -100)
    row, mask = np.nonzero(rows["masked_weights"])
    labels[row, rows["masked_positions"][row, mask]] = rows["masked_targets"][row, mask]
    return labels


def unpack(rows: dict) -> dict:
    """Returns tokens, labels and mask of rows with one packed sequence each, padded to the longest."""
    is_real = rows["sequence_ids"] > 0
    places = rows["positions"][is_real]  # they restart at 0 in every sequence
    numbers = np.cumsum(places == 0) - 1

    def spread(values: np.ndarray, padding: int) -> np.ndarray:
        array = np.full((numbers[-1] + 1, places.max() + 1), padding)
        array[numbers, places] = values[is_real]
        return array

    return {
        "tokens": spread(rows["tokens"], 0),
        "labels": spread(labels_of(rows), -100),
        "mask": spread(is_real, 0),
    }


def ours(settings, rows: dict) -> Side:
    import jax

    from bert_jax import build
    from bert_jax.layers import counts
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
        state = build.lower_initialize(design).compile()()
    places = np.arange(phase.batch)
    arrays = meshes.to_devices(mesh, rows, places, phase.batch)

    def step() -> float:
        nonlocal state
        state, values, _ = jax.block_until_ready(train(state, arrays))
        return float(values["loss"][0])

    count = counts.count(design.shapes.params, vocabulary.size)
    return Side(step, count, cores(), f"jax {version('jax')}", *size(rows["sequence_ids"] > 0))


def theirs(settings, rows: dict, is_gathered: bool, is_fused: bool, device: str) -> Side:
    """Returns the PyTorch side. It has its default gelu, by erf, which is faster there than our tanh variant."""
    import torch

    torch.set_num_threads(cores())
    torch.manual_seed(settings.seed)
    if settings.model.name == "modernbert":
        network = modernbert
        rows = unpack(rows)
    else:
        network = bert
        rows = rows | {"labels": labels_of(rows), "mask": rows["sequence_ids"]}
    tensors = {name: torch.from_numpy(array).long().to(device) for name, array in rows.items()}
    keys = configs.resolve_model(settings).model
    model, loss = network(keys, settings.tokenizer.size, is_gathered, tensors)
    model.train().to(device)
    rate = settings.optimizer.learning_rate
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, fused=is_fused)

    def step() -> float:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=settings.dtype == "bfloat16"):
            value = loss()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.optimizer.clip)
        optimizer.step()
        return value.item()

    count = sum(parameter.numel() for parameter in model.parameters())
    versions = f"torch {version('torch')}, transformers {version('transformers')}"
    return Side(step, count, torch.get_num_threads(), versions, *size(rows["mask"] > 0))


def sizes(keys, vocabulary: int) -> dict:
    """Returns what BertConfig and ModernBertConfig name alike."""
    return dict(
        vocab_size=vocabulary,
        num_hidden_layers=keys.layers,
        hidden_size=keys.width,
        num_attention_heads=keys.heads,
        intermediate_size=keys.feed_forward,
        max_position_embeddings=keys.max_length,
    )


def bert(keys, vocabulary: int, is_gathered: bool, rows: dict):
    """Returns transformers' model and a function that computes its loss."""
    import torch
    from torch.nn.functional import cross_entropy
    from transformers import BertConfig, BertForPreTraining

    config = BertConfig(
        **sizes(keys, vocabulary),
        hidden_dropout_prob=keys.dropout,
        attention_probs_dropout_prob=keys.attention_dropout,
    )
    model = BertForPreTraining(config)
    positions = rows["masked_positions"]
    targets = rows["masked_targets"]
    pairs = rows["pair_labels"][:, 0]
    inputs = dict(
        input_ids=rows["tokens"], token_type_ids=rows["segments"], attention_mask=rows["mask"]
    )

    def loss():
        if not is_gathered:
            return model(**inputs, labels=rows["labels"], next_sentence_label=pairs).loss
        states = model.bert(**inputs)
        masked = states.last_hidden_state[torch.arange(len(positions))[:, None], positions]
        logits = model.cls.predictions(masked).flatten(0, 1)
        pair_logits = model.cls.seq_relationship(states.pooler_output)
        return cross_entropy(logits, targets.flatten()) + cross_entropy(pair_logits, pairs)

    return model, loss


def modernbert(keys, vocabulary: int, is_gathered: bool, rows: dict):
    """Returns transformers' model and a function that computes its loss."""
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    special = dict.fromkeys(("pad_token_id", "cls_token_id", "sep_token_id"), 0)
    settings = ModernBertConfig(
        **sizes(keys, vocabulary),
        **special,
        local_attention=keys.window,
        global_attn_every_n_layers=keys.full_every,
        sparse_prediction=is_gathered,
    )
    model = ModernBertForMaskedLM(settings)  # which has no dropout on the output of attention alone
    inputs = dict(input_ids=rows["tokens"], attention_mask=rows["mask"], labels=rows["labels"])
    return model, lambda: model(**inputs).loss


def cores() -> int:
    """Returns the number of cores that this process may use, as XLA does."""
    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    environment.configure()
    sys.exit(main())
