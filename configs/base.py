"""Every key with its default, its unit and its meaning. All other configs start from this `get_config()`.

A config is Python that is executed. No config can add a key or change the type of a value.
"""

from ml_collections import ConfigDict


def phase(
    steps: int, length: int, batch: int, max_predictions: int, max_packed: int = 1
) -> ConfigDict:
    """Returns the keys of a phase, a part of a run whose batches have one shape."""
    return ConfigDict(
        dict(
            steps=steps,  # optimizer steps
            length=length,  # tokens per row, with [CLS], [SEP] and padding
            batch=batch,  # rows per step, over all hosts and micro-batches
            max_predictions=max_predictions,  # masked positions per row, at most
            max_packed=max_packed,  # sentence pairs packed in a row, at most; 1: as in BERT
        )
    )


def get_config() -> ConfigDict:
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
    # whether to verify the store's SHA-256 checksums at every start, which takes about a second per GB
    config.verify_store = True
    # a run, an exported directory, or a published checkpoint whose encoder the run starts from; '': random weights
    config.init_from = ""
    # directory of the cache of compiled programs. '': no cache. auto: $XDG_CACHE_HOME/bert_jax, or ~/.cache/bert_jax.
    # The environment variable JAX_COMPILATION_CACHE_DIR takes precedence
    config.compilation_cache = "auto"

    config.corpus = ConfigDict()
    # text to train on: pydocs (docstrings of Python), tfds:NAME (TensorFlow Datasets), a file, a directory or a glob;
    # several are separated by commas. In a path, write ? for a comma
    config.corpus.source = "pydocs"
    # format of text files: lines (blank lines separate documents), files (one document per file), wiki (output of
    # WikiExtractor), jsonl (one JSON object per line). One for all sources, or one per source, separated by commas
    config.corpus.format = "lines"
    config.corpus.field = "text"  # field with the text, in JSON lines and TensorFlow Datasets
    # how text is split into sentences: lines (one per line), rules (at punctuation), auto (lines if the format is
    # lines, rules otherwise and for pydocs)
    config.corpus.sentences = "auto"
    config.corpus.heldout = 0.01  # share of documents held out for evaluation; at least two
    config.corpus.workers = 0  # processes that tokenize; 0: one per core

    config.filter = ConfigDict()  # what `prepare` drops; its report counts what was dropped
    config.filter.duplicates = True  # drop documents whose text equals that of an earlier one
    config.filter.document_characters = 0  # drop documents with fewer characters
    config.filter.line_stops = False  # drop lines that do not end with a sentence's punctuation

    config.tokenizer = ConfigDict()
    config.tokenizer.kind = "wordpiece"  # what to train: wordpiece, unigram, bpe or byte_bpe
    config.tokenizer.size = 30522  # vocabulary size to train, in pieces
    # vocab.txt, .model or tokenizer.json to use instead of a trained one; `kind` and `size` are then ignored. '': train
    # one
    config.tokenizer.path = ""
    # whether to lowercase; wordpiece then strips accents, too. Ignored for a .model or tokenizer.json
    config.tokenizer.lowercase = True
    config.tokenizer.sample = 50  # megabytes of text to train the vocabulary on, at most

    config.model = ConfigDict()
    config.model.name = "bert"  # a file in bert_jax/models
    config.model.layers = 12  # Transformer blocks
    config.model.width = 768  # size of the hidden states; a multiple of `heads`
    config.model.heads = 12  # attention heads
    config.model.feed_forward = 0  # size of the feed-forward layers; 0: four times the width
    config.model.max_length = 512  # number of position embeddings; no row may be longer
    config.model.type_vocabulary = 2  # number of segment embeddings
    # dropout rate on embeddings, attention output and feed-forward output
    config.model.dropout = 0.1
    # implementation of attention; the results are equal but for rounding.
    # xla: any device and config. fused: TPUs from v5 on, lengths that are multiples of 128 up to 512, some head sizes.
    # splash: TPUs from v4 on, lengths that are multiples of 128, attention_dropout 0.
    # cudnn: NVIDIA GPUs from Ampere on, bfloat16, max_packed 1, attention_dropout 0.
    # auto: on TPUs the fastest that supports the config, by the compiler's estimate; on GPUs cudnn if it supports the
    # config; otherwise xla
    config.model.attention = "auto"
    config.model.attention_dropout = 0.1  # dropout rate on attention probabilities
    config.model.activation = "gelu_tanh"  # gelu_tanh (as in the original code), gelu or relu
    config.model.epsilon = 1e-12  # epsilon of layer norms
    config.model.initializer = 0.02  # standard deviation of the truncated normal initializer

    config.objective = ConfigDict()
    config.objective.name = "mlm"  # a file in bert_jax/objectives
    # nsp: next sentence or random; sop: sentences in order or swapped; none: one segment per row
    config.objective.pair_task = "nsp"

    config.task = ConfigDict()
    config.task.name = "sentence_pairs"  # a file in bert_jax/tasks
    config.task.masking = "token"  # what is masked at once: token or whole_word
    config.task.mask_rate = 0.15  # share of tokens that are predicted
    config.task.mask_share = 0.8  # share of predicted tokens that are replaced by [MASK]
    config.task.random_share = 0.1  # share replaced by a random token; the rest is unchanged
    # share of documents, drawn anew in each epoch, whose rows get a random, shorter target length
    config.task.short_rate = 0.1

    config.optimizer = ConfigDict()
    config.optimizer.name = "adam"  # adam (with decoupled weight decay: AdamW) or adafactor
    config.optimizer.learning_rate = 1e-4  # peak learning rate, see `schedule`
    config.optimizer.beta1 = 0.9  # decay rate of Adam's first moment
    config.optimizer.beta2 = 0.999  # decay rate of Adam's second moment
    config.optimizer.epsilon = 1e-6  # epsilon of Adam
    # whether to correct the bias of Adam's moments; the original code does not
    config.optimizer.bias_correction = False
    # data type of Adam's first moment: float32, or bfloat16 for half of its memory
    config.optimizer.moment_dtype = "float32"
    # decoupled weight decay, multiplied by the learning rate; not applied to biases and layer norms. 0: none
    config.optimizer.weight_decay = 0.01
    config.optimizer.clip = 1.0  # maximum global norm of the gradient; 0: no clipping

    config.schedule = ConfigDict()
    # learning rate after the warm-up: linear or cosine (to 0 at the last step), inverse_sqrt or constant
    config.schedule.name = "linear"
    config.schedule.warmup = 10000  # steps of linear warm-up; 0: none

    config.phase_order = ("main",)  # names of the phases, in the order they run
    config.phases = ConfigDict(
        dict(main=phase(steps=1000, length=128, batch=256, max_predictions=20))
    )

    config.mesh = ConfigDict()
    # number of devices over which rows are split; -1: number of devices / (fsdp * tensor)
    config.mesh.data = -1
    config.mesh.fsdp = 1  # devices that split the rows, the parameters and the optimizer state
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
    # rows that a device computes at once, at most. The number of micro-batches of each phase is computed from it and
    # the mesh, so one command suits slices of any size. 0: use micro_batches
    config.train.rows_per_device = 0
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

    config.profile = ConfigDict()
    config.profile.steps = ()  # (A, B): trace the steps A to B - 1, to traces/ in the workdir; (): none

    config.evaluate = ConfigDict()
    config.evaluate.every = 1000  # steps between evaluations; 0: only at the end
    config.evaluate.rows = 4096  # held-out rows, at most
    config.evaluate.batch = 0  # rows computed at once; 0: as many as a micro-batch of the phase

    config.checkpoint = ConfigDict()
    config.checkpoint.every = 1000  # steps between checkpoints; a multiple of log.every
    config.checkpoint.keep = 3  # number of newest checkpoints to keep
    config.checkpoint.keep_every = 0  # also keep those at multiples of this step; 0: none
    # steps between comparisons of the copies of parameters that several devices hold; 0: only at each save
    config.checkpoint.compare = 100

    # normal held-out masked-LM loss of exactly this config, in nats: step, lowest, highest, next step, ... A config
    # file sets it by EXPECTED_LOSS; the log prints it beside the measured loss. (): unknown
    config.expected_loss = ()

    config.lock()
    return config
