"""The other views, the states between, the address, the looks."""

import pytest
from stand_in import MadeUp, plain, served, until
from test_page_hands import DROP
from test_page_map import click_model

WIDTHS = (1440, 390)
VIEWS = ("map", "models", "clusters", "lineage", "evaluation", "failures")
SETTLED = {
    "map": "#neighbours tbody tr",
    "models": "#models-body tbody tr",
    "clusters": "#clusters-body .cluster",
    "lineage": "#lineage-body .lineage .leaf",
    "evaluation": "#evaluation-body .confusion",
    "failures": "#failures-body .failure",
}


def test_the_evaluation_shows_purity_chance_and_confusion(visit, address):
    page = visit(address + "?view=evaluation")
    page.wait_for_selector(".confusion")

    text = plain(page, "#evaluation-body")
    for phrase in ("75.0 %", "70 % to 80 %", "20.0 %", "80.0 %"):
        assert phrase in text
    assert page.locator(".bars.wide .chance").count() == 5
    assert plain(page, ".bars.wide tbody tr >> nth=0").split() == ["imdb", "12", "95", "%"]
    diagonal = page.locator(".confusion tbody tr").first.locator("td").all_inner_texts()
    assert diagonal == ["10", "1", "·", "·", "·", "1"]
    with page.expect_request(lambda r: "exclude=author" in r.url):
        page.select_option("#exclude", "author")
    page.select_option("#exclude", "run")
    page.wait_for_selector("#evaluation-body >> text=too few to tell: 4 datasets have siblings")
    few = plain(page, "#evaluation-body")
    assert "95 % interval" not in few
    assert "7 queries, a sample of 60, among 60 models" in few
    with page.expect_request(lambda r: "evaluation" in r.url and "recipe=mean-factors-1" in r.url):
        page.select_option("#view-evaluation .recipe", "mean-factors-1")


def test_a_family_of_which_no_two_models_share_a_dataset_is_not_asked_for_scores(visit):
    few = MadeUp(models=5)
    with served(few) as address:
        page = visit(address + "?view=evaluation")
        page.wait_for_selector("#evaluation-body >> text=Scores need two labelled models")

    assert few.requests["evaluation"] == 0


def test_clusters_come_after_a_wait_and_lead_to_the_map(visit, address, family):
    family.requests.clear()
    page = visit(address + "?view=clusters")
    page.wait_for_selector(".cluster")

    text = plain(page, "#clusters-body")
    assert family.requests["clusters"] == 2
    assert "96 % of such suggestions are right" in text
    assert "2 of these with a hint" in text
    assert [plain(page, f"table.list >> nth={n} >> tbody >> tr >> nth=0").split("\t")[-1]
            for n in (0, 1)] == ["3 %", "40 %"]  # fmt: skip
    page.get_by_role("button", name="Show about sst2 on the map").click()
    until(page, "document.getElementById('counted').innerText === '12 of 60 models'")
    assert page.locator("#categories >> text=about sst2").count() == 1


def test_a_lineage_is_a_tree_that_keys_fold_and_that_leads_to_cards(visit, address, family):
    page = visit(address + "?view=lineage", width=390)
    page.wait_for_selector(SETTLED["lineage"])
    names = [row["model"] for row in family.rows]

    text = plain(page, "#lineage-body")
    assert "20 without a known parent" in text
    assert f"merge · weight 0.60 · with {names[0]} 0.40 · p 0.90" in text
    assert f"{names[1]}: card says base; weights say fine-tune of {names[0]}" in text
    page.locator(".lineage .fold").first.focus()
    page.keyboard.press("Enter")
    assert page.locator(".lineage .fold[aria-expanded=false]").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator(".lineage .leaf .link:visible").last.click()
    page.wait_for_selector("#card-title")


def test_models_without_relatives_are_folded_and_the_others_have_colours_and_data_sets(visit):
    family = MadeUp(models=12, base="org/name-of-a-base")
    whole, names = family.lineage, [row["model"] for row in family.rows]

    def lineage():
        document = whole()[1]
        keep = [edge for edge in document["edges"] if edge["child"] not in names[6:]]
        lone = [keep[0] | {"child": name, "parent": family.base} for name in names[6:]]
        return 200, document | {"edges": keep + lone}

    family.lineage = lineage
    with served(family) as address:
        page = visit(address + "?view=lineage")
        page.wait_for_selector(".lineage .leaf .swatch")
        leaf = page.locator(".leaf").first
        before = page.locator(".leaf:visible").count()
        page.get_by_text("6 models without relatives").click()

        assert page.locator(".leaf:visible").count() == before + 6
        assert leaf.locator(".swatch").count() == 1
        assert "imdb" in leaf.inner_text()
        assert plain(page, ".lineage-root") == "name-of-a-base"


def test_failures_are_grouped_with_their_meaning(visit, address):
    page = visit(address + "?view=failures")
    page.wait_for_selector(".failure")

    first = page.locator(".failure").first
    for phrase in ("unreadable", "a file of the model cannot be read", "failed", "broken/1"):
        assert phrase in first.inner_text()
    assert page.locator("#failures-body").inner_text().count("onerror") == 3
    assert page.evaluate("window.hacked") is None


def test_the_table_is_sorted_filtered_and_paged(visit, address):
    page = visit(address + "?view=models")
    page.wait_for_selector(".pager")

    page.get_by_role("button", name="Next page").click()
    until(page, "document.querySelectorAll('#models-body tbody tr').length === 10")
    page.get_by_role("button", name="Downloads").click()
    page.wait_for_selector("#models-body th[aria-sort=descending] >> text=Downloads")
    page.locator("#models-body tbody .link").nth(3).click()
    page.wait_for_selector("#card-title")
    page.wait_for_selector("#models-body tr.on")

    assert page.locator(".pager").inner_text().strip() == "Page 1 of 2"
    assert page.locator("#models-body tr.on").count() == 1


def test_the_list_of_models_counts_its_facets_and_each_filters_it(visit, address):
    page = visit(address + "?view=models")
    kinds = page.get_by_role("group", name="Kind").get_by_role("button")
    page.wait_for_selector(".facet")
    before = kinds.all_inner_texts()

    kinds.filter(has_text="adapter").click()
    page.wait_for_selector("#models-body >> text=20 models pass the filters")
    pressed = page.locator(".facet [aria-pressed=true]").inner_text()
    datasets = page.get_by_role("group", name="Dataset").get_by_role("button").count()
    page.locator(".facet [aria-pressed=true]").click()
    page.wait_for_selector("#models-body >> text=60 models")

    assert [text.split() for text in before] == [["full", "fine-tune", "40"], ["adapter", "20"]]
    assert pressed.split() == ["adapter", "20"]
    assert datasets == 5


@pytest.mark.slow
def test_an_error_is_told_and_can_be_tried_again(visit):
    torn = MadeUp(models=12, broken={"lineage"})
    with served(torn) as address:
        page = visit(f"{address}?view=lineage", expected="500")
        page.wait_for_selector("[role=alert] >> text=the index is torn")
        torn.broken.clear()
        page.get_by_role("button", name="Try again").click()

        page.wait_for_selector(SETTLED["lineage"])


def test_an_empty_catalog_says_how_to_fill_it(visit):
    with served(MadeUp(models=0)) as address:
        page = visit(address, ready=False)

        page.wait_for_selector("#map-notice >> text=deltadex index BASE FOLDER")


@pytest.mark.slow
def test_an_address_gives_the_same_state_again(visit, address):
    page = visit(address)
    page.select_option("#colour", "author")
    page.locator("#categories button").nth(2).click()
    page.click("#filter")
    page.select_option("#filter-kind", "full")
    page.click("#filters-close")
    click_model(page, 0)
    page.wait_for_selector("#neighbours tbody tr")
    page.locator("#neighbours button[aria-label^=Explain]").nth(1).click()
    page.wait_for_selector("#explain .bars")
    page.mouse.move(560, 420)
    page.mouse.wheel(0, -300)
    page.wait_for_timeout(400)
    state = """() => ({ at: deltadex.state.current,
      words: ["#counted", "#card-title", "#explain p", "#chips"]
        .map((name) => document.querySelector(name).innerText),
      camera: Object.values(deltadex.map.view.camera).map((v) => v.toFixed(2)),
      hidden: [...deltadex.map.hidden] })"""
    before = page.evaluate(state)

    again = visit(page.url)
    again.wait_for_selector("#explain .bars")

    assert again.evaluate(state) == before
    assert before["camera"][2] != "1.00"
    assert before["at"]["other"]


def test_back_and_forward_walk_through_selections(visit, address):
    page = visit(address)
    click_model(page, 0)
    page.wait_for_selector("#neighbours tbody tr")
    first = page.locator("#card-title").inner_text()
    page.locator("#neighbours .link").first.click()
    until(page, f"document.getElementById('card-title')?.innerText !== '{first}'")
    page.click("#views [data-view=evaluation]")
    page.wait_for_selector(".confusion")

    page.go_back()
    page.wait_for_selector("#card-title")
    page.go_back()
    page.wait_for_selector(f"#card-title >> text={first}")
    page.go_back()
    until(page, "document.getElementById('card').hidden")
    page.go_forward()
    page.wait_for_selector(f"#card-title >> text={first}")


def test_a_phone_shows_every_view_without_scrolling_sideways(visit, address):
    page = visit(
        address + "?model=lab1/m000001", width=360, height=740, has_touch=True, is_mobile=True
    )
    for view in VIEWS:
        page.click(f"#views [data-view={view}]")
        page.wait_for_selector(SETTLED[view])

        assert page.evaluate("document.documentElement.scrollWidth") == 360
        assert page.evaluate(
            "[...document.querySelectorAll('main > section')]"
            ".every((section) => section.scrollWidth <= section.clientWidth + 1)"
        )
    page.click("#views [data-view=map]")
    page.click("#card button[aria-label='Close the card']")
    page.click("#legend-toggle")
    assert page.locator("#categories button").first.is_visible()


def explained(page):
    page.locator("#neighbours button[aria-label^=Explain]").first.click()
    page.wait_for_selector("#explain .bars")
    page.click("#filter")


def dropped(page):
    page.evaluate(DROP, [["a.txt", [97]]])
    page.wait_for_selector("#card >> text=dropped here")


def refused(page):
    page.evaluate(DROP, [["photo.png", [97]]])
    page.wait_for_selector("#dropping [role=alert]")


def asked_by_words(page):
    page.locator("#search").fill("a review of a film")
    page.wait_for_selector("#found >> text=by film, review")


def legend(page):
    if page.locator("#legend-toggle").is_visible():
        page.click("#legend-toggle")


STATES = [
    ("", "body.ready", legend),
    ("", "body.ready", asked_by_words),
    *((f"?view={view}", SETTLED[view], None) for view in VIEWS[1:]),
    ("?model=lab1/m000001", SETTLED["map"], explained),
    ("?model=nobody/nothing", "#card >> text=List them", None),
    ("?counts=on&kind=full", "#selection tbody tr", None),
    ("", "body.ready", dropped),
    ("", "body.ready", refused),
    ("?base=nope", "#lost a", None),
]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing_in_any_view(visit, address, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = visit(address, width=width, expected="404", color_scheme=scheme)
    for query, settled, act in STATES:
        page.goto(address + query)
        page.wait_for_selector(settled)
        if act is not None:
            act(page)
        # what is asked again is dimmed until it comes
        until(page, "!document.querySelector('[aria-busy=true]')")
        result = axe.run(page)

        assert result.violations_count == 0, f"{query}: {result.generate_report()}"
