"""benchmarks/tpu.py: its arithmetic is that of `plan`, of a compiler that says what a test wants."""

import re

import jax
import pytest
from kits.slices import needs_libtpu

from benchmarks import plain, tpu
from bert_jax import build
from bert_jax.models import bert
from bert_jax.planning import compilation, hlo, topology

GIB = 1 << 30
MEMORY = hlo.Memory(arguments=GIB, outputs=0, shared=0, temporaries=2 * GIB, code=0)
SECOND = 1_500_000_000  # cycles
LINK = 50_000_000_000  # bytes a second; both directions of a ring or two axes make it twice


def answer(monkeypatch, compute=SECOND // 10, sent=LINK // 100, result=None):
    """A compiler for which every step computes, twice as long where it is plain, and then sends and waits; -> what it
    was asked."""
    asked = []

    def step(times):
        if result:
            raise result
        events = [["compute", times * compute], ["send", [["all-reduce", ["data"], sent]]]]
        return compilation.Step(MEMORY, events)

    def compile_step(settings, design, phase, tell):
        asked.append((settings, design.mesh.size, phase))
        return step(1)

    monkeypatch.setattr(tpu, "compile_step", compile_step)
    monkeypatch.setattr(tpu, "read_or_compile", lambda *_: step(2))
    return asked


@needs_libtpu
def test_a_row(monkeypatch, capsys):
    asked = answer(monkeypatch)
    assert tpu.main(["--only", "base", "--config.model.layers=3"]) == 0
    settings, devices, phase = asked[0]
    assert (settings.dtype, settings.model.layers, devices) == ("bfloat16", 3, 4)
    assert (phase.length, phase.batch) == (128, 4 * 64)
    assert settings.model.dropout == settings.model.attention_dropout == 0.1
    use = bert.row_flops(settings.model, 30522, 128, 20) * 64 / 197e12 / 0.1
    line = capsys.readouterr().out.strip()
    assert line.startswith("| v5e:2x2, BERT-base, length 128, dropout as published, 64 rows a chip")
    assert f"| 0.48 | **{use:.3f}** by cycles (0.1000 s); as scheduled" in line
    own, beside = line.removesuffix(" |").rsplit(" | ", 1)
    assert own.endswith("; 3.0 GiB") and line.count("|") == 5
    unrolled, scanned = beside.split("; plain Linen, ")
    assert unrolled.startswith(f"plain Linen, unrolled: **{use / 2:.3f}** by cycles (0.2000 s)")
    assert scanned.startswith(f"scanned: **{use / 2:.3f}** by cycles")
    assert tpu.main(["--only", "base", "--alone", "--config.model.layers=3"]) == 0
    assert capsys.readouterr().out.strip() == f"{own} |  |"


@needs_libtpu
def test_the_growth_from_four_chips_to_256(monkeypatch, capsys):
    asked = answer(monkeypatch)
    assert tpu.main(["--only", *tpu.GROWTH, "--config.model.layers=1"]) == 0
    assert [devices for _, devices, _ in asked] == [4, 256]
    assert asked[0][2].batch / 4 == asked[1][2].batch / 256
    *_, line = capsys.readouterr().out.splitlines()
    # 10 ms by one link; both slices have two axes, of lines and of rings.
    few, many = 0.1 + 0.01 / 2, 0.1 + 0.01 / 4
    assert "all hidden 0.1000 -> 0.1000 s (**+0.0 %**)" in line
    assert f"nothing hidden {few:.4f} -> {many:.4f} s (**{100 * (many / few - 1):+.1f} %**)" in line


@needs_libtpu
def test_what_does_not_fit_is_a_row_too(monkeypatch, capsys):
    answer(monkeypatch, result=compilation.TooLarge(20.5 * GIB, 15.75 * GIB))
    assert tpu.main(["--only", *tpu.GROWTH, "--config.model.layers=1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "does not fit: needs 20.50 GiB of the 15.75 GiB of a device" in lines[0]


KERNELS = {
    "large-packed": "rows_forward_kernel_64_dropout",
    "large-packed-undropped": "rows_forward_kernel_64",
    "large-packed-splash": "splash_mha_fwd_segmented_residuals",
}


@needs_libtpu
@pytest.mark.parametrize("name", tpu.CASES)
def test_every_case_is_a_program_that_can_be_made(name, monkeypatch):
    """Lowered, as it is before the compiler: of the rows that it names, with the attention that it names."""
    case, texts = tpu.CASES[name], []

    def lower(settings, design, phase, tell):
        with jax.set_mesh(design.mesh):
            texts.append(build.lower_train(settings, design, phase).as_text())
        return compilation.Step(MEMORY, [["compute", SECOND]])

    monkeypatch.setattr(tpu, "compile_step", lower)
    opened = tpu.open_case(case, ["--config.model.layers=1"])
    tpu.measure(opened)
    (text,) = texts
    rows = case.rows * topology.find(case.slice).chips
    length, chosen = (512, 80) if "packed" in name else (128, 20)
    assert f"tensor<{rows}x{length}xi32>" in text and f"tensor<{rows}x{chosen}xi32>" in text
    for form in case.plain:
        lowered = plain.lower(opened.settings, opened.mesh, opened.phase, 30522, form).as_text()
        assert f"tensor<{rows}x{length}xi32>" in lowered
        assert f"tensor<{rows}x{chosen}xi32>" in lowered
    kernels = set(re.findall(r'kernel_name = "(\w+(?:forward|fwd)\w*)"', text))
    assert kernels == ({KERNELS[name]} if name in KERNELS else set())


@needs_libtpu
@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--config.model.attention=splash"], "cannot do model.attention_dropout=0.1"),
        (["--config.model.layer=1"], "model.layer"),
        (["--row", "3"], "--row: unknown"),
    ],
)
def test_what_cannot_be_compiled(arguments, words, monkeypatch, capsys):
    answer(monkeypatch)
    assert tpu.main(["--only", "base", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert words in error and "\n" not in error
