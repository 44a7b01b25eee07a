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


def test_the_card_keeps_the_colours_of_the_map_when_these_go_to_what_is_in_sight(visit):
    family = MadeUp(models=240, datasets=tuple(f"d{n:02}" for n in range(30)))
    with served(family) as address:
        page = visit(f"{address}?model={family.rows[29]['model']}")
        page.wait_for_selector("#card-top .swatch")
        shown, found = (
            page.evaluate("""() => { const { map, legend, colours } = deltadex, i = map.chosen;
            map.view.set({ x: map.family.x[i], y: map.family.y[i], zoom: 20 });
            legend.inView();
            const circle = document.querySelector("#card-top .swatch circle"), item = legend.datasetItem("d29");
            return [circle.getAttribute("stroke"), [item.key, colours.css(colours.rgbOf(map.colours, item))]]; }""")
        )

    assert found == ["=d29", shown]
