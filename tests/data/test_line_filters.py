"""Line filters leave out what they say and count it, whatever the script."""

from collections import Counter

import pytest

from bert_jax.data.sources.filters import Filters, ends_with_stop


@pytest.mark.parametrize(
    "filters, lines, kept",
    [
        (Filters(line_characters=3), "ab|abc|四五六|四五", "abc|四五六"),
        (Filters(line_symbols=0.4), "a-b-|__a|😀😀ab|中文。", "中文。"),
        (
            Filters(line_symbols=0.0),
            "中文。|हिन्दी में लिखा है",
            "हिन्दी में लिखा है",
        ),  # marks are no symbols
        (Filters(line_stops=True), "Top|Here.|好|“Yes!”", "Here.|“Yes!”"),
        (Filters(5, 2), "abc|de|f", "abc|de"),  # documents are measured after their lines
        (Filters(5, 2), "abcd|e", None),
    ],
)
def test_filters_leave_out_and_count(filters, lines, kept):
    problems = Counter()
    assert filters.keep(lines.split("|"), problems) == (kept and kept.split("|"))
    assert problems.total() == (lines.count("|") - kept.count("|") if kept else 2)


STOPS = (
    "End. End! End? End… “End.” (End.) 好。 「好！」 है। نعم؟ ہے۔ է։ ነው። ပါ။ ។ である． oui.\u00a0»"
)


@pytest.mark.parametrize("line", STOPS.split(" "))
def test_stops_of_any_script(line):
    assert ends_with_stop(line)
    assert not ends_with_stop(f"{line} und") and not ends_with_stop(f"{line},")
