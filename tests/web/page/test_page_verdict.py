"""The card's verdict, short names, copies, and what words mean."""

import pytest
from stand_in import MadeUp, plain, served

pytestmark = pytest.mark.slow


class WithCopies(MadeUp):
    """The same family, whose first model has the next two of its dataset as copies."""

    def __post_init__(self):
        super().__post_init__()
        for copy in (5, 10):
            self.rows[copy] |= {"x": self.rows[0]["x"], "y": self.rows[0]["y"]}


@pytest.fixture(scope="module")
def copies():
    with served(WithCopies(models=20, names=tuple(f"lab0/run-{n}" for n in range(20)))) as address:
        yield address


class Contradicting(MadeUp):
    """The same family, where a neighbour's label contradicts the weights and nothing is sure."""

    def similar(self, query):
        status, found = super().similar(query)
        for at, near in enumerate(found["neighbours"]):
            near |= {"verdict": "no model stands out", "probability": 0.01 * at}
        first = found["neighbours"][0]
        doubt = {"model": first["model"], "dataset": first["dataset"], "own_z": 0.3}
        found["suspects"] = [doubt | {"nearer": "trec", "z": 8.1}]
        return status, found


def test_contradicting_labels_are_told_in_place_of_nothing_and_the_order_is_what_is_shown(visit):
    names = tuple(f"lab0/run-{n}" for n in range(20))
    with served(Contradicting(models=20, names=names)) as address:
        page = visit(f"{address}?model=lab0/run-1")
        page.wait_for_selector("#neighbours tbody tr")
        shown = plain(page, "#neighbours")
        column = page.locator("#neighbours td.number").all_inner_texts()

    assert "They are alike, but labels of this catalog contradict one another" in shown
    assert "No model stands out" not in shown
    assert "The likeliest has 0.09, a verdict needs 0.72." in shown
    assert "is labelled sst2 (z 0.3), and nearer to trec (z 8.1)" in shown
    assert "its dataset" not in shown
    assert column == [f"0.0{9 - n}" for n in range(10)]


def test_copies_are_one_line_with_a_badge(visit, copies):
    page = visit(f"{copies}?model=lab0/run-15")
    page.wait_for_selector("#neighbours tbody tr")

    badge = page.locator("#neighbours .badge")
    assert badge.all_inner_texts() == ["×3"]
    assert badge.get_attribute("aria-label").startswith("and 2 copies: lab0/run-")
    assert page.locator("#neighbours tbody tr").count() == 8


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [
        ("author-{n}/m0", "author-{n}/m0"),
        ("lab/run-{n}", "run-{n}"),
        (
            "u/run{n}__Tuning-a-Model__of__data__checkpoint-20",
            "run{n}__Tuning-a-…data__checkpoint-20",
        ),
        ("u/x__Fine-Tuning-Model-{n}__data__checkpoint-20",) * 2,
    ],
)
def test_names_are_cut_at_their_signs_and_stay_apart(visit, pattern, shown):
    names = tuple(pattern.format(n=n) for n in range(20))
    with served(MadeUp(models=20, names=names)) as address:
        page = visit(f"{address}?model={names[1]}")
        page.wait_for_selector("#neighbours tbody tr")
        best = page.locator("#neighbours .headline b")
        n = names.index(best.get_attribute("title"))

        assert best.inner_text() == shown.format(n=n).removeprefix("u/x__")
