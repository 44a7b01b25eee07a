"""Tables of an evaluation: read back by other programs, with names that mean something to them."""

import csv
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from deltadex.questions.eval import EvaluationTable

COLUMNS = ["family", "dataset", "n", "purity", "low", "high", "p", "chance"]
HOSTILE = r"50 % of a|b_c & <d> \*e* $f$ {g} ~^#[h](i) `j` **k** --- https://l.m"


def scores(n, purity, ci95=None, p_value=None, chance=0.25):
    return {"n": n, "queries": n, "purity": purity, "micro": purity, "ci95": ci95,
            "p_value": p_value, "chance": chance}  # fmt: skip


def make_document(by_dataset, *, base="bert", recipe="sketch", way="normalised"):
    whole = scores(7, 0.875, [0.5, 1.0], 0.001)
    return {"recipe": recipe, "recipe_id": recipe, "way": way, "exclude": None,
            "with_unlabelled": False, "cost": {},
            "base": base, **whole, "by_dataset": by_dataset}  # fmt: skip


def written(path, *documents):
    table = {"ways": documents} if len(documents) > 1 else documents[0]
    return EvaluationTable(table).save(path).read_text("utf-8")


def markdown_rows(text):
    """Cells as a Markdown reader shows them."""
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(text)
    rows = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            assert {child.type for child in token.children} <= {"text", "text_special"}, token
            rows[-1].append("".join(child.content for child in token.children))
    return rows


IN_LATEX = (
    r"50 \% of a\textbar{}b\_c \& \textless{}d\textgreater{} \textbackslash{}{*}e{*} \$f\$ \{g\} "
    r"\textasciitilde{}\textasciicircum{}\#{[}h](i) \textasciigrave{}j\textasciigrave{} "
    r"{*}{*}k{*}{*} -{}-{}- https://l.m"
)
"""`HOSTILE` as LaTeX typesets it: without a command, a ligature or an argument of a row's end."""


def latex_rows(text):
    """Cells as they are written."""
    body = re.fullmatch(
        r"\\begin\{tabular\}\{l+r+\}\n\\hline\n(.*)\\hline\n\\end\{tabular\}\n", text, re.DOTALL
    )[1]
    return [line.split(" & ") for line in body.replace("\\hline\n", "").split(" \\\\\n")[:-1]]


def test_csv_has_every_number_in_full(tmp_path):
    document = make_document({HOSTILE: scores(5, 1 / 3, None, 0.002, 0.1), "b": scores(2, 0.0)})

    text = written(tmp_path / "t.csv", document)

    assert list(csv.reader(text.splitlines())) == [
        COLUMNS,
        ["bert", "all", "7", "0.875", "0.5", "1.0", "0.001", "0.25"],
        ["bert", HOSTILE, "5", repr(1 / 3), "", "", "0.002", "0.1"],
        ["bert", "b", "2", "0.0", "", "", "", "0.25"],
    ]


@pytest.mark.parametrize(
    ("ending", "read", "family", "name"),
    [(".md", markdown_rows, "a/b_c", HOSTILE), (".tex", latex_rows, r"a/b\_c", IN_LATEX)],
)
def test_papers_get_three_decimals_and_the_names_as_they_are(tmp_path, ending, read, family, name):
    document = make_document({HOSTILE: scores(5, 1 / 3, [0.2, 0.4])}, base="a/b_c")

    rows = read(written(tmp_path / f"t{ending.upper()}", document))

    assert rows == [
        COLUMNS,
        [family, "all", "7", "0.875", "0.500", "1.000", "0.001", "0.250"],
        [family, name, "5", "0.333", "0.200", "0.400", "", "0.250"],
    ]


PRINTED = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)


@given(name=PRINTED, base=PRINTED)
@example(name="[1]", base="[1]")
@example(name="*", base="*")
def test_any_name_is_one_cell_of_markdown(tmp_path_factory, name, base):
    document = make_document({name: scores(5, 0.5)}, base=base)

    rows = markdown_rows(written(tmp_path_factory.mktemp("t") / "t.md", document))

    assert [row[:2] for row in rows[1:]] == [[base, "all"], [base, name]]


def test_what_differs_between_evaluations_is_a_column(tmp_path):
    raw = make_document({}, way="raw")
    families = {
        **make_document(None, way="pooled"),
        "base": None,
        "by_base": {"one": {**make_document({"a": scores(3, 0.5)})}, "two": make_document(None)},
    }
    for family in families["by_base"].values():
        del family["recipe"], family["way"], family["base"]

    rows = list(csv.reader(written(tmp_path / "t.csv", raw, families).splitlines()))

    assert rows[0] == ["way", *COLUMNS]
    assert [row[:3] for row in rows[1:]] == [
        ["raw", "bert", "all"],
        ["pooled", "one", "all"],
        ["pooled", "one", "a"],
        ["pooled", "two", "all"],
    ]
