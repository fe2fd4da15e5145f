"""Compares the loss of a finished run with that of a model that knows token frequencies only.

    python benchmarks/learnt.py --workdir DIR [--target TEXT]

Prints a Markdown row: the held-out loss at [MASK] positions, its distance below the unigram entropy of the training
text, and that distance at each earlier evaluation with the seconds of training until then.
"""

import sys
from pathlib import Path

from bert_jax.cli import Parser
from bert_jax.errors import BadInput
from bert_jax.runs import metrics_file
from bert_jax.runs.workdir import read_json

LOSS = "mlm_loss_masked"


def main(arguments: list[str] | None = None) -> int:
    parser = Parser(description=__doc__.splitlines()[0])
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--target", default="-", help="the target to print in the row")
    try:
        options = parser.parse_args(arguments)
        summary = read_json(options.workdir / "summary.json")
        print(row(options.workdir, summary, options.target))
    except BadInput as error:
        print(f"learnt.py: {error}", file=sys.stderr)
        return 2
    return 0


def row(workdir: Path, summary: dict, target: str) -> str:
    """Returns the Markdown row. summary: the contents of summary.json."""
    lines, entropy = metrics_file.lines(workdir / "metrics.jsonl"), summary["unigram_entropy"]
    seconds, distances = 0.0, []
    for line in lines:
        if line["split"] == "train":
            seconds += line["seconds"]
        elif LOSS in line:
            distance = f"{entropy - line[LOSS]:.2f}"
            distances.append(f"{distance} at step {line['step']:,} ({seconds:.0f} s)")
    if not distances:
        raise BadInput(f"{workdir}: metrics.jsonl has no held-out {LOSS}")
    last = summary["heldout"]
    pairs = f"; next sentence {last['nsp_accuracy']:.2f}" if "nsp_accuracy" in last else ""
    rate = summary["train"]["tokens_per_second"]
    return (
        f"| {workdir.name}: held-out loss at [MASK], nats | {target} | {last[LOSS]:.2f}, **{entropy - last[LOSS]:.2f}**"
        f" below the unigram entropy after {summary['seconds']:.0f} s of training, finally {rate:,.0f} tokens/s"
        f"{pairs}; distance below it earlier: {'; '.join(distances)} | {entropy:.2f}, the unigram entropy |"
    )


if __name__ == "__main__":
    sys.exit(main())
