"""The page and Swagger UI over the real service and a real catalog, under the page's policy."""

import pytest
from factories import make_family
from listening import listening

import deltadex as dx


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("family")
    models = make_family(folder)
    with dx.open(folder / "c.duckdb") as db:
        db.index(folder / "base", models, labels=models / "labels.csv")
    with listening(folder / "c.duckdb") as address:
        yield address


def test_the_service_answers_what_the_page_asks(visit, service):
    page = visit(service)
    assert page.locator("#counted").inner_text() == "4 fine-tunes of base"

    page.locator("#search").fill("a-0")
    page.keyboard.press("Enter")
    page.wait_for_selector("#neighbours tbody tr")
    nearest = page.locator("#neighbours .link").first.inner_text()
    page.wait_for_selector(".heat td")
    page.locator("#neighbours button[aria-label^=Explain]").first.click()
    page.wait_for_selector("#explain .bars")
    for view in ("models", "clusters", "lineage", "evaluation", "failures"):
        page.click(f"#views [data-view={view}]")
        page.wait_for_selector(f"#{view}-body:not([aria-busy]) > *", timeout=60_000)

        assert page.locator("[role=alert]:visible").count() == 0, view
    assert nearest == "a-1"


@pytest.mark.slow
def test_every_request_is_shown_and_can_be_sent_without_another_host(visit, service):
    page = visit(f"{service}api/v1/docs", ready=False)
    page.locator(".opblock").first.wait_for(timeout=60_000)
    stats = page.locator(".opblock").filter(has=page.locator('[data-path="/api/v1/stats"]'))
    stats.locator(".opblock-summary-control").click()
    stats.get_by_role("button", name="Try it out").click()
    stats.get_by_role("button", name="Execute").click()
    stats.locator(".live-responses-table .response-col_status", has_text="200").first.wait_for()
    document = page.evaluate("fetch('openapi.json').then(answer => answer.json())")

    shown = page.locator(".opblock").count()
    assert shown == sum(len(operations) for operations in document["paths"].values())
