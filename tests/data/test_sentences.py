"""Sentences in many scripts: where they end, where only a stop is, and that nothing is lost."""

import random
import time

import pytest

from bert_jax.data.sources.sentences import LONGEST_SENTENCE, cap, split_sentences

# A sentence each between the bars; where the text has no white space, the bar has none either.
SENTENCES = """
Dr. Smith met J. R. R. Tolkien in the U.S. Army. | He left.
It was made in the U.S. | The rest came from Spain.
He works for Stimulated, Inc. | The videos were new.
It costs 3.50 dollars. | Or 4.25.
See No. 5 and p. 12. | Then rest.
No. | He said so.
She said "No." | He left.
“It is late.” | She went home.
'Is it?' | He asked nothing.
"Is it?" he asked.
Wait... | I see it.
Wait... what is it?
He came at 6 p.m. | Doors were open.
The Rev. A.M. Hills gave it.
In McDonald v. Chicago the court agreed.
Nemo Gould (b. October 3, 1975) is an artist.
The bird weighs 60-75 g. | Incubation is shared.
George H.W. Bush and A.J. Styles met.
(He did.) | So what?
He won! | They lost? | Really?!
It was Vitamin C. | It is good.
See Fig. 3 and Eq. 7. | They differ.
Maj. Gen. Carl Schurz and Brig. Gen. Albert Lee came.
Smith et al. found it. | Jones did not.
Apples, pears etc. | The rest is gone.
It was in Jan. 1990. | Then it ended.
World War I. | The war ended.
He has a Ph.D. | He teaches.
He lives in St. Louis, Mo. with Mrs. Jones.
他来了。|她走了！|为什么？|好吧；也许。
她说：“好！”|然后走了。
《NEW GAME！》在芳文社連載。|2013年結束。
他问：“为什么？”，没有人回答。|他走了。
圆周率是3.14。|很好。
彼は「はい。」と言った。|そして帰った。
実験である．|次に示す．
安娜．卡列尼娜走了。
好吗?|他说好。
यह एक वाक्य है। | यह दूसरा वाक्य है।
هل أنت هنا؟ | نعم أنا هنا.
یہ ایک جملہ ہے۔ | یہ دوسرا ہے۔
Սա նախադասություն է։ | Սա երկրորդն է։
ይህ ዓረፍተ ነገር ነው። | ይህ ሁለተኛ ነው።
ဒါက စာကြောင်းပါ။ | နောက်တစ်ကြောင်း။
នេះជាប្រយោគ។ | នេះទៀត។
Am 3. Oktober 1990 war es so weit. | Der Tag kam.
Im 19. Jahrhundert lebte er z. B. in Wien. | Er starb dort.
Das ist z.B. Berlin oder d.h. Wien. | Sie lachte.
Er sagte: „Ich komme.“ | Dann ging er.
»Ja.« | »Nein.«
Dr. Müller und Hr. Schmidt, vgl. Abb. 3, kamen ca. 1900.
M. Dupont arriva en 50 av. J.-C. à Rome. | Il partit.
« Oui. » | Il partit.
Mme. Curie est là. | Elle parle.
¿Quién es? | ¡Hola! | ¿Y tú?
El Sr. García vive en EE. UU. desde 1990. | Es bueno.
No lo sé. | ¿Por qué no?
Он родился в 1945 г. в Москве. | Она жила там.
А. С. Пушкин и Л. Н. Толстой. | Они писали.
Ήρθε χθες. | Έφυγε σήμερα.
Il sig. Rossi è qui. | È tardi.
O Sr. Silva chegou. | Ela saiu.
Geldi. | Şimdi gitti.
Anh ấy đến. | Đó là sự thật.
그는 왔다. | 그녀는 갔다!
הוא בא. | היא הלכה.
It costs No. 5 e.g. this and so on... or not. was it
Über alles. | Élan vital. | 1984 was
?! ... !
""".strip().split("\n")


@pytest.mark.parametrize("marked", SENTENCES)
def test_sentences(marked):
    expected = [part.strip() for part in marked.split("|")]
    found = split_sentences(marked.replace(" | ", " ").replace("|", ""))
    assert found == expected


def test_nothing_is_lost_and_no_sentence_is_long():
    draw = random.Random(1)
    for size in [50] * 500 + [20_000] * 5 + [300_000]:
        line = "".join(draw.choices("aB 1.!?。！”\"')( é「」》，的中．»«", k=size)).strip()
        found = split_sentences(line)
        assert "".join("".join(found).split()) == "".join(line.split())
        assert all(found) and max(map(len, found), default=0) <= LONGEST_SENTENCE
    assert list(map(len, cap("x" * 4500 + " " + "y" * 10))) == [2000, 2000, 511]


@pytest.mark.parametrize(
    "unit", ["a. ", "a. B", ". ", "。", "。”", "?", "J. ", "U.S. ", '."', "...", "中!", " "]
)
def test_the_time_is_linear_in_the_line(unit):
    """A megabyte of nothing but traps takes seconds, not hours."""
    start = time.process_time()
    split_sentences(unit * (1_000_000 // len(unit)))
    assert time.process_time() - start < 8
