"""The keys that all runs share, with default, unit and meaning; all other configs start from this `get_config()`.

A config is Python that is executed. No config can add a key or change the type of a value. Model, objective, task and
optimizer bring keys of their own: the DEFAULTS of their modules, and the PHASE_DEFAULTS of task and model for each
phase.
"""

import math
import re
from itertools import accumulate

import numpy as np
from ml_collections import ConfigDict

from bert_jax.checks import (
    check_keys,
    heldout_sources,
    require,
    source_names,
    sources,
    split_list,
    value_of,
)
from bert_jax.registry import find_part


def phase(steps: int, length: int, batch: int, **keys) -> ConfigDict:
    """Returns the keys of a phase, a part of a run whose batches have one shape.

    keys: those of the task, such as max_predictions, and the other ones of phases. Those of the task that are left out
        take its defaults once the config is loaded.
    """
    defaults = dict(
        steps=steps,  # optimizer steps
        length=length,  # tokens per row, special tokens and padding included
        batch=batch,  # rows per step, over all hosts and micro-batches
        # A schedule lasts until another one begins. Adam's moments are kept.
        schedule="",  # schedule.name of one that begins with this phase; '': the one before goes on
        learning_rate=0.0,  # its peak; 0: that of the run
        warmup=0,  # its steps of warm-up, from 0 on; they may go on in the next phases, like the decay
        decay=0,  # its last steps, in which it falls, as schedule.decay
        end=0.0,  # where it ends, as a share of its peak
    )
    return ConfigDict(defaults | keys)


def use(config: ConfigDict, **names: str) -> None:
    """Changes the model, objective, task or optimizer of a config, as in `base.use(config, task="token_blocks")`.

    Its keys become those of the named module. A value that differs from its old default is kept if the new module has a
    key of this name and type; all others take the new defaults. This holds for the module's keys of each phase, too.
    """
    for group, name in names.items():
        old = find_part(group, config[group].name)
        new = find_part(group, name)
        config[group] = ConfigDict(keep_changed(config[group], old.DEFAULTS, new.DEFAULTS))
        config[group].name = name
        config[group].lock()
        for key, values in config.phases.items():
            values = keep_changed(values, old.PHASE_DEFAULTS, new.PHASE_DEFAULTS)
            config.phases[key] = ConfigDict(values)


def keep_changed(values: ConfigDict, old: dict, new: dict) -> dict:
    """Returns the defaults `new` with the values that differ from the defaults `old`. Keys in neither are kept."""
    kept = dict(new)
    for key, value in values.items():
        if key not in old:
            kept[key] = value
        elif key in new and type(old[key]) is type(new[key]) and value != old[key]:
            kept[key] = value
    return kept


def get_config(
    model="bert", objective="mlm", task="sentence_pairs", optimizer="adam"
) -> ConfigDict:
    config = ConfigDict()
    config.seed = 12345  # seed of initial parameters, data order, masks and dropout
    # data type of matrix products: float32 or bfloat16. auto: bfloat16 on TPUs and GPUs, float32 on CPUs
    config.dtype = "auto"
    # data type in which gradients are summed over rows and devices: float32 or bfloat16
    config.gradient_dtype = "float32"
    # directory of the token store that `prepare` writes, or the address of a copy, such as gs://bucket/store
    config.store = "stores/default"
    # directory or address of saved batches (`inspect --save`) to train on instead of the store. '': use the store
    config.batches = ""
    # run, exported directory or published checkpoint whose parameters the run starts from, as far as it has them;
    # compared by content. '': random weights
    config.init_from = ""
    # whether the run also starts with the optimizer's state, such as Adam's moments and count, of the run in init_from
    # (RUN or RUN@STEP), at step 0
    config.init_moments = False
    # whether a run of init_from starts from random weights even so, with its network and its tokenizer: the comparison
    # that shows what pretraining is worth
    config.random_weights = False
    # workdir of a run that this one continues in its own workdir, from the newest checkpoint or that of a step
    # (runs/a@5000): with its parameters, optimizer state, step and data. Only the steps to come may differ. It is not
    # read again once this run has a checkpoint. '': none
    config.continue_from = ""
    # whether to verify the store's SHA-256 checksums at every start, which takes about a second per GB
    config.verify_store = True
    # directory of the cache of compiled programs. '': no cache. auto: $XDG_CACHE_HOME/bert_jax, or ~/.cache/bert_jax.
    # The environment variable JAX_COMPILATION_CACHE_DIR takes precedence
    config.compilation_cache = "auto"

    config.corpus = ConfigDict()
    # text to train on: pydocs (docstrings of Python), tfds:NAME (TensorFlow Datasets), hf:NAME (Hugging Face), a file,
    # a directory or a glob; several are separated by commas, and may have names for task.mixture: NAME=PATH,... In a
    # path, write ? for a comma
    config.corpus.source = "pydocs"
    # format of text files: lines (blank lines separate documents), document_per_line, files (one document per file),
    # wiki (output of WikiExtractor), jsonl (one JSON object per line), json, csv and tsv (tables, each read whole) and
    # parquet (one row per document), mds (shards of MosaicML Streaming; those that an index.json lists may not be
    # missing). One for all sources, or one per source, those of heldout_source last, separated by commas
    config.corpus.format = "lines"
    # line that ends a document in the formats lines and files, such as <|endoftext|>, and that is no text. '': a blank
    # line in lines, the end of the file in files
    config.corpus.separator = ""
    # field with the text, in all formats of records and in data sets; in MDS it may have tokens, which tokenizer.path
    # makes text again
    config.corpus.field = "text"
    # dotted name of a function str -> str that each document goes through before it is split into sentences, such
    # as my_code.text.normalize; '' drops a document. '': none
    config.corpus.map = ""
    # how text is split into sentences: lines (one per line), rules (at punctuation), wrapped (by rules, after the lines
    # of each paragraph are joined), auto (lines if the format is lines, rules otherwise and for pydocs), none (a
    # document keeps its exact characters, spaces and line breaks included, as one sentence: for token_blocks and other
    # tasks that need no sentences; see docs/text.md)
    config.corpus.sentences = "auto"
    # share that is held out for evaluation: of the documents, at least two, or one with sentences=none; with
    # heldout_by=end, of the characters. Not used with heldout_source
    config.corpus.heldout = 0.01
    # what is held out. hash: documents, by the hash of their text. end: the end of the text, after the first int((1 -
    # heldout) * characters) characters; with sentences=none, it may begin inside a document, and otherwise with one
    config.corpus.heldout_by = "hash"
    # text to hold out, all of it, in place of a share of `source`, which loses the documents that are also in this one.
    # Names sources as `source` does. '': none
    config.corpus.heldout_source = ""
    config.corpus.workers = 0  # processes that tokenize; 0: one per core

    config.filter = ConfigDict()  # what `prepare` drops; its report counts what was dropped
    config.filter.duplicates = True  # drop documents whose text equals that of an earlier one
    config.filter.document_characters = 0  # drop documents with fewer characters
    config.filter.line_stops = False  # drop lines that do not end with a sentence's punctuation
    # drop files that `prepare` refuses otherwise: not UTF-8, of another format, damaged, or an archive
    config.filter.unusable_files = False

    config.tokenizer = ConfigDict()
    # what to train: wordpiece, unigram, bpe or byte_bpe; or bytes, the 256 of UTF-8, which are not trained
    config.tokenizer.kind = "wordpiece"
    config.tokenizer.size = 30522  # vocabulary size to train, in pieces; always 261 for bytes
    # vocab.txt, .model or tokenizer.json to use instead of a trained one, or GPT-2's vocab.json beside merges.txt, or a
    # run or a store that has the tokenizer; `kind`, `size` and keys of training are then ignored. '': train one
    config.tokenizer.path = ""
    # whether to append the special tokens that the tokenizer in `path` lacks: [PAD], [UNK], [CLS], [SEP] or [MASK]. In
    # fine-tuning: those that the model of `init_from` lacks, but not [MASK]; [CLS] and [SEP] get new pieces if they
    # share one, and a causal model gets [END], which ends a row
    config.tokenizer.add_special = False
    # whether to lowercase; wordpiece then strips accents, too. Ignored for a .model or tokenizer.json
    config.tokenizer.lowercase = True
    # whether wordpiece, also in a vocab.txt, keeps accents when it lowercases; otherwise ş becomes s
    config.tokenizer.keep_accents = False
    # how text is normalized, also that which a model writes. nfkc: m² and … become m2 and ... (unigram, bpe, byte_bpe).
    # nfc: accents join their letters (byte_bpe). identity: text stays as it is (byte_bpe; unigram and bpe with
    # lowercase=False). auto: identity for byte_bpe, nfkc for unigram and bpe
    config.tokenizer.normalization = "auto"
    # whether each digit is a piece of its own: 0 to 9 with unigram and bpe, those of all scripts with byte_bpe
    config.tokenizer.split_digits = False
    # whether unigram and bpe encode characters that they lack as bytes, of which there are 256 pieces, not as [UNK]
    config.tokenizer.byte_fallback = False
    # share of the characters of the text that wordpiece, unigram and bpe cover, from 0.98 to 1; rarer ones are [UNK]
    config.tokenizer.coverage = 0.9999
    # the special tokens of a trained vocabulary in the order of their ids, which begin at 0
    config.tokenizer.special = "pad,unk,cls,sep,mask"
    config.tokenizer.sample = 50  # megabytes of text to train the vocabulary on, at most

    config.model = ConfigDict(find_part("model", model).DEFAULTS)
    # a file in bert_jax/models, or the dotted name of any module; it defines the other keys of the group
    config.model.name = model
    config.objective = ConfigDict(find_part("objective", objective).DEFAULTS)
    config.objective.name = objective  # likewise, in bert_jax/objectives
    config.task = ConfigDict(find_part("task", task).DEFAULTS)
    # likewise, in bert_jax/tasks; it also defines the other keys of the phases
    config.task.name = task

    config.optimizer = ConfigDict(find_part("optimizer", optimizer).DEFAULTS)
    # likewise, in bert_jax/optimizers: adam (with decoupled weight decay: AdamW), stable_adamw (which needs no clip),
    # adafactor, lamb (for large batches), muon (on the kernels of blocks, AdamW on the rest)
    config.optimizer.name = optimizer
    # peak learning rate, see `schedule`. 0 with inverse_sqrt: (model.width * schedule.warmup)^-0.5 (arXiv:1706.03762).
    # -1: 0.0384 / model.width, which is 5e-5 for BERT-base, 3e-4 for a width of 128: for fine-tuning
    config.optimizer.learning_rate = 1e-4
    # decoupled weight decay, multiplied by the learning rate, or with stable_adamw by its share of the peak (1e-5 in
    # ModernBERT); not applied to biases and layer norms. 0: none
    config.optimizer.weight_decay = 0.01
    config.optimizer.clip = 1.0  # maximum global norm of the gradient; 0: no clipping
    # factor of the learning rate for each layer above: heads and pooler have the full rate, the last block this factor
    # of it, the one below its square, ... BERT is often fine-tuned with 0.65 to 0.95; ULMFiT has 0.385. 1: none
    config.optimizer.layer_decay = 1.0
    # steps after which one more layer is trained: first heads and pooler alone, then also the last block, ..., and at
    # last the embeddings (ULMFiT). 0: all are trained from the start
    config.optimizer.unfreeze_every = 0
    # whether heads and pooler alone are trained; what is below them stays as it is. Its dropout stays, too: for fixed
    # features, set model.dropout and model.attention_dropout to 0
    config.optimizer.frozen = False

    config.schedule = ConfigDict()
    # learning rate after the warm-up: constant, linear, cosine, sqrt (1 - sqrt of the progress), root (sqrt of 1 - the
    # progress), inverse_sqrt, or slanted (linear, from 1/32 of the peak and back to it, as in ULMFiT). Those of
    # constant and sqrt proceed by tokens, of which the steps of phases have different numbers
    config.schedule.name = "linear"
    config.schedule.warmup = 10000  # steps of linear warm-up; 0: none
    # the last steps of the schedule, in which linear, cosine, sqrt and root fall; before them the rate is at its peak.
    # 0: all after the warm-up, and with linear and root from step 0 on, as in the original BERT. It may be changed
    # before it begins
    config.schedule.decay = 0
    config.schedule.end = 0.0  # where linear, cosine, sqrt and root end, as a share of the peak

    config.phase_order = ("main",)  # names of the phases, in the order they run
    keys = find_part("task", task).PHASE_DEFAULTS | find_part("model", model).PHASE_DEFAULTS
    main = phase(steps=1000, length=128, batch=256, **keys)
    config.phases = ConfigDict(dict(main=main))

    config.mesh = ConfigDict()
    # number of devices over which rows are split; -1: number of devices / (fsdp * tensor)
    config.mesh.data = -1
    # devices that split the rows, the parameters and the optimizer state; -1: on TPUs all of a slice that data and
    # tensor leave, as far as width and vocabulary divide; otherwise 1
    config.mesh.fsdp = -1
    config.mesh.tensor = 1  # devices that split heads, feed-forward layers and the vocabulary

    # Several processes, one per host. These keys are never saved: they do not affect what is learnt. On a Cloud TPU
    # slice and under SLURM, JAX finds the values itself.
    config.distributed = ConfigDict()
    config.distributed.coordinator = ""  # HOST:PORT of process 0; '': $JAX_COORDINATOR_ADDRESS
    # number of processes on all hosts; 0: $JAX_NUM_PROCESSES; 1: this one alone
    config.distributed.processes = 0
    config.distributed.process = -1  # index of this process, from 0; -1: $JAX_PROCESS_ID
    config.distributed.timeout = 300  # seconds to wait for the other processes to connect
    config.distributed.heartbeat = 100  # seconds without a heartbeat until all processes end

    # Deadlines in seconds; 0: none. A process that misses one is stuck, or waits for one that is. It prints its stack
    # traces to stderr and ends with exit code 142. Preparing a store has no deadline.
    config.timeouts = ConfigDict()
    # seconds for opening and verifying data, for compiling, and for the first step of a phase; 0: no deadline
    config.timeouts.compile = 3600
    # seconds for any other step, including the wait for its batch and its report; 0: no deadline
    config.timeouts.step = 600
    # seconds for restoring a checkpoint, or for waiting until one is written; 0: no deadline
    config.timeouts.save = 3600
    config.timeouts.evaluate = 3600  # seconds for an evaluation; 0: no deadline

    config.train = ConfigDict()
    # number of parts into which a batch is split; their gradients are added up (gradient accumulation)
    config.train.micro_batches = 1
    # tokens that a device computes at once, at most, or one row if that is longer. The number of micro-batches of each
    # phase is computed from it and the mesh, so one command suits slices of any size. 0: use micro_batches
    config.train.tokens_per_device = 0
    # what the backward pass recomputes, to save memory; the results are the same. none: nothing. attention: the
    # attention probabilities, most of the memory of long rows (only with model.attention=xla). full: whole blocks, a
    # third more computation
    config.train.remat = "none"

    # Steps with a loss or gradient that is not finite are never applied.
    config.guard = ConfigDict()
    # consecutive steps with a loss or gradient that is not finite, after which the run stops
    config.guard.stop_after = 10
    # a loss that is more than this many mean absolute deviations above the running mean is logged as a spike. 0: spikes
    # are not detected
    config.guard.spike = 8.0
    # number of steps that the running mean covers, about; no spike is detected before that many steps
    config.guard.window = 100
    config.guard.skip_spikes = False  # whether to skip the update of a spike

    config.log = ConfigDict()
    config.log.every = 100  # steps between reports; there is also one before each evaluation
    # PROJECT or ENTITY/PROJECT of Weights & Biases that gets the reports, too, after pip install -c constraints.txt -e
    # '.[wandb]' and wandb login; the environment variable WANDB_MODE=offline keeps them in the workdir. '': none
    config.log.wandb = ""
    config.log.report = (
        True  # whether a run that is done writes report.html, as the command `report` does
    )

    config.profile = ConfigDict()
    config.profile.steps = ()  # (A, B): trace the steps A to B - 1, to traces/ in the workdir; (): none

    config.evaluate = ConfigDict()
    config.evaluate.every = 1000  # steps between evaluations; 0: only at the end
    # held-out rows, at most; those that are scored together, such as the windows of a question, all or none
    config.evaluate.rows = 4096
    # rows of the first split, at most, whose predictions are written to samples.jsonl; the log has two of them. 0: none
    config.evaluate.samples = 4
    config.evaluate.batch = 0  # rows computed at once; 0: as many as a micro-batch of the phase
    # dotted name of a function of the model, such as my_code.metric.probe, that gives more metrics of the first split
    # which is evaluated, {name: number}; see docs/reliability.md. '': none
    config.evaluate.metric = ""
    # evaluations in a row without a better one, after which the run ends; the model of the run is then that of the best
    # one. Better: a higher first metric of task.metrics or, without these, a lower loss, on the first split that is
    # evaluated. 0: all steps are trained, and the model is that of the last one
    config.evaluate.patience = 0

    config.checkpoint = ConfigDict()
    config.checkpoint.every = 1000  # steps between checkpoints; a multiple of log.every
    config.checkpoint.keep = 3  # number of newest checkpoints to keep
    # number of newest checkpoints whose mean is the model, for all commands that read the model of a run; at most
    # `keep`. A run with fewer steps saves more often
    config.checkpoint.average = 1
    config.checkpoint.keep_every = 0  # also keep those at multiples of this step; 0: none
    # also keep those of so many best evaluations, judged as by evaluate.patience
    config.checkpoint.keep_best = 0
    # steps between comparisons of the copies of parameters that several devices hold; 0: only at each save
    config.checkpoint.compare = 100

    config.lock()
    return config


# --- Checks ---------------------------------------------------------------------------------------

FALLING = ("linear", "cosine", "sqrt", "root")  # schedules with a decay and an end
SCHEDULES = (*FALLING, "constant", "inverse_sqrt", "slanted")
CHOICES = {
    "dtype": ("auto", "float32", "bfloat16"),
    "gradient_dtype": ("float32", "bfloat16"),
    "corpus.sentences": ("auto", "lines", "rules", "wrapped", "none"),
    "corpus.heldout_by": ("hash", "end"),
    "tokenizer.normalization": ("auto", "nfkc", "nfc", "identity"),
    "tokenizer.kind": ("wordpiece", "unigram", "bpe", "byte_bpe", "bytes"),
    "train.remat": ("none", "attention", "full"),
    "schedule.name": SCHEDULES,
}
SHARES = ("corpus.heldout",)
# {key of `tokenizer`: the kinds of vocabularies that have it}
KINDS = {
    "normalization": ("unigram", "bpe", "byte_bpe"),
    "split_digits": ("unigram", "bpe", "byte_bpe"),
    "byte_fallback": ("unigram", "bpe"),
    "coverage": ("wordpiece", "unigram", "bpe"),
    "keep_accents": ("wordpiece",),
}
AT_LEAST_ONE = """
    mesh.tensor distributed.timeout distributed.heartbeat train.micro_batches
    guard.stop_after guard.window log.every checkpoint.every checkpoint.keep evaluate.rows
    checkpoint.average
""".split()
NOT_NEGATIVE = """
    seed corpus.workers filter.document_characters tokenizer.sample distributed.processes
    timeouts.compile timeouts.step timeouts.save timeouts.evaluate optimizer.clip
    optimizer.weight_decay train.tokens_per_device evaluate.every
    evaluate.batch evaluate.samples checkpoint.keep_every checkpoint.keep_best checkpoint.compare evaluate.patience
    optimizer.unfreeze_every
""".split()
MAX_STEPS = 2**31  # steps are counted in int32
FORMATS = (
    "lines",
    "document_per_line",
    "files",
    "wiki",
    "jsonl",
    "json",
    "csv",
    "tsv",
    "parquet",
    "mds",
)


def check_values(config: ConfigDict) -> None:
    """Raises BadInput for the first shared key with a value outside of its choices or range, and for invalid phases."""
    check_keys(config, CHOICES, SHARES, AT_LEAST_ONE, NOT_NEGATIVE)
    check_schedule(config, "schedule", "name")
    check_phases(config)


def check(config: ConfigDict) -> None:
    """Raises BadInput for the first shared key whose value does not suit those of others."""
    is_valid = config.distributed.process >= -1
    require(is_valid, "distributed.process", config, "expected 0 or more, or -1")
    is_valid = config.mesh.fsdp >= 1 or config.mesh.fsdp == -1
    require(is_valid, "mesh.fsdp", config, "expected 1 or more, or -1")
    require(config.seed < 2**32, "seed", config, "expected less than 2**32")
    is_valid = config.guard.spike == 0 or config.guard.spike >= 2
    require(is_valid, "guard.spike", config, "expected 0, or at least 2 mean deviations")
    # The library refuses other names only after it has connected.
    is_valid = re.fullmatch(r"([^/]+/)?[^/\\#?%:]{1,128}", config.log.wandb) or not config.log.wandb
    require(is_valid, "log.wandb", config, "expected PROJECT or ENTITY/PROJECT")
    check_tokenizer(config)
    check_corpus(config)
    check_optimizer(config)
    check_profile(config, sum(phase.steps for phase in config.phases.values()))
    for name, phase in config.phases.items():
        parts = config.train.micro_batches
        hint = f"expected a multiple of train.micro_batches={parts}"
        require(phase.batch % parts == 0, f"phases.{name}.batch", config, hint)
    tokens = config.train.tokens_per_device
    is_valid = tokens == 0 or config.train.micro_batches <= 1
    hint = f"computed from train.tokens_per_device={tokens}; set one of them"
    require(is_valid, "train.micro_batches", config, hint)
    check_checkpoints(config)


def check_checkpoints(config: ConfigDict) -> None:
    """Checks when checkpoints are saved and evaluated, and which of them are the start and the result of a run."""
    every = config.checkpoint.every
    is_valid = every % config.log.every == 0
    hint = f"expected a multiple of log.every={config.log.every}: no report may span a restart"
    require(is_valid, "checkpoint.every", config, hint)
    has_patience = config.evaluate.patience > 0
    evaluations = config.evaluate.every
    is_valid = evaluations > 0 and evaluations % every == 0
    hint = f"needs evaluate.every={evaluations} to be a multiple of checkpoint.every={every}"
    require(is_valid or not has_patience, "evaluate.patience", config, hint)
    require(is_valid or not config.checkpoint.keep_best, "checkpoint.keep_best", config, hint)
    is_valid = not config.init_moments or config.init_from
    require(is_valid, "init_moments", config, "needs init_from, the run whose moments they are")
    hint = f"expected '' with init_from={config.init_from}: both say where the run starts"
    require(not (config.continue_from and config.init_from), "continue_from", config, hint)
    is_valid = config.checkpoint.average == 1 or not has_patience
    hint = "expected 1 with evaluate.patience, which keeps the best checkpoint alone"
    require(is_valid, "checkpoint.average", config, hint)


def check_tokenizer(config: ConfigDict) -> None:
    """Checks that the kind of the vocabulary to train has the keys that differ from their defaults."""
    keys = config.tokenizer
    is_valid = 0.98 <= keys.coverage <= 1
    require(is_valid, "tokenizer.coverage", config, "expected 0.98 to 1")
    is_valid = sorted(split_list(keys.special)) == ["cls", "mask", "pad", "sep", "unk"]
    require(is_valid, "tokenizer.special", config, "expected pad,unk,cls,sep,mask in any order")
    require(
        keys.lowercase or not keys.keep_accents,
        "tokenizer.keep_accents",
        config,
        "expected False with tokenizer.lowercase=False, which keeps them",
    )
    if keys.path:
        return
    defaults = get_config().tokenizer
    for key, kinds in KINDS.items():
        default = defaults[key]
        is_valid = keys[key] == default or keys.kind in kinds
        hint = f"expected {default} with tokenizer.kind={keys.kind}; {', '.join(kinds)} have it"
        require(is_valid, f"tokenizer.{key}", config, hint)
    if keys.kind == "byte_bpe":
        return
    forms = ["auto", "nfkc"]
    if not keys.lowercase:
        forms.append("identity")
    hint = f"expected one of {', '.join(forms)} with these tokenizer.kind and tokenizer.lowercase"
    require(keys.normalization in forms, "tokenizer.normalization", config, hint)


def check_corpus(config: ConfigDict) -> None:
    """Checks that there is one text format, or one for each source, and what is held out."""
    count = len(sources(config))
    heldout = len(heldout_sources(config))
    require(count > heldout, "corpus.source", config, "names no source")
    names = source_names(config)
    is_valid = not any(names) or (all(names) and len({*names}) == len(names))
    require(
        is_valid, "corpus.source", config, "expected a name of its own for each source, or none"
    )
    formats = split_list(config.corpus.format)
    is_valid = set(formats) <= set(FORMATS) and len(formats) in (1, count)
    hint = f"expected one of {', '.join(FORMATS)}, or one for each of {count} sources"
    require(is_valid, "corpus.format", config, hint)
    separator = config.corpus.separator
    is_line = separator.strip().splitlines() == [separator]
    has_separator = is_line and not {"lines", "files"}.isdisjoint(formats)
    hint = "expected a line of the formats lines or files, without spaces around it"
    require(has_separator or not separator, "corpus.separator", config, hint)
    is_valid = config.corpus.heldout_by == "hash" or not heldout
    hint = "expected '' with corpus.heldout_by=end: both say what is held out"
    require(is_valid, "corpus.heldout_source", config, hint)
    is_valid = config.corpus.heldout_by == "hash" or config.corpus.heldout > 0
    require(is_valid, "corpus.heldout", config, "expected more than 0 with corpus.heldout_by=end")
    is_valid = config.corpus.sentences != "none" or not config.filter.line_stops
    hint = "expected False with corpus.sentences=none, which keeps all lines of a document"
    require(is_valid, "filter.line_stops", config, hint)


def check_optimizer(config: ConfigDict) -> None:
    keys = config.optimizer
    is_valid = keys.learning_rate >= 0 or keys.learning_rate == -1
    require(is_valid, "optimizer.learning_rate", config, "expected -1, 0 or more")
    is_valid = keys.unfreeze_every < MAX_STEPS // 1000  # its product with the layers is a step
    require(is_valid, "optimizer.unfreeze_every", config, f"expected less than {MAX_STEPS // 1000}")
    require(0 < keys.layer_decay <= 1, "optimizer.layer_decay", config, "expected in (0, 1]")


def check_phases(config: ConfigDict) -> None:
    order = config.phase_order
    is_valid = order and all(isinstance(name, str) for name in order)
    if is_valid:
        is_valid = sorted(order) == sorted(config.phases)
    hint = f"expected the keys of phases, each once: {tuple(sorted(config.phases))}"
    require(is_valid, "phase_order", config, hint)
    total = 0
    for name in order:
        phase = config.phases[name]
        path = f"phases.{name}"
        positive = [f"{path}.{key}" for key in ("steps", "batch", "length")]
        check_keys(config, at_least_one=positive, not_negative=[f"{path}.learning_rate"])
        total += phase.steps
        hint = f"expected less than {MAX_STEPS} together with the earlier phases"
        require(total < MAX_STEPS, f"{path}.steps", config, hint)
        check_schedule(config, path, "schedule")


def check_schedule(config: ConfigDict, group: str, key: str) -> None:
    """Checks the keys of the schedule of a group: `schedule`, or a phase. key: that of its name in the group."""
    keys = value_of(config, group)
    name = keys[key]
    path = f"{group}.{key}"
    if name or group == "schedule":
        check_keys(config, {path: SCHEDULES})
    check_keys(config, not_negative=(f"{group}.warmup", f"{group}.decay"))
    require(0 <= keys.end <= 1, f"{group}.end", config, "expected a share in [0, 1]")
    unused = ()
    if name not in FALLING:
        unused = ("decay", "end")
    if not name:
        unused = ("learning_rate", "warmup", "decay", "end")
    for field in unused:
        hint = f"expected 0 with {path}={name!r}"
        require(keys[field] == 0, f"{group}.{field}", config, hint)


def check_profile(config: ConfigDict, total: int) -> None:
    steps = config.profile.steps
    is_valid = steps == ()
    if len(steps) == 2 and all(type(step) is int for step in steps):
        is_valid = 0 <= steps[0] < steps[1] <= total
    hint = f"expected (), or (first, last + 1) among the steps 0 to {total - 1}"
    require(is_valid, "profile.steps", config, hint)


# --- Keys that follow from others -----------------------------------------------------------------


def follow(config: ConfigDict, before: ConfigDict, fixed: set[str]) -> None:
    """Changes keys that do not suit those of `fixed`, which are overridden, nor the steps of the phases.

    before: the config without the overrides, or with other steps.

    While `task.epochs` is to decide the steps of the last phase, no key follows from them.
    """
    if "train.micro_batches" not in fixed:
        batches = math.gcd(*(phase.batch for phase in config.phases.values()))
        config.train.micro_batches = fit(config.train.micro_batches, divides=batches)
    most = config.model.get("max_length")
    for name, phase in config.phases.items():
        if most and phase.length > most and f"phases.{name}.length" not in fixed:
            if "max_predictions" in phase and f"phases.{name}.max_predictions" not in fixed:
                phase.max_predictions = max(1, phase.max_predictions * most // phase.length)
            phase.length = most
    has_steps = f"phases.{config.phase_order[-1]}.steps" in fixed
    if has_steps and "task.epochs" not in fixed and "epochs" in config.task:
        config.task.epochs = 0.0
    has_steps |= not config.task.get("epochs")
    if has_steps and (stops_of(config) != stops_of(before) or "task.warmup" in fixed):
        follow_steps(config, before, fixed)
    follow_cadence(config, fixed, has_steps)


def stops_of(config: ConfigDict) -> list[int]:
    """Returns the step after the last one of each phase, after 0. A file may have steps=0, to be overridden."""
    return [0, *accumulate(max(1, config.phases[name].steps) for name in config.phase_order)]


def spans_of_schedules(config: ConfigDict) -> list[tuple[str, int, int]]:
    """Returns the group of keys of each schedule, the number of its first phase, and that after its last one."""
    groups = [("schedule", 0)]
    for number, name in enumerate(config.phase_order):
        if config.phases[name].schedule:
            groups.append((f"phases.{name}", number))
    stops = [number for _, number in groups[1:]] + [len(config.phase_order)]
    return [(*group, stop) for group, stop in zip(groups, stops, strict=True)]


STEEP = 5e-4  # the highest peak rate that a short warm-up leaves as it is


def follow_steps(config: ConfigDict, before: ConfigDict, fixed: set[str]) -> None:
    """Adapts the schedule, the reports and the checkpoints to other steps of the phases than those `before`.

    The warm-up takes at most a third of them, or `task.warmup`, or, unless that is overridden, the share that it had if
    that is larger. A peak rate above STEEP falls with the square root of the warm-up: after 100 steps of warm-up
    instead of 1,000, `translate` with 300 steps of 16 rows is at 4.55 nats a token with 1.6e-3, and stays at 5.72 with
    its 5e-3. Each decay begins at the same share of the same phase, and the warm-up of a phase ends at it, unless that
    is later. A shorter run has at least ten reports. The checkpoints that are averaged are of the same share of the
    steps.
    """
    schedule = config.schedule
    checkpoint = config.checkpoint
    stops = stops_of(before), stops_of(config)
    old_total, total = (each[-1] for each in stops)
    if "schedule.warmup" not in fixed:
        warmup = before.schedule.warmup
        longest = config.task.get("warmup", 1 / 3)
        most = total
        if "task.warmup" not in fixed:
            most = warmup
            if longest < warmup / old_total < 1:
                longest = warmup / old_total
        schedule.warmup = min(most, round(longest * total))
        rate = config.optimizer.learning_rate
        is_shorter = schedule.warmup < warmup < old_total
        if is_shorter and schedule.name == "inverse_sqrt" and not rate:
            rate = (max(1, config.model.width) * warmup) ** -0.5  # the width is checked later
        if is_shorter and rate > 0 and "optimizer.learning_rate" not in fixed:
            lower = max(rate * math.sqrt(schedule.warmup / warmup), min(rate, STEEP))
            config.optimizer.learning_rate = float(f"{lower:.3g}")
            for name, phase in config.phases.items():
                if f"phases.{name}.learning_rate" not in fixed:
                    phase.learning_rate = float(f"{phase.learning_rate * lower / rate:.3g}")
    for group, first, stop in spans_of_schedules(config):
        keys = value_of(config, group)
        if f"{group}.decay" not in fixed and keys.decay:
            begin = stops[0][stop] - keys.decay
            keys.decay = stops[1][stop] - round(np.interp(begin, *stops))
        if group != "schedule" and f"{group}.warmup" not in fixed and keys.warmup:
            end = round(np.interp(stops[0][first] + keys.warmup, *stops))
            keys.warmup = min(keys.warmup, end - stops[1][first])
    # A longer run keeps its reports, unless the steps before were too few for one: others were to decide them.
    if "log.every" not in fixed and not total > old_total >= config.log.every:
        config.log.every = min(config.log.every, max(1, total // 10))
    if checkpoint.average > 1 and "checkpoint.every" not in fixed:
        every = checkpoint.every * total // old_total
        checkpoint.every = min(checkpoint.every, max(1, every))


def follow_cadence(config: ConfigDict, fixed: set[str], has_steps: bool) -> None:
    """Adapts the steps between reports, checkpoints and evaluations to each other and to `checkpoint.average`.

    has_steps: whether the steps of the run are known. Then as many checkpoints as are averaged are left at its end.
    """
    log, checkpoint, evaluate = config.log, config.checkpoint, config.evaluate
    if evaluate.patience and "checkpoint.average" not in fixed:
        checkpoint.average = 1
    if "checkpoint.keep" not in fixed:
        checkpoint.keep = max(checkpoint.keep, checkpoint.average)
    evaluations = 0
    if evaluate.patience and "evaluate.every" in fixed:
        evaluations = evaluate.every
    if "checkpoint.every" in fixed:
        if "log.every" not in fixed:
            log.every = fit(log.every, divides=checkpoint.every)
    else:
        longest = checkpoint.every
        if has_steps and checkpoint.average > 1:
            longest = min(longest, max(1, stops_of(config)[-1] // checkpoint.average))
        if "log.every" not in fixed:
            log.every = fit(min(log.every, longest), divides=evaluations)
        checkpoint.every = fit(longest, log.every, evaluations)
    if evaluate.patience and "evaluate.every" not in fixed:
        evaluate.every = fit(evaluate.every, checkpoint.every)
    if has_steps and "checkpoint.average" not in fixed:
        checkpoint.average = min(checkpoint.average, kept_checkpoints(config))


def kept_checkpoints(config: ConfigDict) -> int:
    """Returns the number of checkpoints that are left at the end of a run."""
    keys = config.checkpoint
    stops = stops_of(config)
    saved = sorted({*range(keys.every, stops[-1], keys.every), *stops[1:]})
    kept = set(saved[-keys.keep :])
    if keys.keep_every:
        kept |= {step for step in saved if step % keys.keep_every == 0}
    return len(kept)


def fit(longest: int, multiple: int = 1, divides: int = 0) -> int:
    """Returns the largest number up to `longest` that is a multiple of `multiple` and divides `divides`; without one of
    more than an eleventh of `longest`, `divides`, or without that `multiple`."""
    numbers = range(longest - longest % multiple, longest // 11, -multiple)
    return next((number for number in numbers if divides % number == 0), divides or multiple)
