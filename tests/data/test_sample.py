"""The vocabulary's text is spread over everything, and no more than asked for."""

from bert_jax import config as configs
from bert_jax.data import corpus
from bert_jax.data.preparation import cut, sample


def cut_into(tmp_path, sources: list[list[str]]) -> list[cut.Texts]:
    """Sources of one-document blocks."""
    names = []
    for number, texts in enumerate(sources):
        for text in texts:
            path = tmp_path / str(number) / text.split()[1]
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        names.append(str(path.parent))
    keys = f"corpus.source={','.join(names)}", "corpus.format=files"
    found, problems = cut.cut_all(corpus.open_sources(configs.load("demo", keys)), tmp_path, map)
    assert not problems
    return found


def test_evenly_over_all_sources(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "BLOCK", 10)
    texts = [f"document {number:03d}" for number in range(1000)]
    sources = cut_into(tmp_path, [texts[:300], texts[300:]])
    taken = [sample.take("unigram", part) for part in sample.sample(sources, 3000)]
    numbers = [int(text.split()[1]) for (text,) in taken]
    assert numbers == list(range(0, 1000, numbers[1])) and 100 < len(numbers) <= 3000 // 12


def test_all_of_a_small_corpus_and_one_block_of_a_large_one():
    assert sample.choose([12] * 1000, 10**9) == list(range(1000))
    assert sample.choose([12] * 1000, 1) == [0]
