"""Kept data sets in a real browser: stars on the map, a list on a model's card."""

import pytest
from stand_in import HOSTILE, MadeUp, plain, served, until
from test_page_map import click_model

pytestmark = pytest.mark.slow

PLACE = """() => {
  const { map } = deltadex, { x, y } = map.family.stars[0];
  return map.view.toScreen(x, y);
}"""


class WithData(MadeUp):
    """The same family with two kept data sets, and a third whose name is markup."""

    def map(self, query):
        status, document = super().map(query)
        data = [
            ("acme-chats", 0.4, 0.3, 512, "likely the same data"),
            ("reviews", -0.8, -0.2, 64, "no model stands out"),
            (HOSTILE, 1.2, -0.9, 8, "perhaps"),
        ]
        return status, document | {
            "data": [
                {
                    "name": name, "x": x, "y": y, "examples": n, "loss": "causal",
                    "verdict": verdict,
                    "nearest": [{"model": "lab3/m000003", "z": 5.1, "fdr": 0.004,
                                 "verdict": verdict}],
                }
                for name, x, y, n, verdict in data
            ]
        }  # fmt: skip

    def answer(self, path, query):
        if path == "nearest-data":
            self.requests[path] += 1
            near = [("acme-chats", 5.1, 0.004, "likely the same data"),
                    ("reviews", -0.3, 1.0, "no model stands out")]  # fmt: skip
            return 200, {
                "query": {"model": query["model"]},
                "data": [
                    {"rank": n + 1, "data": name, "z": z, "fdr": fdr, "verdict": verdict}
                    for n, (name, z, fdr, verdict) in enumerate(near)
                ],
            }
        return super().answer(path, query)


@pytest.fixture(scope="module")
def with_data():
    with served(WithData()) as at:
        yield at


def test_stars_are_listed(visit, with_data):
    page = visit(with_data)

    listed = page.locator("#stars button").all_inner_texts()
    assert [text.split("\n")[0] for text in listed] == ["acme-chats", "reviews", HOSTILE]
    assert [text.split("\n")[-1] for text in listed] == ["512", "64", "8"]
    assert page.locator("#stars .star.hollow").count() == 1
    assert "Hollow: no model stands out." in page.locator("#stars").inner_text()
    assert page.evaluate("window.hacked") is None


def test_a_star_says_what_it_is_and_leads_to_its_nearest_model(visit, with_data):
    page = visit(with_data)
    box, place = page.locator("#stage").bounding_box(), page.evaluate(PLACE)
    x, y = place[0] + box["x"], place[1] + box["y"]

    page.mouse.move(x, y)
    until(page, "deltadex.map.starred === 0")
    shown = plain(page, "#tooltip")
    page.mouse.click(x, y)
    page.wait_for_selector("#card-title")

    assert "data set acme-chats" in shown
    assert "512 examples · causal" in shown
    assert "nearest model: lab3/m000003, likely the same data" in shown
    assert "z 5.1 · fdr 0.4 %" in shown
    assert page.locator("#card-title").inner_text() == "lab3/m000003"


def test_a_card_lists_the_nearest_data(visit, with_data):
    page = visit(with_data)

    click_model(page, 7)
    page.wait_for_selector("#nearest-data tbody tr")
    shown = plain(page, "#nearest-data")
    page.locator("#nearest-data tbody tr").nth(1).hover()
    until(page, "deltadex.map.starred === 1")
    page.keyboard.press("Escape")
    page.wait_for_selector("#card", state="hidden")

    assert "acme-chats" in shown
    assert "likely the same data" in shown
    assert "z 5.1 · fdr 0.4 %" in shown
    assert page.locator("#nearest-data .verdict.none").first.inner_text() == ""
    assert "or on data like it" in shown
