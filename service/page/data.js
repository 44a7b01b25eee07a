"use strict";
{
  const { byId, make, load, map, bars, legend, format } = deltadex;
  const SHOWN = 5;

  const standsOut = (found) => found.verdict !== "no model stands out";

  function row(found, span) {
    const n = map.family.stars.findIndex((star) => star.name === found.data);
    return make("tr", { onpointerenter: () => map.star(n), onpointerleave: () => map.star(-1) },
      make("td", { class: "rank" }, String(found.rank)),
      make("th", { scope: "row" }, legend.star(standsOut(found)), make("span", { class: "name" }, found.data)),
      make("td", { class: "score" },
        make("span", { class: standsOut(found) ? "verdict" : "verdict none" },
          standsOut(found) ? found.verdict : ""),
        bars.bar(found.z, span, deltadex.colours.css(map.colours.text)),
        make("span", { class: "number" }, `z ${format.signed(found.z, 1)} · fdr ${format.rate(found.fdr)}`)));
  }

  function show(box, { data }) {
    const listed = data.slice(0, SHOWN), span = bars.range([deltadex.neighbours.FULL_Z, ...listed.map(({ z }) => z)]);
    box.replaceChildren(
      make("div", { class: "section-head" }, make("h3", {}, "Nearest data")),
      make("table", { class: "near" },
        make("caption", { class: "unseen" }, "Nearest kept data sets, with verdict, z and false discovery rate"),
        make("thead", { class: "unseen" }, make("tr", {}, ["rank", "data set", "evidence"].map((text) => make("th", { scope: "col" }, text)))),
        make("tbody", {}, listed.map((found) => row(found, span)))),
      make("p", { class: "soft small" }, "Trained on this data, or on data like it. It is no proof that the model saw any one example."));
  }

  // The kept data sets nearest to the model of the card; nothing where the family keeps none.
  function update(asked) {
    const box = byId("nearest-data");
    if (!asked.model || !map.family.stars.length || !map.family.place.has(asked.model) || !deltadex.source.can.search) {
      deltadex.cancel(box);
      box.replaceChildren();
      return;
    }
    load(box, (how) => deltadex.source.nearestData({ ...deltadex.withRecipe(), model: asked.model }, how),
      (answer) => show(box, answer), "Searching…");
  }

  deltadex.data = { update };
}
