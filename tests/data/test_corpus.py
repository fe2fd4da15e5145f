"""Sources and their blocks: each source is read in its own format, with the same blocks at every call."""

import json
import random
import shutil
import tarfile
from collections import Counter

import pytest
from kits.corpora import read_sources, write

from bert_jax import config as configs
from bert_jax.data import vocabulary
from bert_jax.data.preparation import corpus
from bert_jax.data.sources import encodings, files
from bert_jax.errors import BadInput


def open_sources(*overrides):
    return corpus.open_sources(configs.load("demo", list(overrides)))


def read(*overrides):
    return read_sources(open_sources(*overrides))


def test_sources_are_read_in_order_each_in_its_format(tmp_path):
    """Empty files are counted."""
    write(tmp_path / "empty.txt", b"")
    b = write(tmp_path / "b.jsonl", b'{"text": "One. Two."}\n')
    a = write(tmp_path / "a.txt", b"One. Two.\n\nThree.")
    write(tmp_path / "w" / "1", b'<doc id="1" title="T">\nT\nFour. Five.\n</doc>\n')
    names = [f"{b}", f"{a}", f"{tmp_path}/w", f"{tmp_path}/*.txt"]
    keys = f"corpus.source={', '.join(names)}", "corpus.format=jsonl,lines,wiki,files"
    files = [["One.", "Two.", "Three."]]
    lines = [["One. Two."], ["Three."]]
    documents = [["One.", "Two."], *lines, ["Four.", "Five."], *files]
    assert read(*keys) == (documents, {"empty files": 1})
    assert [source.name for source in open_sources(*keys)] == names


@pytest.mark.parametrize(
    "sentences, form, number",
    [("auto", "lines", 1), ("auto", "files", 2), ("lines", "files", 1), ("rules", "lines", 2)],
)
def test_sentences_by_lines_or_rules_after_filters(tmp_path, sentences, form, number):
    path = write(tmp_path / "a", b"A title\nOne line. Two.")
    keys = f"corpus.source={path}", f"corpus.format={form}", f"corpus.sentences={sentences}"
    ((document,), problems) = read(*keys, "filter.line_stops=True")
    assert len(document) == number and problems == {"lines without a stop": 1}
    assert read(*keys, "filter.document_characters=23")[0] == []


@pytest.mark.parametrize("form", ["lines", "document_per_line", "files", "wiki", "jsonl"])
def test_blocks_do_not_change_documents(tmp_path, monkeypatch, form):
    draw = random.Random(1)
    for number in range(5):
        sizes = [[draw.randrange(1, 9) for _ in range(draw.randrange(9))] for _ in range(30)]
        texts = ["\n".join("word " * size for size in lines) for lines in sizes]
        if form == "wiki":
            texts = [f'<doc id="{i}" title="T">\nT\n\n{t}\n</doc>' for i, t in enumerate(texts)]
        elif form == "jsonl":
            texts = [json.dumps({"text": text}) for text in texts]
        separator = "\n\n" if form in ("lines", "files") else "\n"
        write(tmp_path / f"{number}.txt", separator.join(texts).encode())
    keys = f"corpus.source={tmp_path}", f"corpus.format={form}"
    whole = read(*keys)
    assert len(whole[0]) == 5 if form == "files" else len(whole[0]) > 100
    for size in (1, 7, 100, 1000):
        monkeypatch.setattr(files, "PIECE", size)
        assert read(*keys) == whole
        (source,) = open_sources(*keys)
        blocks = list(source.blocks(Counter()))
        assert blocks == list(source.blocks(Counter())) and len(blocks) > 4 + (form != "files")


END = "<|endoftext|>"


@pytest.mark.parametrize("form", ["lines", "files"])
@pytest.mark.parametrize("sentences", ["auto", "none"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_line_ends_documents(tmp_path, monkeypatch, form, sentences, newline):
    """Blank lines do not; the separator is a line of its own, with any spaces around it, and is no text."""
    texts = [f"{number} is.{newline}{newline} It {END} {number}." for number in range(60)]
    parts = [f"{END}{newline}{texts[0]}", "", *texts[1:30], f"{texts[30]}\t", *texts[31:], ""]
    text = f"{newline} {END}{newline}".join(parts)
    path = write(tmp_path / "a.txt", text.encode())
    keys = f"corpus.source={path}", f"corpus.format={form}", f"corpus.sentences={sentences}"
    keys += (f"corpus.separator={END}",)
    if sentences == "none":
        keys += "objective.name=causal_lm", "task.name=token_blocks"
        texts[30] += "\t"
    monkeypatch.setattr(files, "MAX_DOCUMENT", 300)
    for size in (1, 100, 1 << 20):
        monkeypatch.setattr(files, "PIECE", size)
        found, problems = read(*keys)
        assert not problems and len(found) == 60
        if sentences == "none":
            assert ["".join(document) for document in found] == texts
        else:
            assert found == [text.split(newline + newline + " ") for text in texts]
        (source,) = open_sources(*keys)
        blocks = [*source.blocks(Counter())]
        assert len(blocks) > 1 or size > 100


@pytest.mark.parametrize("value", [" a", "a\n", "a\nb", END])
def test_a_separator_that_no_source_can_have_is_refused(value):
    form = "jsonl" if value == END else "files"
    with pytest.raises(BadInput, match="^config.corpus.separator="):
        open_sources("corpus.source=x", f"corpus.format={form}", f"corpus.separator={value}")


@pytest.mark.parametrize(
    "content, form",
    [
        (b'{"body": "a"}\n' * 3, "jsonl"),
        (b'\n<doc id="1" title="T">\nT\nFour. Five.\n</doc>\n', "lines"),
        (b'\xef\xbb\xbf{"text": "a"}\n', "lines"),
        (b'{"text": "a"}\n', "wiki"),
        (b'[{"text": "a"}, {"text": "b"}]\n', "jsonl"),
        (b'[\n  {\n    "text": "a"\n  }\n]\n', "jsonl"),
        (b'[{"text": "a"}]\n', "lines"),
        (b'["a", "b"]', "jsonl"),
        (b'[{"text": "' + b"a " * 8_100_000 + b'"}]', "jsonl"),
    ],
)
def test_a_file_of_another_format_is_refused(tmp_path, content, form):
    """An empty file is accepted."""
    write(tmp_path / "empty", b"\n")
    good = {"jsonl": b'{}\n{"text": "a"}', "wiki": b'<doc id="1">\na\n</doc>'}
    write(tmp_path / "good", good.get(form, b"a"))
    keys = f"corpus.source={tmp_path}", f"corpus.format={form}"
    assert read(*keys)[0]
    write(tmp_path / "z", content)
    array = ".* array.*" if (content[:1], form) == (b"[", "jsonl") else ""
    with pytest.raises(BadInput, match=rf"{tmp_path}/z:{array}.*config.corpus.format={form}\b"):
        open_sources(*keys)
    assert read(*keys, "filter.unusable_files=True")[1]["files left out"] == 1


FRENCH = "Près de la forêt était une fille très gentille. Ça va être bien dès demain.\n"
RUSSIAN = "Это обычный русский текст о городе и реке, который люди читают.\n"


UKRAINIAN = "Це звичайний український текст про місто й річку, який її мешканці читають.\n"
JAPANESE = "昨日は友達と映画を見に行きました。とても面白かったです。\n"
KOREAN = "어제 친구와 함께 영화를 보러 갔다. 아주 재미있었다.\n"
CHINESE = "我昨天和朋友一起去看了电影，这部电影非常有意思。\n"
TRADITIONAL = "我昨天和朋友一起去看了電影，這部電影非常有意思。\n"
ENCODED = [(name, RUSSIAN) for name in ("KOI8-R", "ISO-8859-5", "CP866")]
ENCODED += [(name, JAPANESE) for name in ("EUC-JP", "CP932")]
ENCODED += [("GB18030", CHINESE), ("CP950", TRADITIONAL), ("CP949", KOREAN), ("KOI8-U", UKRAINIAN)]
ENGLISH = "A plain line of English words comes here.\n"
RECORD = json.dumps({"text": FRENCH}, ensure_ascii=False) + "\n"


@pytest.mark.parametrize(
    ("text", "encoding", "form"),
    [
        # A fifth of the lines is enough; the others are English. More text than what is probed.
        ((ENGLISH * 4 + FRENCH) * 600, "CP1252", "lines"),
        ((ENGLISH * 4 + FRENCH) * 600, "UTF-16LE", "lines"),
        ((ENGLISH * 4 + RUSSIAN) * 600, "CP1251", "lines"),
        ("One line alone.\n", "UTF-16", "lines"),
        ("One line alone.\n", "UTF-32", "lines"),
        (RECORD * 30, "CP1252", "jsonl"),
        (f"① {JAPANESE}" * 9, "CP932", "files"),
        ("กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย\n" * 9, "CP874", "files"),
        (KOREAN.replace("어", "뷁") * 9, "CP949", "files"),
        *((text * number, name, "files") for name, text in ENCODED for number in (1, 30)),
    ],
)
def test_text_that_is_not_utf8_is_refused_with_its_likely_encoding(tmp_path, text, encoding, form):
    write(tmp_path / "text", text.encode(encoding))
    with pytest.raises(BadInput, match=f"{tmp_path}/text: .*{encoding}.*iconv"):
        open_sources(f"corpus.source={tmp_path}", f"corpus.format={form}")


TURKISH = """Dün akşam arkadaşlarımla birlikte şehrin eski çarşısına gittik.
Öğretmen, öğrencilerin sorularını dinledikten sonra konuyu açıkladı.
Yağmur durunca çocuklar bahçeye çıkıp top oynamaya başladılar.
"""
POLISH = """Wczoraj wieczorem poszliśmy z przyjaciółmi na stare miasto.
Nauczyciel wysłuchał pytań uczniów, a następnie wyjaśnił całe zagadnienie.
Książka ta, choć została napisana dawno, wciąż cieszy się popularnością.
"""
WITH_HANJA = "大韓民國 憲法: 대한민국은 民主共和國이며 主權은 國民에게 있다.\n" * 3
BETWEEN_ENGLISH = [(ENGLISH * 9 + text) * 99 for text in (TURKISH, WITH_HANJA)]


@pytest.mark.parametrize(
    ("text", "encoding", "is_sure"),
    [
        (TURKISH, "cp1254", False),
        (BETWEEN_ENGLISH[0], "cp1254", False),
        (POLISH, "cp1250", True),
        (FRENCH * 9, "cp1252", False),
        (WITH_HANJA, "euc-kr", True),
        (BETWEEN_ENGLISH[1], "cp949", True),
        (KOREAN, "johab", True),
        ("これは日本語の文章です。漢字もあります。0\n\n", "euc-jp", False),
        ("これは日本語の文章です。漢字もあります。0\n\n" * 30, "euc-jp", True),
    ],
)
def test_what_an_error_calls_probable_reads_right_or_is_one_of_several(text, encoding, is_sure):
    names = encodings.likely_encodings(text.encode(encoding))
    assert text in [text.encode(encoding).decode(name) for name in names]
    assert len(names) == 1 if is_sure else len(names) > 1


def test_all_unusable_files_are_counted_at_once_and_can_be_left_out(tmp_path):
    """Those of all sources, whatever is wrong with them."""
    (tmp_path / "a.gz").write_bytes(b"not compressed")
    for number in range(20):
        write(tmp_path / "more" / f"{number:02}.txt", RUSSIAN.encode("koi8-r"))
    shutil.make_archive(tmp_path / "b", "zip", tmp_path / "more")
    good = write(tmp_path / "more" / "good.txt", b"A good line.")
    keys = f"corpus.source={tmp_path}/?.*,{tmp_path}/more", "corpus.format=lines"
    with pytest.raises(BadInput, match=r"\(22\).*/a.gz.*/b.zip.*/00.txt.*unusable_files") as error:
        open_sources(*keys)
    assert "\n" not in str(error.value) and len(str(error.value)) < 1500
    left_out = {"files left out": 22}
    assert read(*keys, "filter.unusable_files=True") == ([[good.read_text()]], left_out)


@pytest.mark.parametrize(
    "line", ["a ~{ b ~} c+d", "\x1b[1mbold\x1b[0m", "C++ +1-800 a+b-c +-", "~/x ~{y"]
)
def test_text_with_the_marks_of_encodings_is_read(tmp_path, line):
    path = write(tmp_path / "text", f"{line}\n".encode() * 9)
    assert read(f"corpus.source={path}", "corpus.format=lines") == ([[line] * 9], {})


@pytest.mark.parametrize("word", ["+100", "+yes", "user+tag@x", "+12345678"])
@pytest.mark.parametrize("number", [1, 6])
def test_signs_that_may_be_utf7_by_chance_are_read(tmp_path, word, number):
    path = write(tmp_path / "text", f"Prices rose by {word} dollars.\n".encode() * number)
    word.encode().decode("utf-7")
    (document,), _ = read(f"corpus.source={path}", "corpus.format=lines")
    assert len(document) == number


def test_records_that_are_kept_are_no_reason_to_refuse_a_file(tmp_path):
    path = write(tmp_path / "text", b'{"text": "a \\ud800"}\n' * 3 + b"{\n")
    found, problems = read(f"corpus.source={path}", "corpus.format=jsonl")
    assert len(found) == 3 and problems["records not JSON"] == 1


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz"])
def test_an_archive_is_refused(tmp_path, suffix):
    """Whatever its name, like a compressed file whose name does not say so."""
    content, path = write(tmp_path / "a", (ENGLISH * 100).encode()), tmp_path / f"a.tar{suffix}"
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with tarfile.open(path, f"w:{suffix[1:]}", format=form) as archive:
            archive.add(content, "text/Ångström.txt")
        for name in (path, shutil.copy(path, tmp_path / "a.txt")):
            with pytest.raises(BadInput, match=f"{name}: an archive"):
                open_sources(f"corpus.source={name}")


def test_a_sample_is_spread_evenly_over_all_sources():
    """Its blocks are every n-th."""
    for limit, stride in ((10**9, 1), (12_000, 1), (11_999, 2), (6000, 2), (5999, 4), (1, 1024)):
        assert vocabulary.sample_stride(1000 * [12], limit) == stride
