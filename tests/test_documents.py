"""The commands in the documents parse, and the files and links in them exist."""

import argparse
import re
import runpy
import shlex
import tomllib
from pathlib import Path

import pytest
from kits.paths import ROOT

from bert_jax import cli, config

PAGES = sorted([*ROOT.glob("*.md"), ROOT / "benchmarks/README.md", *ROOT.glob("docs/**/*.md")])
CONFIGS = sorted(path for path in ROOT.glob("configs/*.py") if path.stem != "__init__")
COMMAND = re.compile(r"(?:^|\s)bert-jax +(.*)")


def commands(path: Path) -> list[str]:
    """Returns the arguments of bert-jax in the indented lines of a page or docstring; joins lines that end in \\."""
    text = re.sub(r"\\\n\s*", " ", path.read_text(encoding="utf-8"))
    lines = (line.partition(" #")[0] for line in text.splitlines() if line.startswith("    "))
    matches = map(COMMAND.search, lines)
    return [match[1] for match in matches if match]


def parse(text: str) -> argparse.Namespace:
    text = text.removesuffix(" ...")  # and more options
    words = shlex.split(re.sub(r"[][]", "", text).replace("PRICE", "1.2"))
    words, overrides = cli.split_overrides(words)
    options = cli.parser(cli.COMMANDS).parse_args(words)
    if getattr(options, "config", None):
        name, _, _ = options.config.partition(":")  # configs/glue.py:sst2
        is_shipped = (ROOT / "configs" / f"{Path(name).stem}.py").exists()
        config.load(options.config.removesuffix(":all") if is_shipped else "my_corpus", overrides)
    return options


EVERY = [(path, text) for path in PAGES + CONFIGS for text in commands(path)]


@pytest.mark.parametrize("path, text", EVERY, ids=[f"{path.stem}-{text}" for path, text in EVERY])
def test_commands_parse(path, text):
    assert parse(text).command


def test_pages_are_short():
    pages = [path for path in PAGES if path.parent != ROOT / "benchmarks"]
    lengths = {path: path.read_text().count("\n") for path in pages}
    del lengths[ROOT / "docs/config.md"]  # a table of all keys
    assert lengths.pop(ROOT / "README.md") <= 150 and max(lengths.values()) <= 200


@pytest.mark.parametrize("name", ["config", "python"])
def test_a_page_that_is_made_is_up_to_date(name):
    """If not: python docs/make_NAME.py > docs/NAME.md"""
    made = runpy.run_path(str(ROOT / f"docs/make_{name}.py"))["page"]()
    assert (ROOT / f"docs/{name}.md").read_text() == made


CONFIG = re.compile(r"```python\n((?:(?!```).)*def get_config.*?)```", re.DOTALL)
SHOWN = [(path, text) for path in PAGES for text in CONFIG.findall(path.read_text())]


@pytest.mark.parametrize("path, text", SHOWN, ids=[path.stem for path, _ in SHOWN])
def test_configs_in_pages_load(path, text, tmp_path):
    (tmp_path / "mine.py").write_text(text)
    assert config.load(str(tmp_path / "mine.py"))


def test_installations_have_the_tested_versions():
    """Those of pages, and those that messages name."""
    for path in [*PAGES, *ROOT.glob("bert_jax/**/*.py"), *ROOT.glob("benchmarks/*.py")]:
        text = " ".join(path.read_text().split())
        for options in re.findall(r"pip install ([^`]{0,60}?)-e '?\.", text):
            assert "-c constraints.txt" in options, path


def test_every_config_is_in_its_page():
    page = (ROOT / "docs/shipped_configs.md").read_text()
    names = {path.stem for path in CONFIGS} - {"base"}
    assert names <= set(re.findall(r"`(\w+)", page))


def test_every_page_is_in_the_site():
    site = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    named = set(re.findall(r"[\w/-]+\.md", str(site)))
    assert named == {str(path.relative_to(ROOT / "docs")) for path in ROOT.glob("docs/**/*.md")}


def test_commands_are_found():
    assert {path for path, _ in EVERY} >= {ROOT / "README.md", *ROOT.glob("docs/recipes/*.md")}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_existing_files(path):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8"))
    lost = [to for to in links if "://" not in to and not (path.parent / to).exists()]
    assert not lost


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_files_exist(path):
    """Of names with a folder; they are relative to the root, to the package (`data/stream.py`) or to the page."""
    names = re.findall(r"`((?:[\w-]+/)+[\w.-]+\.(?:py|sh|md))\b", path.read_text(encoding="utf-8"))
    folders = (ROOT, ROOT / "bert_jax", path.parent)
    lost = [name for name in names if not any((folder / name).exists() for folder in folders)]
    assert not [name for name in lost if not name.endswith("/mine.py")]  # the reader's own file
