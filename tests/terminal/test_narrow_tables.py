"""Tables on a narrow terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from deltadex.terminal import tables

LONG = "somebody-with-a-name/bert-base-uncased-finetuned-imdb-2024-run-17"


@pytest.fixture
def printed(capsys, monkeypatch):
    def draw(width, *arguments, **settings):
        def console(*, wide=False):
            screen = tables.Screen(highlight=False, emoji=False)
            screen.width = 10_000 if wide else width
            return screen

        monkeypatch.setattr(tables, "_console", console)
        tables._print_table(*arguments, **settings)
        return capsys.readouterr().out.splitlines()

    return draw


@given(st.text(max_size=60), st.integers(3, 40))
def test_a_shortened_text_fits_and_keeps_both_ends(text, width):
    short = tables._middle(text, width)

    assert cell_len(short) <= width
    if short != text:
        head, tail = short.split("…", 1) if "…" not in text else (short[:1], short[-1:])
        assert text.startswith(head.rstrip()) or cell_len(text[:1]) > 1
        assert text.endswith(tail.lstrip()) or cell_len(text[-1:]) > 1


@pytest.mark.parametrize("width", [50, 80])
def test_names_give_way_before_numbers_and_sentences(printed, width):
    lines = printed(width, ("model", "z", "reason"), [(LONG, "12.3", "of other weights")])

    assert max(map(len, lines)) <= width
    assert len(lines) == 2
    assert "…" in lines[1]
    assert lines[1].startswith("somebody")
    assert "run-17" in lines[1]
    assert "12.3" in lines[1]
    assert "of other weights" in lines[1]


def test_a_wide_terminal_shows_all(printed):
    assert LONG in printed(200, ("model", "z"), [(LONG, "1.0")])[1]
    assert LONG in printed(20, ("model",), [(LONG,)], wide=True)[1]
