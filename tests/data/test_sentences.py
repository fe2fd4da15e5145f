"""Sentence splitting in many scripts: true ends, other stops, and no lost characters."""

import random

import pytest

from bert_jax.data.sources.sentences import MAX_SENTENCE, STOP, cap, split_sentences

# Bars separate the sentences. A bar without spaces stands for no white space in the text.
SENTENCES = """
Dr. Smith met J. R. R. Tolkien in the U.S. Army. | He left.
See No. 5 and p. 12. | Then rest.
She said "No." | He won! | They lost? | Really?!
He came at 6 p.m. | Doors were open.
他来了。|她走了！|为什么？|好吧；也许。
她说：“好！”|然后走了。
《NEW GAME！》在芳文社連載。|2013年結束。
実験である．|次に示す．
यह एक वाक्य है। | यह दूसरा वाक्य है।
هل أنت هنا؟ | نعم أنا هنا.
Սա նախադասություն է։ | Սա երկրորդն է։
Ո՞վ է նա: | Սա Արամն է: | Նա եկավ:
Τι κάνεις; | Είμαι καλά; ναι· έτσι. | Πού είναι; | Εδώ.
Είπε: «Ποιος είναι;» | Κανείς.
He said: Go; I went; Then he left.
བོད་ཡིག་ཡིན། | ང་འགྲོ་གི་ཡིན། ། | ཁྱེད་སུ་ཡིན།།
וַיֹּאמֶר אֱלֹהִים׃ | וַיְהִי אוֹר׃
好！！，他说。|走了。！》的
ይህ ዓረፍተ ነገር ነው። | ይህ ሁለተኛ ነው።
Im 19. Jahrhundert lebte er z. B. in Wien. | Er starb dort.
« Oui. » | Il partit.
Он родился в 1945 г. в Москве. | Она жила там.
?! ... !
""".strip().split("\n")


@pytest.mark.parametrize("marked", SENTENCES)
def test_text_is_split_at_the_ends_of_sentences(marked):
    expected = [part.strip() for part in marked.split("|")]
    assert split_sentences(marked.replace(" | ", " ").replace("|", "")) == expected


def check(line: str) -> None:
    found = split_sentences(line)
    assert "".join("".join(found).split()) == "".join(line.split())
    assert all(found) and max(map(len, found), default=0) <= MAX_SENTENCE


def test_no_character_is_lost_and_no_sentence_is_too_long():
    draw = random.Random(1)
    for size in [50] * 500 + [20_000] * 5 + [300_000]:
        check("".join(draw.choices("aB 1.!?。！”\"')( é「」》，的中．»«", k=size)).strip())
    assert list(map(len, cap("x" * 4500 + " " + "y" * 10))) == [2000, 2000, 511]


TRAPS = ["a. ", "a. B", ". ", "。", "。”", "?", "J. ", "U.S. ", '."', "...", "中!", " "]
TRAPS += ["！", "。!", "། ", "α;", "：", "」"]


@pytest.mark.parametrize("unit", TRAPS)
def test_splitting_a_long_line_takes_linear_time(unit):
    """Three hundred thousand characters take a second; with quadratic work they would take hours."""
    check(unit * (300_000 // len(unit)))


@pytest.mark.parametrize("run", ["！", "。！", "。!"])
def test_a_run_of_stops_is_tried_once(run):
    """Where the sentence goes on after it, too; a try from each of its stops would take quadratic time."""
    assert len([*STOP.finditer(run * 100 + "，好")]) == 1
    assert len(split_sentences(run * 100 + "，好")) == 1
