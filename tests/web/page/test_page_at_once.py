"""What the page shows while the service still computes."""

import pytest
from stand_in import MadeUp, plain, served, until


@pytest.fixture
def busy():
    return MadeUp(models=20)


def test_no_view_waits_for_the_map(visit, busy):
    busy.underway["map"] = {"percent": 30, "ahead": 2, "elapsed_s": 41.0}
    with served(busy) as address:
        page = visit(f"{address}?view=lineage&model=lab1/m000001", ready=False)
        page.wait_for_selector("#lineage-body .leaf")
        ready = page.locator("body.ready").count()
        heading = page.locator("#counted").text_content()
        busy.underway.clear()

        page.wait_for_selector("body.ready", state="attached")
    assert (ready, heading) == (0, "")
    assert page.locator("#lineage-body .leaf").count() > 0


def test_a_card_is_there_before_the_map_and_gets_its_links_with_it(visit, busy):
    busy.underway["map"] = {}
    with served(busy) as address:
        page = visit(f"{address}?view=models&model=lab1/m000001", ready=False)
        page.wait_for_selector("#neighbours tbody tr")
        links = page.evaluate("deltadex.map.links.length")
        asked = busy.requests["similar"]
        busy.underway.clear()
        until(page, "deltadex.map.links.length === 10")

    assert (links, asked, busy.requests["similar"]) == (0, 1, 1)


def test_a_job_says_how_far_it_is_and_can_be_stopped_and_begun_again(visit, busy):
    busy.underway["evaluation"] = {"percent": 0, "ahead": 2, "elapsed_s": 7.2}
    with served(busy) as address:
        page = visit(f"{address}?view=evaluation")
        page.wait_for_selector("#evaluation-body >> text=2 jobs before it · 7 s")
        busy.underway["evaluation"] = {"percent": 40, "ahead": 0, "elapsed_s": 8.0}
        page.wait_for_selector("#evaluation-body >> text=40 % done · 8 s")
        page.get_by_role("button", name="Stop", exact=True).click()
        page.wait_for_selector("#evaluation-body >> text=Stopped")
        stopped = "evaluation" not in busy.underway
        page.get_by_role("button", name="Start again").click()

        page.wait_for_selector(".confusion")
    assert stopped


def test_the_axes_come_first_and_the_models_move_to_the_layout(visit, busy):
    whole = busy.map

    def look(query):
        status, document = whole(query)
        if query.get("axes") == "false":
            return status, document
        ahead = {"layout": "tsne", "percent": 0, "job": "map"}
        axes = {"layout": "pca", "x": document["y"], "y": document["x"], "explained": [0.5, 0.2]}
        return status, document | axes | {"computing": ahead}

    busy.map = look
    rest = busy.answer

    def answer(path, query):
        if path == "map" and query.get("axes") == "false" and busy.underway:
            known = {"percent": 60, "ahead": 0, "elapsed_s": 3.0}
            return 202, known | {"retry_after_s": 0.2, "job": "m"}
        return rest(path, query)

    busy.underway["axes"] = {}
    busy.answer = answer
    with served(busy) as address:
        page = visit(f"{address}?model=lab1/m000001")
        page.wait_for_selector("#layout-note >> text=60 % done")
        words = plain(page, "#layout-note")
        page.wait_for_selector("#neighbours tbody tr")
        first = page.evaluate("[...deltadex.map.family.x].slice(0, 3)")
        busy.underway.clear()
        until(page, "document.getElementById('layout-note').innerText.startsWith('Near')")

    assert words.startswith("Two axes, until t-SNE is there. 60 % done · 3 s")
    assert page.evaluate("[...deltadex.map.family.x].slice(0, 3)") != first
    assert page.evaluate("deltadex.map.links.length") == 10
    assert busy.requests["similar"] == 1


@pytest.mark.slow
def test_while_indexes_open_the_page_says_how_far_and_what_answers(visit, busy):
    busy.opening = {"percent": 43, "searchable": []}
    with served(busy) as address:
        page = visit(address)
        first = plain(page, "#opening")
        busy.opening["searchable"] = ["base-model"]
        page.wait_for_selector("#opening >> text=Searches answer for base-model")
        busy.opening = None
        page.wait_for_selector("#opening", state="hidden")

    assert first.startswith("Opening the indexes: 43 % done. Searches wait")


def test_an_unknown_family_names_those_there_are(visit, busy):
    with served(busy) as address:
        page = visit(f"{address}?base=nope", ready=False)
        page.wait_for_selector("#lost >> text=No family nope")
        page.get_by_role("link", name="base-model").click()

        page.wait_for_selector("body.ready")
