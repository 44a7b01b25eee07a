"""What one does with a map: files dropped on it, areas drawn on it, tables taken from it."""

import csv
import io
import json
import struct

import pytest
from stand_in import MadeUp, plain, served, until

DROP = """(files) => {
  const carried = new DataTransfer();
  for (const [name, bytes] of files) carried.items.add(new File([new Uint8Array(bytes)], name));
  for (const type of ["dragenter", "dragover", "drop"]) {
    document.getElementById("stage").dispatchEvent(
      new DragEvent(type, { dataTransfer: carried, bubbles: true, cancelable: true }));
  }
}"""
CONFIG = ("adapter_config.json", b'{"peft_type": "LORA", "r": 2}')


def tensors(*names, body=b""):
    header = {name: {"dtype": "F32", "shape": [2, 8], "data_offsets": [0, 64]} for name in names}
    packed = json.dumps(header).encode()
    return ("adapter_model.safetensors", struct.pack("<Q", len(packed)) + packed + body)


LORA = tensors("base_model.model.encoder.0.q_proj.lora_A.weight")


def drop(page, *files):
    page.evaluate(DROP, [[name, list(content)] for name, content in files])


@pytest.fixture
def dropped_on():
    family = MadeUp()
    with served(family) as address:
        yield family, address


def test_a_dropped_adapter_lands_amid_its_neighbours_and_gives_way_to_a_model(visit, dropped_on):
    family, address = dropped_on
    page = visit(address)

    drop(page, CONFIG, LORA)
    page.wait_for_selector("#neighbours tbody tr")
    card = plain(page, "#card")
    lands = page.evaluate("""() => { const { left, top } = document.getElementById("visitor").style,
        { map } = deltadex;
        const [x, y] = map.view.toPlane(parseFloat(left), parseFloat(top));
        const of = map.links.slice(0, 5), sum = of.reduce((all, { z }) => all + z, 0);
        const mean = (axis) => of.reduce((all, { at, z }) =>
          all + z * map.family[axis][at], 0) / sum;
        return [x - mean("x"), y - mean("y")]; }""")
    links = page.evaluate("deltadex.map.links.length")
    page.locator("#neighbours .link").first.click()
    page.wait_for_selector("#facts summary")
    page.keyboard.press("Escape")
    page.locator("#visitor").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#card >> text=dropped here, not stored")
    page.get_by_role("button", name="Take it off the map").click()

    assert "Likely the same data as" in card
    assert "mean place of the 5 models that stand out, weighted by z" in card
    assert max(map(abs, lands)) < 0.01
    assert links == 10
    assert page.locator("#visitor").is_hidden()
    assert page.locator("#card").is_hidden()
    assert b'name="config"' in family.sent[0]
    assert b'name="base"' in family.sent[0]
    assert b"base-model" in family.sent[0]


def test_factors_alone_and_a_data_set_are_asked_as_jobs_that_stop(visit, dropped_on):
    family, address = dropped_on
    page = visit(address)

    drop(page, LORA)
    page.wait_for_selector("#card >> text=It came without adapter_config.json")
    config = family.sent[0].partition(b'filename="adapter_config.json"')[2]
    family.underway["trained-on"] = {"percent": 25, "ahead": 0, "elapsed_s": 9.0}
    drop(page, ("reviews.csv", b"text\ngood film\n"))
    page.wait_for_selector("#dropping >> text=25 % done · 9 s")
    page.get_by_role("button", name="Stop", exact=True).click()
    page.wait_for_selector("#dropping >> text=Stopped")
    stopped = "trained-on" not in family.underway
    page.get_by_role("button", name="Start again").click()
    page.wait_for_selector("#card-title >> text=reviews.csv")

    assert b'"r":2' in config
    assert b'"q_proj"' in config
    assert stopped
    assert "24 texts run through the base, none of them stored" in plain(page, "#card")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([("photo.png", b"x")], "photo.png is none of these"),
        ([CONFIG], "came without adapter_model.safetensors"),
        ([tensors("encoder.0.q.weight")], "has no LoRA factors"),
        ([("a.safetensors", b"short")], "its header cannot be read"),
        ([("a.csv", b"x"), ("b.csv", b"x")], "2 data sets: drop one at a time"),
        ([("a.csv", bytes(70_000))], "this service takes data sets of up to 65.5 kB"),
        ([CONFIG, (LORA[0], LORA[1] + b"broken")], "the update of encoder.0.q cannot be read"),
    ],
)
def test_a_refused_drop_names_the_reason(visit, address, files, words):
    page = visit(address, expected="422")

    drop(page, *files)
    page.wait_for_selector(f"#dropping [role=alert] >> text={words}")
    page.get_by_role("button", name="Close", exact=True).click()

    assert page.locator("#dropping").is_hidden()
    assert page.locator("#visitor").is_hidden()


def test_an_area_gives_counts_that_filter_each_other_a_table_and_a_link(visit, address):
    page = visit(address)
    box = page.evaluate("""() => { const of = deltadex.map.family.document.dataset
        .flatMap((d, i) => d === deltadex.map.family.document.datasets.indexOf("imdb") ? [i] : []);
        const { x, y } = deltadex.map.family, [xs, ys] = [x, y].map((v) => of.map((i) => v[i]));
        const { left, top } = document.getElementById("stage").getBoundingClientRect();
        const [u, v] = deltadex.map.view.toScreen(Math.min(...xs), Math.max(...ys));
        const [s, t] = deltadex.map.view.toScreen(Math.max(...xs), Math.min(...ys));
        return [u + left - 9, v + top - 9, s + left + 9, t + top + 9]; }""")
    left, top, right, low = box

    page.keyboard.down("Shift")
    page.mouse.move(left, top)
    page.mouse.down()
    for x, y in ((right, top), (right, low), (left, low)):
        page.mouse.move(x, y, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    page.wait_for_selector("#selection tbody tr")
    counted = page.locator("#counted").inner_text()
    selected = int(counted.split()[0])
    bars = page.locator("#selection .histogram >> nth=0").locator("button.row").all_inner_texts()
    adapters = page.locator("#selection").get_by_role("button", name="adapter")
    n = int(adapters.inner_text().split()[-1])
    adapters.click()
    until(page, f"document.getElementById('counted').innerText.startsWith('{n} of')")
    with page.expect_download() as taken:
        page.click("#csv")
    rows = list(csv.DictReader(io.StringIO(taken.value.path().read_text("utf-8"))))
    again = visit(page.url)
    again.wait_for_selector("#selection tbody tr")

    assert 11 <= selected <= 13
    assert bars[0].split() == ["imdb", "11"]
    assert 0 < n < selected
    assert taken.value.suggested_filename == "base-model-map.csv"
    assert len(rows) == n
    assert {row["kind"] for row in rows} == {"adapter"}
    assert rows[0].keys() >= {"model", "dataset", "author", "month", "x", "y"}
    # a bar's own filter does not take its alternatives away
    assert "full" in plain(again, "#selection")
    assert again.locator("#counted").inner_text() == page.locator("#counted").inner_text()
    again.click("#views [data-view=models]")
    until(again, f"document.querySelectorAll('#models-body tbody tr').length === {n}")


@pytest.mark.slow
def test_keys_alone_draw_a_rectangle_and_every_view_is_a_table(visit, address):
    page = visit(address)

    page.locator("#lasso").focus()
    page.keyboard.press("Enter")
    for key in ("Shift+ArrowRight", "Shift+ArrowUp", "ArrowLeft", "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector("#selection h2 >> text=of 60 models")
    page.keyboard.press("Escape")
    closed = page.locator("#selection").is_hidden(), "area" in page.url
    found = {}
    for view in ("models", "clusters", "lineage", "evaluation", "failures"):
        page.click(f"#views [data-view={view}]")
        page.wait_for_selector(f"#{view}-body:not([aria-busy]) > :not(.notice)")
        with page.expect_download() as taken:
            page.click("#csv")
        found[view] = len(taken.value.path().read_text("utf-8").splitlines()) - 1

    assert closed == (True, False)
    assert found == {"models": 60, "clusters": 60, "lineage": 61, "evaluation": 5, "failures": 3}


@pytest.mark.slow
def test_a_name_that_a_spreadsheet_would_compute_is_text_in_a_table(visit):
    with served(MadeUp(models=6, names=("=HYPERLINK(1)", 'a "quoted", name'))) as address:
        page = visit(address)
        with page.expect_download() as taken:
            page.click("#csv")
        rows = list(csv.reader(io.StringIO(taken.value.path().read_text("utf-8"))))

    assert {row[0] for row in rows} >= {"'=HYPERLINK(1)", 'a "quoted", name'}
