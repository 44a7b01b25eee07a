"""The first line of an answer by words alone."""

from deltadex.questions.find_trained_on.find_trained_on import show_trained_models
from deltadex.questions.search import show_text_search


def test_models_that_are_left_out_are_counted_in_the_first_line():
    document = {"query": {"texts": "a.csv", "reading": ""}, "neighbours": [], "compared": 3}
    document |= {"left_out": [], "meaning": "", "families": []}

    with_some, with_none = (
        next(
            iter(show_trained_models({**document, "without_footprint": n, "without_words": kinds}))
        )
        for n, kinds in ((3, {"dense": 2, "frozen": 1}), (0, {}))
    )

    counts = "2 all of whose embedding moved, 1 whose input embedding was not trained"
    assert f"nothing was run; not compared: 3 models ({counts}); leave out" in with_some
    assert with_none.endswith("nothing was run")


def test_rows_of_several_families_name_their_base():
    bases = ("lab/one", "lab/two")
    rows = [{"rank": n, "model": "a", "base": base} for n, base in enumerate(bases, start=1)]
    known = {"probability": 1.0, "accident": 0.0, "touched": 9, "missing": 0}
    known |= dict.fromkeys(("missing_by_chance", "dataset", "author"))
    document = {"query": {"texts": "a.csv", "reading": ""}, "compared": 2, "left_out": []}
    document |= {"without_footprint": 0, "without_words": {}, "meaning": ""}
    document |= {"families": [{"base": base} for base in bases]}

    shown = [*show_trained_models({**document, "neighbours": [row | known for row in rows]})]

    (table,) = (part for part in shown if not isinstance(part, str))
    assert tuple(table.columns)[:3] == ("rank", "model", "base")
    assert [row[2] for row in table.rows] == ["one", "two"]


def test_a_search_that_finds_no_more_than_chance_says_so_in_head_and_rows():
    row = {"rank": 1, "model": "a", "verdict": "matches nothing", "words": ["email"], "dataset": ""}
    document = {"asked": ["email"], "unknown": [], "verdict": "matches nothing", "compared": 1}
    document |= {"neighbours": [row | {"by_chance": 0.6}], "left_out": [], "meaning": ""}

    head, _, section = show_text_search(document)

    assert head == "models by the words email: no match beyond chance"
    assert "matches nothing" not in str(section)
