"""A hundred thousand points, the map's file without a service, and the page over the real one."""

import pytest
from stand_in import MadeUp, plain, served, until
from test_page_map import DRAWN, click_model

from deltadex.questions.map.map import write_page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def large():
    with served(MadeUp(models=100_000, datasets=tuple(f"d{i}" for i in range(12)))) as address:
        yield address


def test_moving_over_a_hundred_thousand_points_sends_none_again(visit, large):
    page = visit(large)
    page.evaluate("""() => { const { gl } = deltadex.map.renderer; globalThis.sent = 0;
        for (const name of ["bufferData", "bufferSubData"]) {
          const real = gl[name].bind(gl);
          gl[name] = (...given) => { sent++; return real(...given); };
        } }""")
    frames = page.evaluate("deltadex.map.frames.count")

    page.mouse.move(700, 400)
    page.mouse.down()
    page.mouse.move(760, 430, steps=4)
    page.mouse.up()
    page.mouse.wheel(0, -240)
    until(page, f"deltadex.map.frames.count > {frames + 1}")

    assert page.evaluate("sent") == 0
    assert page.evaluate("deltadex.map.view.camera.zoom") > 1.2
    assert page.evaluate("deltadex.map.view.camera.x") != 0
    assert len(page.evaluate(DRAWN)) > 100
    assert page.locator("#counted").inner_text() == "100,000 fine-tunes of base-model"


def test_a_file_shows_the_map_without_a_service(visit, tmp_path):
    family = MadeUp(models=40)
    _, document = family.map({})
    near = {
        "neighbours": [[[int(i != 1), 6.5, 0.97, 0.0004, 0.5, 0]] for i in range(40)],
        "verdicts": ["likely the same data"],
        "calibration": {
            **{"rate": 1.5, "source": "the null alone", "models": 7, "models_needed": 12}
        },
    }
    path = tmp_path / "map.html"
    write_page(document, path, title="Fine-tunes of b", subtitle="made up", neighbours=near)

    page = visit(path.as_uri(), offline=True)
    click_model(page, 0)
    page.wait_for_selector("#neighbours tbody tr")
    page.get_by_role("button", name="Numbers").click()
    shown = plain(page, "#neighbours")
    page.locator("#search").fill("m000007")
    page.keyboard.press("Enter")
    page.wait_for_selector("#card-title >> text=lab0/m000007")
    page.click("#views [data-view=models]")
    page.wait_for_selector("#models-body tbody tr")

    assert page.locator("h1").inner_text() == "Fine-tunes of b"
    assert "Likely the same data: 1 or more models, of 39 compared" in shown
    assert "No probability: 7 models are too few, 12 are needed" in shown
    assert "z 6.5 · fdr <0.1 %" in shown
    assert page.locator("#models-body tbody tr").count() == 40
    assert page.locator("#views a:visible").all_inner_texts() == ["Map", "Models"]
    again = visit(page.url, offline=True)
    again.wait_for_selector("#models-body tbody tr")
