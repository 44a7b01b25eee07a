"""Names on the map: where they stand, and what has which colour."""

import pytest
from stand_in import MadeUp, served

pytestmark = pytest.mark.slow

# The boxes of the texts that a paint writes, and which of them cover a point that is drawn.
WRITTEN = """() => {
  const { map } = deltadex, real = CanvasRenderingContext2D.prototype.fillText, halo = [];
  const texts = [], { strokeText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (words, x, y) {
    const half = this.measureText(words).width / 2;
    texts.push({ words, x, y, half });
    real.call(this, words, x, y);
  };
  CanvasRenderingContext2D.prototype.strokeText = function (words) { halo.push(words); };
  map.paint();
  Object.assign(CanvasRenderingContext2D.prototype, { fillText: real, strokeText });
  for (const text of texts) {
    text.over = map.family.document.models.filter((_, i) => {
      const [u, v] = map.view.toScreen(map.family.x[i], map.family.y[i]);
      return Math.abs(u - text.x) < text.half && Math.abs(v - text.y) < 7;
    }).length;
  }
  return { texts, halo };
}"""


@pytest.mark.parametrize("width", [1440, 390])
def test_no_name_covers_a_point_and_none_is_a_singleton(visit, width):
    """Of five data sets of several models, and one of a single model."""
    family = MadeUp(models=61)
    family.rows[60]["dataset"] = "alone"
    with served(family) as address:
        written = visit(address, width=width).evaluate(WRITTEN)
    names = {text["words"] for text in written["texts"]}
    assert written["halo"] == []
    assert "alone" not in names
    assert names & {"imdb", "sst2", "agnews", "trec", "mpqa"}
    assert [text for text in written["texts"] if text["over"]] == []


COLOURS = """() => {
  const { map, legend, colours } = deltadex, { x: [...x], y: [...y] } = map.family;
  map.view.set({ x: x[29], y: y[29], zoom: 20 });
  legend.inView();
  const mark = document.querySelector("#card-top .swatch *"), item = legend.datasetItem("d29");
  return [item.key, mark.getAttribute("stroke") === colours.css(colours.rgbOf(map.colours, item))];
}"""


def test_the_card_keeps_the_colours_of_the_map_when_these_go_to_what_is_in_sight(visit):
    family = MadeUp(models=240, datasets=tuple(f"d{n:02}" for n in range(30)))
    with served(family) as address:
        page = visit(f"{address}?model={family.rows[29]['model']}")
        page.wait_for_selector("#card-top .swatch")
        assert page.evaluate(COLOURS) == ["=d29", True]


def test_no_score_covers_the_ring_of_what_is_chosen(visit):
    """Of points so small that the ring is several times as wide."""
    family = MadeUp(models=4000)
    for row in family.rows[:12]:
        row |= {"x": 9.0, "y": 0.0}
    with served(family) as address:
        page = visit(f"{address}?model=lab1/m000001&at=0,0,0.5")
        page.wait_for_selector("#neighbours tbody tr")
        texts = page.evaluate(WRITTEN)["texts"]
        of_it = "deltadex.map.family.settled.map((column) => column[1])"
        x, y = page.evaluate(f"deltadex.map.view.toScreen(...{of_it})")
    scores = [text for text in texts if text["words"].startswith("z ")]
    assert scores
    for text in scores:
        assert abs(text["x"] - x) > text["half"] + 9 or abs(text["y"] - y) > 15
