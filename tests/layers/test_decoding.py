"""Decoding from a model whose logits are a random function of the prefix: against brute force, tf-models-official, and
rules written anew in NumPy."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from kits import decoding as kit
from kits import programs
from kits.paths import ROOT
from kits.small import mesh_keys, small_config
from scipy import stats

from bert_jax.layers import decoding
from bert_jax.layers.decoding import Cut, Search, Stop
from bert_jax.parallel import constraints
from bert_jax.parallel import mesh as meshes

V, T, END, BEGIN = 5, 5, 1, 0
UNCUT = Cut()
GOLDEN = ROOT / "tests/golden/beam_search.npz"


@partial(jax.jit, static_argnames=("search", "length", "vocabulary", "padded"))
def beam(rows, first, limits=None, *, search, length=T, vocabulary=V, padded=None):
    step = kit.step_of(vocabulary, padded)
    return decoding.beam(step, kit.start(rows), first, Stop(END, length, limits), search)


@partial(jax.jit, static_argnames=("length", "vocabulary"))
def greedy(rows, first, limits=None, *, length=T, vocabulary=V):
    stop = Stop(END, length, limits)
    return decoding.greedy(kit.step_of(vocabulary), kit.start(rows), first, stop)


@partial(jax.jit, static_argnames=("cut", "length", "vocabulary"))
def sample(rows, first, keys, *, cut=UNCUT, length=T, vocabulary=V):
    stop = Stop(END, length)
    choose = partial(decoding.draw, keys=keys, cut=cut)
    return decoding.follow(kit.step_of(vocabulary), kit.start(rows), first, stop, choose)


def inputs(count):
    rows = jnp.arange(count, dtype=jnp.int32)
    return rows, jnp.full(count, BEGIN, jnp.int32)


def assert_same(pairs, expected):
    assert [tokens for _, tokens in pairs] == [tokens for _, tokens in expected]
    scores = [score for score, _ in pairs]
    np.testing.assert_allclose(scores, [score for score, _ in expected], rtol=0, atol=1e-5)


def test_greedy_takes_the_argmax_until_the_end_or_the_limit():
    rows, first = inputs(64)
    limits = rows % 8
    found = greedy(rows, first, limits)
    lengths = set()
    for row in range(64):
        expected = kit.argmax_path(row, BEGIN, END, V, min(T, row % 8))
        lengths.add(len(expected))
        tokens = np.asarray(found.tokens[row, 0]).tolist()
        assert tokens == expected + [0] * (T - len(expected))
        assert found.lengths[row, 0] == len(expected)
        total = 0.0
        for number, token in enumerate(expected):
            total += kit.next_log_probs(row, [BEGIN, *expected[:number]], V)[token]
        np.testing.assert_allclose(found.scores[row, 0], total, atol=1e-5)
    assert lengths == set(range(T + 1))
    one = beam(rows, first, limits, search=Search(1, 0.0, "transformers"))
    is_nonempty = np.asarray(limits) > 0
    np.testing.assert_array_equal(one.tokens, found.tokens)
    np.testing.assert_allclose(one.scores[is_nonempty], found.scores[is_nonempty], atol=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
@pytest.mark.parametrize("rule", decoding.RULES)
def test_a_wide_beam_is_brute_force(rule, alpha):
    """All 1,280 continuations of the last step are among the 2 N of gnmt and the N of transformers that it looks at;
    they finish 341 and 1,365 hypotheses."""
    widths = {"gnmt": 640, "transformers": 1365}
    rows, first = inputs(3)
    limits = jnp.array([T, 3, 9])
    search = Search(widths[rule], alpha, rule)
    found = beam(rows, first, limits, search=search, padded=8)
    for row, limit in enumerate([T, 3, T]):
        paths = [*kit.all_paths(row, BEGIN, END, V, limit)]
        assert_same(kit.hypotheses(found, row), kit.best_paths(paths, alpha, rule))

        def score(path):
            return path[1] / decoding.length_penalty(np.int32(len(path[0])), search)

        _, _, is_ended = max(paths, key=score)
        assert found.is_cut[row] != is_ended


@pytest.mark.parametrize("rule", decoding.RULES)
def test_rows_that_end_at_their_limit_are_marked(rule):
    """Also by a search that has worse finished hypotheses; most end by themselves with a later limit."""
    rows, first = inputs(32)
    cut = greedy(rows, first, length=4)
    for tokens, length, is_cut in zip(cut.tokens, cut.lengths, cut.is_cut, strict=True):
        assert is_cut == (END not in tokens[0, : length[0]])
    search = Search(3, 0.6, rule)
    short, long = (beam(rows, first, search=search, length=length) for length in (4, 40))
    assert 4 < short.is_cut.sum() < 28 and long.is_cut.sum() < short.is_cut.sum()
    has_end = (np.asarray(short.tokens[:, 0]) == END).any(axis=1)
    assert short.is_cut[~has_end].all()
    assert (rule == "transformers") != short.is_cut[has_end].any()


@pytest.mark.parametrize("case", range(4))
def test_beams_are_those_of_tf_models_official(case):
    """golden/make_beam_search.py wrote them. The original may end with fewer hypotheses than there are beams."""
    with np.load(GOLDEN) as file:
        golden = {name: file[name] for name in ("tokens", "scores")}
        length, alpha = int(file["lengths"][case]), float(file["alphas"][case])
    tokens, scores = golden["tokens"][case], golden["scores"][case]
    search = Search(tokens.shape[1], alpha, "gnmt")
    found = beam(*inputs(len(tokens)), search=search, length=length, vocabulary=11, padded=16)
    is_used = np.isfinite(scores)
    assert is_used.mean() > 0.5
    np.testing.assert_array_equal(found.tokens[is_used], tokens[is_used][:, :length])
    np.testing.assert_allclose(found.scores[is_used], scores[is_used], rtol=0, atol=1e-5)
    has_end = (tokens == END).any(axis=(1, 2))
    assert has_end.all() == (length > 3)


@pytest.mark.parametrize("rule", decoding.RULES)
def test_a_search_ends_when_no_row_can_improve(rule):
    steps = []

    def step(tokens, cache):
        jax.debug.callback(lambda position: steps.append(int(position)), cache["positions"][0])
        return kit.step_of(V)(tokens, cache)

    @jax.jit
    def search(limits):
        rows, first = inputs(8)
        stop = Stop(END, 30, limits)
        return decoding.beam(step, kit.start(rows), first, stop, Search(2, 0.0, rule))

    def count_steps(limits):
        steps.clear()
        jax.block_until_ready(search(jnp.array(limits, jnp.int32)))
        jax.effects_barrier()
        return len(steps)

    assert count_steps([0] * 8) == 0
    assert count_steps([3] * 8) == 3
    turns = count_steps([30] * 8)
    assert 3 < turns < 30
    assert max(count_steps(30 * np.eye(8, dtype=int)[row]) for row in range(8)) == turns


def test_samples_have_the_distribution_of_the_model():
    """100,000 draws of two tokens; chi-square of the pairs, below its 99.9 % quantile."""
    count, table = 100_000, {}
    keys = jnp.arange(count, dtype=jnp.uint32)
    row = jnp.full(count, 7, jnp.int32)
    found = sample(row, jnp.full(count, BEGIN), keys, length=2)
    drawn = np.asarray(found.tokens[:, 0])
    for tokens, total, _ in kit.all_paths(7, BEGIN, END, V, 2):
        table[(*tokens, 0)[:2]] = total
    observed = np.array([(drawn == pair).all(axis=1).sum() for pair in table])
    assert observed.sum() == count
    expected = count * np.exp(list(table.values()))
    is_common = expected >= 5
    cells = [np.append(x[is_common], x[~is_common].sum()) for x in (observed, expected)]
    cells = np.array(cells)[:, cells[1] > 0]
    chi_square = ((cells[0] - cells[1]) ** 2 / cells[1]).sum()
    print(chi_square, cells.shape[1] - 1)
    assert chi_square < stats.chi2.ppf(0.999, cells.shape[1] - 1)
    scores = np.array([table[tuple(pair)] for pair in drawn[:500].tolist()])
    np.testing.assert_allclose(found.scores[:500, 0], scores, atol=1e-5)


def test_noise_is_finite_and_keeps_its_order():
    bits = np.uint32([0, 1, 2, 3, 2**31, 2**32 - 1000, 2**32 - 1])
    noise = np.asarray(decoding.gumbel(bits))
    assert np.isfinite(noise).all()
    assert (np.diff(noise) < 0).sum() >= 5 and (np.diff(noise) <= 0).all()
    np.testing.assert_allclose(noise[4], -np.log(-np.log(0.5)), rtol=1e-6)


def cut_by_rule(logits, cut: Cut):
    """Returns bool[V]: the tokens that transformers' warpers leave, by their rules, and those that are as likely."""
    logits = logits.astype(np.float64) / cut.temperature
    is_left = np.ones(len(logits), bool)
    if cut.top_k:
        is_left = logits >= np.sort(logits)[::-1][: cut.top_k][-1]
    if cut.top_p < 1:
        weights = np.where(is_left, np.exp(logits), 0)
        total = 0.0
        order = np.argsort(logits, kind="stable")
        for token in order:
            total += weights[token] / weights.sum()
            is_left[token] &= total > 1 - cut.top_p
        is_left[order[-1]] = True
        is_left = logits >= logits[is_left].min()
    return is_left


CUTS = [
    Cut(0.7),
    Cut(top_k=1),
    Cut(top_k=7),
    Cut(top_k=99),
    Cut(top_p=0.9),
    Cut(top_p=1e-3),
    Cut(1.3, 9, 0.6),
]


def random_logits():
    """Returns float32[200, 50]; a tenth of the rows have equal numbers."""
    logits = 3 * np.random.default_rng(0).normal(size=(200, 50)).astype(np.float32)
    logits[::10] = logits[::10].round() + 0.0  # no -0.0
    return logits


@pytest.mark.parametrize("cut", CUTS)
def test_cuts_leave_the_tokens_of_the_rule(cut):
    logits = random_logits()
    found = np.asarray(decoding.cut_logits(logits, cut))
    is_left = found > -np.inf
    for row, expected in zip(is_left, logits, strict=True):
        np.testing.assert_array_equal(row, cut_by_rule(expected, cut))
    np.testing.assert_allclose(found[is_left], (logits / cut.temperature)[is_left], rtol=1e-6)


def test_samples_are_of_the_cut_and_a_function_of_the_key_alone():
    rows, first = inputs(256)
    keys = 7 * jnp.arange(256, dtype=jnp.uint32)
    found = sample(rows, first, keys, length=12)
    part = sample(rows[100:108], first[:8], keys[100:108], length=12)
    jax.tree.map(np.testing.assert_array_equal, part, jax.tree.map(lambda x: x[100:108], found))
    same = sample(jnp.full(256, 3), first, keys, length=12)
    assert len(np.unique(same.tokens[:, 0], axis=0)) > 100
    likeliest = sample(rows, first, keys, cut=Cut(top_k=1))
    np.testing.assert_array_equal(likeliest.tokens, greedy(rows, first).tokens)
    one = sample(rows, first, keys, cut=Cut(top_k=2), length=1)
    seconds = [kit.next_log_probs(n, [BEGIN], V).argsort()[-2:] for n in range(256)]
    drawn = np.asarray(one.tokens[:, 0])
    assert all(token in pair for token, pair in zip(drawn, seconds, strict=True))


DECODERS = {
    "greedy": decoding.greedy,
    "draw": decoding.follow,
    "gnmt": partial(decoding.beam, search=Search(3, 0.6)),
    "transformers": partial(decoding.beam, search=Search(3, 0.6, "transformers")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DECODERS)
def test_eight_devices_decode_what_one_does_and_gather_no_rows(name):
    """The model has a table that is sharded over `fsdp` and `tensor`, as all have; it alone gathers, parts of it."""
    mesh = meshes.make_mesh(small_config(*mesh_keys((2, 2, 2))))
    rows, width, vocabulary, length = 16, 8, 64, 6
    draw = np.random.default_rng(0)
    table = draw.normal(size=(vocabulary, width)).astype(np.float32)
    batch = {
        "rows": np.arange(rows, dtype=np.int32),
        "keys": draw.integers(2**32, size=rows, dtype=np.uint32),
        "limits": draw.integers(3, 9, size=rows).astype(np.int32),
    }

    def outputs(table, batch):
        def step(tokens, cache):
            here = jnp.arange(length) == cache["positions"][:, None]
            words = constraints.lookup(table, tokens[:, None], jnp.float32, jnp.float32)
            memory = jnp.where(here[..., None], words, cache["memory"])
            summed = jnp.tanh((memory * jnp.arange(1, length + 1)[:, None]).sum(axis=1))
            cache = {"positions": cache["positions"] + 1, "memory": memory}
            vectors = constraints.stream(3 * summed)
            return constraints.logits(vectors @ constraints.table(table).T), cache

        cache = {
            "positions": jnp.zeros(rows, jnp.int32),
            "memory": jnp.zeros((rows, length, width)),
        }
        stop = Stop(END, length, batch["limits"])
        arguments = [step, cache, batch["rows"], stop]
        if name == "draw":
            arguments.append(partial(decoding.draw, keys=batch["keys"], cut=Cut(0.9, 20, 0.9)))
        return DECODERS[name](*arguments)._asdict()

    expected = jax.jit(outputs)(table, batch)
    places = NamedSharding(mesh, meshes.TABLE), meshes.rows(mesh)
    with jax.set_mesh(mesh):
        compiled = jax.jit(outputs, in_shardings=places).lower(table, batch).compile()
        arrays = jax.device_put(table, places[0]), jax.device_put(batch, places[1])
        found = compiled(*arrays)
    np.testing.assert_array_equal(found["tokens"], expected["tokens"])
    np.testing.assert_allclose(found["scores"], expected["scores"], rtol=0, atol=1e-5)
    assert len(np.unique(expected["lengths"])) > 2
    over_rows = set()
    for collective, _ in programs.collectives(compiled.as_text(), mesh):
        if collective.axes != ("tensor",):
            over_rows.add(collective.array.shape)
    assert over_rows == {(), (vocabulary // 2, width)}  # whether a row is open, and the table
