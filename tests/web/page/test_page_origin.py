"""Where a model comes from, on its card, in a real browser."""

import pytest
from stand_in import HOSTILE, MadeUp, plain, served
from test_page_map import click_model

pytestmark = pytest.mark.slow


class WithTraces(MadeUp):
    """The same family, in which every model is a merge whose layers moved."""

    def answer(self, path, query):
        if not path.endswith("/trace"):
            return super().answer(path, query)
        self.requests["trace"] += 1
        parents = [{"model": "lab3/m000003", "weight": 0.6}, {"model": HOSTILE, "weight": 0.4}]
        return 200, {
            "model": path, "base": "b", "verdict": "merge", "p": 1e-30,
            "layers": [[0, 0], [1, 2]], "changes": ["layer 1 dropped"], "notes": [],
            "parents": parents, "method": "linear", "complete": True,
            "reconstructed_share": 0.998, "bytes_read": 250_000,
            "sentence": "m: a merge of models of b",
        }  # fmt: skip


@pytest.fixture(scope="module")
def traced():
    with served(made := WithTraces()) as at:
        yield made, at


def test_a_card_traces_its_model_when_it_is_asked(visit, traced):
    made, address = traced
    page = visit(address, width=390, height=900)
    before = made.requests["trace"]

    click_model(page, 0)
    page.wait_for_selector("#origin button")
    asked_unasked = made.requests["trace"] - before
    page.locator("#origin button").click()
    page.wait_for_selector("#origin tbody tr")
    shown = plain(page, "#origin")
    page.locator("#origin summary").click()
    layers = page.locator("#origin details p").inner_text()
    page.locator("#origin tbody button").click()
    page.locator("#card-title", has_text="lab3/m000003").wait_for()

    assert asked_unasked == 0
    for text in ("a merge of models of b", "layer 1 dropped", "0.60", "merged by linear", "99.8 %"):
        assert text in shown
    assert layers == "0 ← 0, 1 ← 2"
    assert page.evaluate("window.hacked") is None
