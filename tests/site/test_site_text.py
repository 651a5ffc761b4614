"""Hostile text on its way to a page."""

import sys
import time
import unicodedata

import pytest
from markupsafe import Markup

from arena.site.axes import Axis
from arena.site.changes import change
from arena.site.render import _paged
from arena.site.text import CHARACTERS, code, printed, shown


def test_every_invisible_character_becomes_visible():
    hidden = [chr(n) for n in range(sys.maxunicode + 1) if unicodedata.category(chr(n)) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    hidden += "\u3164\u115f\u2800\ufe0f\U000e0101\u034f\u17b4"
    kept = [character for character in hidden if character not in "\n\t" and shown(character) != f"⟨U+{ord(character):04X}⟩"]
    assert len(hidden) > 2000
    assert kept == []
    assert shown("a\u202eb") == "a⟨U+202E⟩b"


def test_colours_of_a_terminal_go():
    assert shown("\x1b[1;31mred\x1b[0m and \x1b]0;title\x07") == "red and ⟨U+001B⟩]0;title⟨U+0007⟩"


def test_a_long_text_is_cut_and_says_so():
    assert shown("x" * (CHARACTERS + 1234)) == "x" * CHARACTERS + " [1,234 more characters]"


def test_templates_print_markup_of_templates_alone():
    assert printed(Markup("<b>")) == Markup("<b>")
    assert printed("\u200b") == "⟨U+200B⟩"
    assert printed(7) == 7


def test_source_has_numbered_lines_and_escapes():
    found = code('x = "</pre><script>alert(1)</script>"\n')
    assert 'id="L-1"' in found and "<script" not in found and "&lt;script&gt;" in found.replace("</span>", "")


def test_cuda_in_a_string_is_highlighted_as_cuda():
    inner = '"""\n#include <cuda.h>\n__global__ void f() {}\n"""'
    assert '<span class="p-kr">__global__</span>' in code(f"CODE = {inner}\n")
    assert '<span class="p-kr">__global__</span>' not in code(f'CODE = "{"__global__"}"\n')


def test_a_long_source_is_shown_plain():
    found = code("x = 1  # <b>\n" * 20_000)
    assert "p-" not in found and "&lt;b&gt;" in found
    assert 'id="L-2000"' in code("x = 1  # <b>\n" * 2000)


@pytest.mark.parametrize("blank", ["\n" * 10_000, "\t\n" * 8000, "\f\n" * 9000], ids=["empty", "tabs", "feeds"])
def test_blank_lines_take_no_long_time(blank):
    start_s = time.process_time()
    code('x = """#include\n' + blank + '"""\n')
    assert time.process_time() - start_s < 1


def test_no_source_makes_a_large_page():
    for source in ("a+" * 100_000, "&" * (1 << 20), '"""#include' + "{}<" * 60_000 + '"""', "\ue000" * 300_000):
        assert len(code(source).encode()) < 1_600_000


def test_no_difference_makes_a_large_page():
    for character in "&\ue000":
        found = change("t", "", "\n".join(character * 600 for _ in range(1400)), ("x", "y"))
        assert sum(len(line.encode()) for line in found.lines) < 510_000
        assert len(found.lines) < 210 and found.added == 1400 and "more lines" in found.note


def test_a_difference_escapes_its_lines():
    found = change("t", "a\n", "<img src=x>\n", ("before", "after"))
    assert (found.added, found.removed) == (1, 1)
    assert '<span class="add">+&lt;img src=x&gt;</span>' in found.lines


def test_sources_of_many_lines_are_not_compared():
    assert "too many to compare" in change("t", "a\n" * 1501, "b\n", ("x", "y")).note


def test_only_line_feeds_end_a_line():
    found = change("t", "a\r\nb", "a\nb", ("x", "y"))
    assert (found.added, found.removed) == (1, 1) and "-a⟨U+000D⟩" in "".join(found.lines)
    assert change("t", "a\r" * 2000, "b", ("x", "y")).removed == 1
    assert change("t", "a\n", "a", ("x", "y")).note == "Only the end of the last line differs."


def test_a_page_ends_before_it_is_too_large():
    parts = [(at, Markup("x" * 700_000)) for at in range(3)]
    assert [len(page.body) for page in _paged(iter(parts), 250)] == [1, 1, 1]


def test_axes_reach_round_numbers():
    assert [tick.text for tick in Axis([0.03, 0.4], 0, 100, log=True).ticks()] == [
        "0.01",
        "0.02",
        "0.05",
        "0.1",
        "0.2",
        "0.5",
        "1",
    ]
    assert [tick.text for tick in Axis([4.2], 0, 100).ticks()] == ["0", "1", "2", "3", "4", "5"]
    assert Axis([0.01, 1], 0, 100, log=True).at(0.1) == 50.0
    assert Axis([0.01, 1], 0, 100, log=True).at(0.0) == 0.0
