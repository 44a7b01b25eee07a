"""Tables on a narrow terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from deltadex.questions.terminal import sections
from deltadex.results import Section

LONG = "somebody-with-a-name/bert-base-uncased-finetuned-imdb-2024-run-17"


@pytest.fixture
def terminal(monkeypatch):
    """Sets the width of the terminal."""

    def resize(width):
        def console_of(*, wide=False):
            narrow = sections.Screen(highlight=False, emoji=False)
            narrow.width = 10_000 if wide else width
            return narrow

        monkeypatch.setattr(sections, "screen", console_of)

    return resize


@given(st.text(max_size=60), st.integers(3, 40))
def test_a_shortened_text_fits_and_keeps_both_ends(text, width):
    short = sections._middle(text, width)

    assert cell_len(short) <= width
    if short != text:
        head, tail = short.split("…", 1) if "…" not in text else (short[:1], short[-1:])
        assert text.startswith(head.rstrip()) or cell_len(text[:1]) > 1
        assert text.endswith(tail.lstrip()) or cell_len(text[-1:]) > 1


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
def test_numbers_are_whole_or_their_column_is_named_as_left_out(capsys, terminal, width):
    heads = ("rank", "model", "verdict", "probability", "z", "cosine", "author", "dataset")
    cells = ("77", LONG, "likely the same data", "0.98", "16.4", "0.545", "", "emotion")

    terminal(width)

    sections.print_table(heads, [cells])

    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if not line.startswith(("no room for", "cosine", "dataset"))]
    left_out = " ".join(lines[2:])
    assert max(map(len, lines)) <= width
    assert "author" not in " ".join(lines)  # blanks alone
    for head, cell in zip(heads, cells, strict=True):
        if head not in ("model", "author"):
            assert (cell in rows[1]) == (head not in left_out)
    assert "somebo" in rows[1]
    assert "run-17" in rows[1]


@pytest.mark.parametrize("width", [40, 60, 200])
def test_a_narrow_terminal_shows_fewer_layers_and_says_which_are_left_out(capsys, terminal, width):
    layers = range(24)
    section = Section(
        columns=("θ = 0.5", *layers, "law"),
        rows=[("query", *(f"{layer + 100}" for layer in layers), "constant 112")],
        by_layer=range(1, 25),
    )
    terminal(width)

    sections.show_answer([section])

    head, row, note = capsys.readouterr().out.splitlines()[:3]
    assert max(len(head.rstrip()), len(row.rstrip())) <= width
    assert head.split()[3] == "0"
    assert head.split()[-2:] == ["23", "law"]
    assert row.rstrip().endswith("constant 112")
    assert note.strip().startswith("not shown: hidden states 1, ")
