"""The map in a real browser: points, legend, search, card, links, keys."""

import re

import pytest
from stand_in import MadeUp, plain, served, until

DRAWN = """() => {
  const { map } = deltadex, { gl } = map.renderer;
  map.paint();
  const { width, height } = gl.canvas, pixels = new Uint8Array(4 * width * height);
  gl.readPixels(0, 0, width, height, gl.RGBA, gl.UNSIGNED_BYTE, pixels);
  const colours = new Set();
  for (let i = 0; i < pixels.length; i += 4) {
    colours.add(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]);
  }
  return [...colours];
}"""
BLUE, VERMILION = 0x0072B2, 0xD55E00


def near(colours, wanted, reach=18):
    def parts(c):
        return c >> 16, c >> 8 & 255, c & 255

    return any(
        max(abs(a - b) for a, b in zip(parts(c), parts(wanted), strict=True)) <= reach
        for c in colours
    )


def rows(page, selector="#categories button"):
    return page.locator(selector).all_inner_texts()


def click_model(page, n):
    """Click on the n-th model where the map has drawn it."""
    x, y = page.evaluate(
        """(n) => {
          const { map } = deltadex;
          const { left, top } = document.getElementById("stage").getBoundingClientRect();
          const [x, y] = map.view.toScreen(map.family.x[n], map.family.y[n]);
          return [x + left, y + top];
        }""",
        n,
    )
    page.mouse.click(x, y)


def test_points_are_drawn_in_the_colours_of_the_legend(visit, address):
    page = visit(address)

    assert near(page.evaluate(DRAWN), BLUE)
    assert near(page.evaluate(DRAWN), VERMILION)
    assert [text.split("\n")[0] for text in rows(page)] == [
        "agnews", "imdb", "sst2", "trec", "mpqa", "unlabelled"]  # fmt: skip
    assert page.locator("#counted").inner_text() == "60 fine-tunes of base-model"


def test_the_legend_hides_and_isolates(visit, address):
    page = visit(address)
    first = page.locator("#categories button").first

    first.click()
    hidden = page.evaluate(DRAWN), page.url, page.locator("#counted").inner_text()
    first.click()
    first.dblclick()
    alone = page.evaluate(DRAWN), page.url

    assert first.get_attribute("aria-pressed") == "true"
    assert not near(hidden[0], BLUE)
    assert "off=%3Dagnews" in hidden[1]
    assert hidden[2] == "49 of 60 models"
    assert near(alone[0], BLUE)
    assert not near(alone[0], VERMILION)
    assert "only=%3Dagnews" in alone[1]
    assert page.locator("#categories [aria-pressed=true]").count() == 1


FREE = """() => { const { map } = deltadex, { left, right, top, bottom } = map.view.inset;
  const [width, height] = map.view.size, { family, chosen, links } = map;
  return [chosen, ...links.map(({ at }) => at)].every((i) => {
    const [x, y] = map.view.toScreen(family.x[i], family.y[i]);
    return x > left && x < width - right && y > top && y < height - bottom; }); }"""
CAMERA = "() => Object.values(deltadex.map.view.camera).map((value) => value.toFixed(3))"


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_choice_fits_its_neighbours_into_the_free_space_and_gives_the_view_back(
    visit, address, by_hand
):
    page = visit(address)
    page.evaluate("""() => { const { map } = deltadex;
        map.view.set({ x: map.family.x[1], y: map.family.y[1], zoom: 9 }); }""")
    before = page.evaluate(CAMERA)

    click_model(page, 1)
    page.wait_for_selector("#neighbours tbody tr")
    fits = page.evaluate(FREE)
    if by_hand:
        page.click("#closer")
    moved = page.evaluate(CAMERA)
    page.keyboard.press("Escape")

    assert fits
    assert moved != before
    after = page.evaluate(CAMERA)
    assert after[2] == moved[2] if by_hand else after == before


@pytest.mark.parametrize("view", ["", "&at=0.5000,0.2500,1.500"])
def test_a_link_to_a_model_fits_its_neighbours_unless_it_holds_a_view(visit, address, view):
    page = visit(f"{address}?model=lab1/m000001{view}")
    page.wait_for_selector("#neighbours tbody tr")

    camera = page.evaluate(CAMERA)
    assert camera == ["0.500", "0.250", "1.500"] if view else float(camera[2]) > 1
    assert view or page.evaluate(FREE)


def test_search_offers_as_one_types_and_enter_flies_there(visit, address):
    page = visit(address)

    page.keyboard.press("/")
    page.keyboard.type("m00001")
    page.wait_for_selector("#found [role=option]")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    active = page.locator("#search").get_attribute("aria-activedescendant")
    wanted = page.locator(f"#{active} .name").inner_text()
    page.keyboard.press("Enter")

    page.wait_for_selector(f"#card-title >> text={wanted}")
    assert page.locator("#found").is_hidden()
    assert page.evaluate("deltadex.map.view.camera.zoom") > 1.5
    assert page.evaluate("deltadex.map.family.id(deltadex.map.chosen)") == wanted


def test_a_text_that_names_no_model_finds_those_whose_data_is_about_it(visit, address, family):
    page, before = visit(address), family.requests["search"]

    page.locator("#search").fill("m00001")
    page.wait_for_selector("#found [role=option]")
    by_name = family.requests["search"] - before
    page.locator("#search").fill("a review of a film")
    page.wait_for_selector("#found >> text=by film, review")
    models = page.locator("#found .name").all_inner_texts()
    page.wait_for_selector("#found >> text=2 models found by words, none by name")
    page.keyboard.press("Enter")
    is_open = page.locator("#found").is_visible()
    page.keyboard.press("Enter")

    page.wait_for_selector(f"#card-title >> text={models[0]}")
    assert by_name == 0
    assert is_open
    assert models == ["lab0/m000000", "lab5/m000005"]  # the others match nothing


def test_words_that_models_have_and_none_stands_out_for_are_not_denied(visit):
    family = MadeUp(models=20)
    answer = family.search({"text": "film", "k": "3"})[1]
    for near in answer["neighbours"]:
        near["verdict"] = "matches nothing"
    family.search = lambda _: (200, answer)
    with served(family) as address:
        page = visit(address)
        page.locator("#search").fill("film")
        page.wait_for_selector("#found >> text=No model of that name, and none stands out for film")


def test_a_click_opens_the_card_with_neighbours_links_and_changes(visit, address, family):
    page = visit(address)

    click_model(page, 1)
    page.wait_for_selector("#neighbours tbody tr")

    model = family.rows[1]
    card = page.locator("#card")
    assert page.locator("#card-title").inner_text() == model["model"]
    top = page.locator("#card-top").inner_text()
    assert "full fine-tune · base-model · text-classification · mit · 2024-05-06" in top
    assert "By its weights: film, actor, scene" in top
    assert f"{model['dataset']}\nstated by its card" in top
    page.locator("#facts summary").click()
    for text in (model["dataset"], model["author"], "mit", "2024-05-06", "text-classification"):
        assert text in card.inner_text()
    link = page.locator("#card a.out")
    assert link.get_attribute("href") == f"https://huggingface.co/{model['model']}"
    assert link.get_attribute("rel") == "noopener noreferrer"
    assert page.locator("#neighbours tbody tr").count() == 10
    nearest = page.locator("#neighbours .link").first
    assert re.fullmatch(
        rf"Likely the same data as {nearest.inner_text()}, \w+ "
        r"\(0\.2 % of such answers are wrong\)",
        plain(page, "#neighbours .headline"),
    )
    assert "Likely the same data: 2 models, perhaps: 3 models, of 59 compared." in card.inner_text()
    assert nearest.inner_text() in nearest.get_attribute("title")
    calibrated = "Probability from 54 labelled models, 5 datasets; a verdict needs 0.72."
    assert calibrated in card.inner_text()
    assert page.locator("#neighbours tbody td").first.inner_text() == "0.98"
    under = plain(page, "#neighbours .under >> nth=0")
    assert re.fullmatch(r"likely the same data · (= )?\w+", under)
    page.get_by_role("button", name="Numbers").click()
    more = plain(page, "#neighbours .more >> nth=0")
    assert re.fullmatch(r" ?· z \d+\.\d · fdr 0\.2 % · cosine 0\.500", more)
    assert page.locator("#neighbours .verdict").count() == 5
    assert page.evaluate("deltadex.map.links.length") == 10
    assert page.evaluate("""() => { const { width, height } = document.getElementById("overlay");
        deltadex.map.paint();
        return document.getElementById("overlay").getContext("2d")
          .getImageData(0, 0, width, height).data.some((v) => v > 0); }""")


def test_the_heat_map_is_a_table_of_layers_by_roles(visit, address):
    page = visit(address + "?model=lab1/m000001")
    page.wait_for_selector(".heat")

    header = page.locator(".heat thead th").all_inner_texts()
    first = page.locator(".heat tbody tr").first.locator("th, td").all_inner_texts()
    page.get_by_role("button", name="Stable rank").click()
    ranks = page.locator(".heat tbody tr").nth(2).locator("td").all_inner_texts()

    assert header == ["layer", "q", "k", "v", "o", "up", "down"]
    assert first == ["0", "0.40", "0.50", "0.60", "0.70", "0.80", "0.90"]
    assert set(ranks) == {"3.0"}
    assert "measure=rank" in page.url


def test_a_likeness_is_explained_by_role_layer_and_matrix(visit, address):
    page = visit(address + "?model=lab1/m000001")

    page.locator("#neighbours button[aria-label^=Explain]").first.click()
    page.wait_for_selector("#explain .bars")

    text = plain(page, "#explain")
    for phrase in ("By role", "By layer", "0.400", "17 %", "25 %", "1 matrix only"):
        assert phrase in text
    page.get_by_role("button", name="Show all 24 matrices").click()
    assert page.locator("#explain .bars").last.locator("tr").count() == 24
    assert "other=" in page.url


def test_one_panel_is_open_at_a_place_and_the_map_is_beside_it(visit, address):
    page = visit(address)

    def seen():
        panels = ("filters", "selection", "card")
        return [panel for panel in panels if page.locator(f"#{panel}").is_visible()]

    page.click("#filter")
    opened = seen()
    left = page.locator("#filters").bounding_box()["x"]
    width, inset = page.evaluate("[deltadex.map.view.size[0], deltadex.map.view.inset.right]")
    page.click("#counts")
    opened += seen()
    page.click("#filter")
    opened += seen()
    click_model(page, 1)

    assert width - inset <= left
    assert opened + seen() == ["filters", "selection", "filters", "card"]


def test_filters_apply_to_points_counts_neighbours_and_say_what_is_wrong(visit, address):
    page = visit(address + "?model=lab1/m000001", expected="422")
    page.wait_for_selector("#neighbours tbody tr")

    page.click("#filter")
    page.select_option("#filter-kind", "adapter")
    until(page, "document.getElementById('counted').innerText === '20 of 60 models'")
    until(
        page,
        "[...document.querySelectorAll('#neighbours tbody tr')].length === 10"
        " && deltadex.map.links.every((l) => deltadex.map.family.hollow[l.at])",
    )
    page.fill("#filter-downloads", "1000")
    page.keyboard.press("Enter")
    page.fill("#filter-where", "dataset = 'imdb'")
    page.keyboard.press("Enter")
    until(
        page,
        "parseInt(document.getElementById('counted').innerText) < 5 && deltadex.map.family.where",
    )
    chips = page.locator("#chips button").count()
    page.fill("#filter-where", "oh no")
    page.keyboard.press("Enter")
    page.wait_for_selector("#where-problem >> text=cannot read 'oh no'")

    assert chips == 3
    assert page.locator("#filter-where").get_attribute("aria-invalid") == "true"
    page.click("#clear")
    until(page, "document.getElementById('counted').innerText === '60 fine-tunes of base-model'")
    assert page.locator("#where-problem").is_hidden()


def test_keys_alone_walk_the_map(visit, address):
    page = visit(address)

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("#stage").focus()
    page.keyboard.press("ArrowRight")
    first = page.locator("#status").inner_text()
    page.keyboard.press("ArrowUp")
    second = page.locator("#status").inner_text()
    page.keyboard.press("+")
    until(page, "deltadex.map.view.camera.zoom > 1.2")
    page.keyboard.press("0")
    until(page, "deltadex.map.view.camera.zoom === 1")
    page.keyboard.press("Enter")
    page.wait_for_selector("#neighbours tbody tr")
    focused = page.evaluate("document.activeElement.id")
    title = page.locator("#card-title").inner_text()
    page.keyboard.press("Escape")

    assert first != second
    assert second.startswith(title)
    assert focused == "card-title"
    assert page.locator("#card").is_hidden()
    assert page.evaluate("document.activeElement.id") == "stage"


def test_names_are_never_markup(visit):
    names = ("<img src=x onerror=window.hacked=1>", "</script><b>x</b>", "javascript:alert(1)")
    hostile = MadeUp(models=12, datasets=("<img src=x onerror=window.hacked=1>", "b"), names=names)
    with served(hostile) as address:
        page = visit(address)
        page.locator("#search").fill("img")
        page.wait_for_selector("#found [role=option]")
        page.keyboard.press("Enter")
        page.wait_for_selector("#neighbours tbody tr")
        page.mouse.move(640, 400)
        for view in ("models", "clusters", "lineage", "evaluation", "failures"):
            page.click(f"#views [data-view={view}]")
            page.wait_for_selector(f"#{view}-body > :not(.notice)")

            assert page.locator("main img, main b > b").count() == 0
        assert page.evaluate("window.hacked") is None
        assert page.locator("#failures-body").inner_text().count("onerror") == 3


def test_without_webgl_the_map_is_drawn_all_the_same(launch, visit, address):
    page = visit(address, within=launch("--disable-gpu", "--disable-3d-apis"))

    assert page.locator("#slow").is_visible()
    assert page.evaluate("deltadex.map.renderer.constructor.name") == "FlatPoints"
    assert page.evaluate("""() => { const c = document.getElementById("points");
        deltadex.map.paint();
        const { data } = c.getContext("2d").getImageData(0, 0, c.width, c.height);
        for (let i = 0; i < data.length; i += 4) if (data[i] < 20 && data[i + 2] > 150) return true;
        return false; }""")
    click_model(page, 3)
    page.wait_for_selector("#neighbours tbody tr")


@pytest.mark.slow
def test_a_lost_context_comes_back_with_its_points(visit, address):
    page = visit(address, expected="CONTEXT_LOST")

    page.evaluate("""() => { const { gl } = deltadex.map.renderer;
        globalThis.ext = gl.getExtension("WEBGL_lose_context"); ext.loseContext(); }""")
    page.wait_for_timeout(100)
    page.evaluate("ext.restoreContext()")
    until(page, "!deltadex.map.renderer.gl.isContextLost()")
    page.wait_for_timeout(300)

    assert near(page.evaluate(DRAWN), BLUE)
