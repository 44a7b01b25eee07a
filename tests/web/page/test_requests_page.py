"""Swagger UI over a real service: all of it from the service, under the page's policy."""

import pytest
from factories import make_family
from listening import listening

import deltadex as dx


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    folder = tmp_path_factory.mktemp("family")
    with dx.open(folder / "c.duckdb") as db:
        db.index(folder / "base", make_family(folder))
    with listening(folder / "c.duckdb") as address:
        yield address


@pytest.mark.slow
def test_every_request_is_shown_and_can_be_sent_without_another_host(visit, url, tmp_path):
    page = visit(f"{url}api/v1/docs", ready=False)
    page.locator(".opblock").first.wait_for(timeout=60_000)
    stats = page.locator(".opblock").filter(has=page.locator('[data-path="/api/v1/stats"]'))
    stats.locator(".opblock-summary-control").click()
    stats.get_by_role("button", name="Try it out").click()
    stats.get_by_role("button", name="Execute").click()
    stats.locator(".live-responses-table .response-col_status", has_text="200").first.wait_for()
    page.screenshot(path=tmp_path / "requests.png")
    document = page.evaluate("fetch('openapi.json').then(answer => answer.json())")

    shown = page.locator(".opblock").count()
    assert shown == sum(len(operations) for operations in document["paths"].values())
