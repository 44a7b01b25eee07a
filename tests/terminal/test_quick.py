"""The first line of an answer by words alone."""

from deltadex.questions.find_trained_on.find_trained_on import show_trained_models


def test_models_that_are_left_out_are_counted_in_the_first_line():
    document = {"query": {"texts": "a.csv", "reading": ""}, "neighbours": [], "compared": 3}
    document |= {"left_out": [], "meaning": ""}

    with_one, with_none = (
        next(iter(show_trained_models({**document, "without_footprint": n}))) for n in (1, 0)
    )

    assert "nothing was run; not compared: 1 model without a footprint" in with_one
    assert with_none.endswith("nothing was run")
