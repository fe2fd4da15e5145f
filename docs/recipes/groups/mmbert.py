"""mmBERT-base (github.com/JHU-CLSP/mmBERT, arXiv:2509.06888): languages and lengths are added along one run.

    bert-jax pretrain --config docs/recipes/groups/mmbert.py --workdir runs/mmbert

Masks and rows are those of the paper. The text of a language is in MDS shards in text/LANGUAGE; `rest` stands for their
1,723 languages of the end. Not here: the mean of several ends by TIES.
"""

from bert_jax.configs import base

FIRST = """eng rus cmn code spa deu fra jpn ita por nld pol ind kor tur fas ces ron vie arb nob hun dan swe tha ukr ell
fin bul slk hrv hin lit heb slv ekk ben zsm lvs azj urd tam kaz afr fil mkd mar npi kat glg tel mal mya guj khk khm swh
sin gle pbt xho"""
LATER = """bos cat srp als uzn ary isl bel anp gmh lat eus kan ars pan hye nno bew cym arz kir tgk rmy som ory tat gsw
mlt nap hif ckb bod epo kmr snd lao ltz amh gla plt pcm yue jav hat mww fry mri ceb nrm"""
BILLION = 10**9


def without(power: float, *names: str) -> str:
    return ",".join([f"tokens^{power}", *(f"{name}:0" for name in names)])


def get_config():
    config = base.get_config(model="modernbert", task="packed_documents")
    config.store = "stores/mmbert"
    later = LATER.split()
    names = [*FIRST.split(), *later, "rest"]
    config.corpus.source = ",".join(f"{name}=text/{name}" for name in names)
    config.corpus.format = "mds"
    config.tokenizer.path = "gemma-2/tokenizer.json"
    config.task.update(mask_rate=0.3, heldout_mask_rate=0.15)
    config.optimizer.update(name="stable_adamw", learning_rate=8e-4, beta2=0.95, epsilon=1e-8)
    config.optimizer.update(weight_decay=8e-5, clip=0.0)
    config.schedule.update(name="constant", warmup=3 * BILLION // 1024 // 192)
    short = dict(length=1024, max_predictions=320, rotary_base=10_000.0)
    short["mixture"] = without(0.7, *later, "rest")
    long = dict(length=8192, batch=576, rotary_base=160_000.0, local_rotary_base=160_000.0)
    sizes = (192, 384, 768, 1536, 3072)
    part = 60 * BILLION // len(sizes) // 1024
    phases = {f"grow{size}": base.phase(part // size, batch=size, **short) for size in sizes}
    phases["base"] = base.phase(2240 * BILLION // 1024 // 4608, batch=4608, **short)
    row = 8192 * 576
    later = dict(mask_rate=0.15, max_predictions=1300, mixture=without(0.5, "rest"))
    phases["extend"] = base.phase(600 * BILLION // row, **long, **later)
    steps = 100 * BILLION // row
    last = dict(mask_rate=0.05, max_predictions=460, mixture=without(0.3), schedule="sqrt")
    phases["decay"] = base.phase(steps, decay=steps, end=0.02, **long, **last)
    config.phase_order, config.phases = tuple(phases), base.ConfigDict(phases)
    return config
