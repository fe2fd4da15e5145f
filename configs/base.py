"""Every key once: its default, its unit, and what it means. Other configs start from `get_config()`.

A config is executed Python. Keys that are not here cannot be set, and values keep the type they have here.
"""

from ml_collections import ConfigDict


def phase(
    steps: int, length: int, batch: int, max_predictions: int, max_packed: int = 1
) -> ConfigDict:
    """One part of a run: `steps` optimizer steps of `batch` rows of `length` tokens."""
    return ConfigDict(
        dict(
            steps=steps,  # optimizer steps
            length=length,  # tokens a row, with [CLS] and [SEP]
            batch=batch,  # rows a step, over all hosts and micro-batches
            max_predictions=max_predictions,  # masked positions a row, at most
            max_packed=max_packed,  # pairs packed in a row, at most; 1 is BERT's one a row
        )
    )


def get_config() -> ConfigDict:
    config = ConfigDict()
    config.seed = 12345  # everything random is a function of this and the step
    config.dtype = "auto"  # of matrix products: float32, bfloat16; auto is bfloat16 on TPU and GPU
    config.gradient_dtype = "float32"  # of gradients, summed over rows and devices
    # Directory of the token store, which prepare writes, or the address of a copy, as gs://bucket/store
    config.store = "stores/default"
    # Directory or address of saved batches (inspect --save) to read instead of the store
    config.batches = ""
    config.verify_store = True  # compare the store with its SHA-256 at every start, a second a GB
    # Directory of compiled programs; '' for none; auto is bert_jax in $XDG_CACHE_HOME, or in ~/.cache. JAX's own
    # variable JAX_COMPILATION_CACHE_DIR comes first.
    config.compilation_cache = "auto"

    config.corpus = ConfigDict()
    # pydocs, tfds:NAME, files, directories, globs; by commas (for a comma in a path write ?)
    config.corpus.source = "pydocs"
    # lines (blank lines part documents), files (one document each), wiki (WikiExtractor), jsonl;
    # one for all sources, or as many as there are sources, by commas
    config.corpus.format = "lines"
    config.corpus.field = "text"  # of JSON lines and of TensorFlow Datasets: where the text is
    config.corpus.sentences = "auto"  # lines: one a line; rules: at stops; auto
    config.corpus.heldout = 0.01  # share of the documents kept for evaluation (at least two)
    config.corpus.workers = 0  # processes that tokenize; 0 is one a core

    config.filter = ConfigDict()  # what prepare leaves out; its report counts it
    config.filter.duplicates = True  # documents whose text is that of an earlier one
    config.filter.document_characters = 0  # documents with fewer
    config.filter.line_stops = False  # lines that do not end a sentence

    config.tokenizer = ConfigDict()
    config.tokenizer.kind = "wordpiece"  # what is trained: wordpiece, unigram, bpe, byte_bpe
    config.tokenizer.size = 30522  # pieces to train; ignored, as is `kind`, where `path` is given
    config.tokenizer.path = ""  # a vocab.txt, .model or tokenizer.json to use instead of training
    config.tokenizer.lowercase = True  # wordpiece strips accents too; .model and .json know theirs
    config.tokenizer.sample = 50  # megabytes of text that a vocabulary is trained on, at most

    config.model = ConfigDict()
    config.model.name = "bert"  # a file of bert_jax/models
    config.model.layers = 12
    config.model.width = 768
    config.model.heads = 12
    config.model.feed_forward = 0  # width of the hidden layer; 0 is four times the width
    config.model.max_length = 512  # longest row
    config.model.type_vocabulary = 2
    config.model.dropout = 0.1  # on embeddings, attention output and feed-forward output
    # How attention is computed, the same but for rounding: xla can do all; fused and splash want TPUs and lengths that
    # are multiples of 128, fused up to 512; cudnn wants GPUs, bfloat16 and one pair a row; splash and cudnn want no
    # attention dropout; auto: on TPUs the fastest that can, by the compiler's count; on GPUs cudnn where it can
    config.model.attention = "auto"
    config.model.attention_dropout = 0.1  # on attention probabilities
    config.model.activation = "gelu_tanh"  # gelu_tanh (the original), gelu, relu
    config.model.epsilon = 1e-12  # of layer norms
    config.model.initializer = 0.02  # standard deviation of the truncated normal

    config.objective = ConfigDict()
    config.objective.name = "mlm"  # a file of bert_jax/objectives
    config.objective.pair_task = (
        "nsp"  # nsp: next sentence or a random one; sop: in order or swapped; none: one segment
    )
    config.objective.masking = "token"  # token, or whole_word
    config.objective.mask_rate = 0.15  # share of the tokens that are predicted
    config.objective.mask_share = 0.8  # of those, shown as [MASK]
    config.objective.random_share = 0.1  # of those, shown as a random token; the rest is kept
    config.objective.short_rate = (
        0.1  # share of documents and epochs with a short random target length
    )

    config.optimizer = ConfigDict()
    config.optimizer.name = "adam"  # adam (decoupled weight decay), adafactor
    config.optimizer.learning_rate = 1e-4  # the peak
    config.optimizer.beta1 = 0.9
    config.optimizer.beta2 = 0.999
    config.optimizer.epsilon = 1e-6
    config.optimizer.bias_correction = False  # of Adam; the original has none
    config.optimizer.moment_dtype = (
        "float32"  # in which Adam's first moment is kept; bfloat16: half
    )
    config.optimizer.weight_decay = 0.01  # times the learning rate; not on biases and layer norms
    config.optimizer.clip = 1.0  # global norm of the gradient, at most; 0 for no clipping

    config.schedule = ConfigDict()
    config.schedule.name = "linear"  # after the warm-up: linear, cosine, inverse_sqrt, constant
    config.schedule.warmup = 10000  # steps of linear warm-up

    config.phase_order = ("main",)  # the keys of `phases`, in the order they run
    config.phases = ConfigDict(
        dict(main=phase(steps=1000, length=128, batch=256, max_predictions=20))
    )

    config.mesh = ConfigDict()
    config.mesh.data = -1  # devices over which rows are split; -1 is all that the other axes leave
    config.mesh.fsdp = 1  # devices over which rows, parameters and optimizer state are split
    config.mesh.tensor = 1  # devices over which heads, hidden layers and the vocabulary are split

    # Several processes, one a host: where they meet. Not part of what is trained, so never saved. A
    # Cloud TPU slice and SLURM are found without any of it.
    config.distributed = ConfigDict()
    config.distributed.coordinator = ""  # HOST:PORT of process 0; '' is JAX_COORDINATOR_ADDRESS
    config.distributed.processes = 0  # of all hosts; 0 is JAX_NUM_PROCESSES; 1 never looks further
    config.distributed.process = -1  # number of this one, from 0; -1 is JAX_PROCESS_ID
    config.distributed.timeout = 300  # seconds to wait for the others
    config.distributed.heartbeat = 100  # seconds after which a silent process ends all of them

    # Seconds (0: no deadline) after which a process that is not done is killed, its stacks on stderr: it is stuck, or
    # waits for one that is. Preparing a store has none.
    config.timeouts = ConfigDict()
    config.timeouts.compile = 3600  # opening, hashing, compiling; a phase's first step
    config.timeouts.step = 600  # any other step, with the wait for its batch and its report
    config.timeouts.save = 3600  # restoring; waiting for what is being saved
    config.timeouts.evaluate = 3600

    config.train = ConfigDict()
    config.train.micro_batches = 1  # parts of a batch that are computed one after the other
    # Rows that a device computes at once, at most: the micro-batches of every phase follow from it and the mesh, so
    # that one command suits slices of any size. 0: micro_batches says
    config.train.rows_per_device = 0
    # Memory for time, the same numbers. What the backward pass computes again: none; attention (its probabilities,
    # most of the memory of long rows, which model.attention=xla alone keeps); full (whole blocks, a third more work)
    config.train.remat = "none"

    # A step whose loss or gradient is not finite is never applied, see README
    config.guard = ConfigDict()
    config.guard.stop_after = 10  # such steps in a row after which the run stops
    config.guard.window = (
        100  # steps, about, whose losses make the band; before as many nothing is a spike
    )
    # A loss is a spike, and logged, as many mean deviations above the mean of the band; 0: none is
    config.guard.spike = 8.0
    config.guard.skip_spikes = False  # do not apply them either

    config.log = ConfigDict()
    config.log.every = 100  # steps; also before each evaluation

    config.profile = ConfigDict()
    config.profile.steps = ()  # (A, B): traces of the steps A to B - 1 go to traces/ of the workdir

    config.evaluate = ConfigDict()
    config.evaluate.every = 1000  # steps; 0 is never until the end
    config.evaluate.rows = 4096  # held-out rows, at most
    config.evaluate.batch = 0  # rows at a time; 0 is those of the phase's micro-batch

    config.checkpoint = ConfigDict()
    config.checkpoint.every = 1000  # steps; a multiple of log.every
    config.checkpoint.keep = 3  # newest ones kept
    config.checkpoint.keep_every = 0  # and every one at a multiple of this step; 0 for none
    # Steps after which the copies of parameters that several devices hold are compared; every save does it, too
    config.checkpoint.compare = 100

    # What is normal for this very config: step, least and largest held-out masked-LM loss in nats,
    # and so on. A file's own EXPECTED_LOSS; the log prints it.
    config.expected_loss = ()

    config.lock()
    return config
