"""Finnish ModernBERT-large (github.com/rakseli/finnish-modernberts, arXiv:2511.09213): 400 billion tokens in one run.

    bert-jax pretrain --config docs/recipes/groups/finnish_modernbert.py --workdir runs/finnish

Rows grow to 8,192 tokens in six lengths, multiples of 128. Not here: pieces of 2 to 24 blanks.
"""

from bert_jax.configs import base

# fmt: off
# How often each file of text/ is seen: good text, all of it (with code and translations), and long documents.
GOOD = dict(europarlfi=6, nlfclfi=6, lonnrot=6, wikifi=30, ylefi=30, europarlsv=5, fstc=5, nlfcsv=5, wikisv=30,
            ylesv=30, saamiweb=30, british=1, europarlen=5, fineweb=0.5, pes2o=0.13, abstracts=1, pubmed=0.1,
            wikien=9, smollm=30)
ALL = dict(ccfi=4, culturaxfi=3.7, hplt2fi=3.7, reddit=6, suomi24=6, ylilauta=5, culturaxsv=1.09, hplt2sv=1.05,
           salt=30, glot500=30, culturaxla=30, starcoder=0.83, instructions=1, enfi=0.62, fien=0.62, ensv=0.57,
           sven=0.58, fisv=5.7, svfi=5.7, ensme=30, fisme=30, smeen=30, smefi=30, smesv=30, svsme=30, **GOOD)
# fmt: on
LONG, STEPS = "long", 360_000


def mixture(factors: dict) -> str:
    return ",".join(f"{name}:{factors.get(name, 0)}" for name in [*ALL, LONG])


def get_config():
    config = base.get_config(model="modernbert", task="packed_documents")
    config.store = "stores/finnish"
    config.corpus.source = ",".join(f"{name}=text/{name}.jsonl" for name in [*ALL, LONG])
    config.corpus.format = "jsonl"
    config.tokenizer.update(kind="byte_bpe", size=128_000, lowercase=False)
    config.tokenizer.update(normalization="nfc", special="mask,cls,pad,unk,sep")
    config.model.update(layers=28, width=1024, heads=16, feed_forward=2624, dropout=0.0)
    config.task.update(mask_rate=0.3, mixture=mixture(ALL))
    config.optimizer.update(beta2=0.98, weight_decay=1e-6, learning_rate=3e-4, bias_correction=True)
    config.schedule.update(name="constant", warmup=STEPS // 100)
    short = dict(length=1024, max_predictions=320, rotary_base=10_000.0)
    sizes = range(192, 1152, 192)
    phases = {f"grow{rows}": base.phase(2_088, batch=rows, **short) for rows in sizes}
    phases["main"] = base.phase(STEPS * 85 // 100 - 5 * 2_088, batch=1152, **short)
    long = dict(batch=144, rotary_base=1e6, mixture=mixture({LONG: 1}))
    for length in (2304, 3456, 4608, 5888, 7040, 8192):
        long["max_predictions"] = length * 5 // 16
        steps = STEPS * 9 // 700 if length == 8192 else STEPS * 3 // 140  # in all 12 %
        phases[f"long{length}"] = base.phase(steps, length, **long)
    phases["decay"] = base.phase(10_800, 8192, **long)
    phases["decay"].mixture = mixture(GOOD)
    phases["long2304"].update(schedule="sqrt", learning_rate=5e-5, decay=10_800)
    config.phase_order, config.phases = tuple(phases), base.ConfigDict(phases)
    return config
