"use strict";
{
  const { byId, make, draw, button, state, format, load, legend, map, colours, empty, words: { help } } = deltadex;
  const SUGGESTED = 100;
  const HELPED = new Set(["ARI", "NMI", "Silhouette", "Purity", "MAP"]);

  const tile = (value, name, words) => make("div", { class: "tile" }, make("dt", {}, name, HELPED.has(name) ? help(name) : null),
    make("dd", {}, make("b", {}, value), make("span", { class: "soft" }, words)));
  const told = (value, digits = 2) => (value === null || value === undefined ? "–" : format.signed(value, digits));

  function composition(cluster) {
    const labelled = cluster.datasets.reduce((sum, part) => sum + part.models, 0);
    const parts = [...cluster.datasets, ...(cluster.size > labelled ? [{ dataset: null, models: cluster.size - labelled }] : [])];
    return make("span", { class: "stack", "aria-hidden": "true" }, parts.map((part) => make("span", {
      css: { "flex-grow": String(part.models), "background-color": colours.css(colours.rgbOf(map.colours, legend.datasetItem(part.dataset))) } })));
  }

  const listed = (parts, key) => parts.slice(0, 3).map((part) => `${part[key]} ${format.whole(part.models)}`).join(", ")
    + (parts.length > 3 ? `, ${parts.length - 3} more` : "");

  function item(cluster, c) {
    const name = map.family.clusterNames[c];
    const facts = [["Datasets", listed(cluster.datasets, "dataset")], ["Authors", listed(cluster.authors, "author")],
      ["Words", cluster.words.join(", ")], ["In names", cluster.terms.join(", ")]].filter(([, text]) => text);
    return make("li", { class: "cluster" },
      make("div", { class: "section-head" }, make("h3", { title: "The share of its models whose label is its most frequent dataset" }, map.family.clusterTitles[c]), make("span", { class: "soft number" }, format.count(cluster.size, "model"))),
      composition(cluster),
      make("dl", { class: "facts" }, facts.map(([term, text]) => make("div", {}, make("dt", {}, term), make("dd", {}, text)))),
      button({ class: "quiet", "aria-label": `Show ${name} on the map`,
        onclick: () => state.change({ view: "map", colour: "cluster", cluster: name, off: [], only: [], at: "" }) }, "Show on the map"));
  }

  // Precision and coverage of suggestions, by the confidence from which one is given.
  function curve(points) {
    const line = (key) => points.map((point, n) =>
      `${n ? "L" : "M"}${(30 + 260 * point.confidence).toFixed(1)} ${(112 - 100 * (point[key] ?? 0)).toFixed(1)}`).join("");
    return make("figure", { class: "curve" }, draw("svg", { viewBox: "0 0 300 140", role: "img",
      "aria-label": "Precision rises and coverage falls with the confidence that is asked for" },
    [0, 0.5, 1].map((value) => draw("path", { class: "base", d: `M30 ${112 - 100 * value}H290` })),
    [0, 0.5, 1].map((value) => draw("text", { x: 24, y: 116 - 100 * value, "text-anchor": "end" }, String(value))),
    [0, 0.5, 1].map((value) => draw("text", { x: 30 + 260 * value, y: 123, "text-anchor": "middle" }, String(value))),
    draw("path", { class: "precision", d: line("precision") }), draw("path", { class: "coverage", d: line("coverage") }),
    draw("text", { x: 160, y: 136, "text-anchor": "middle" }, "confidence")),
    make("figcaption", { class: "soft small" }, make("span", { class: "key precision" }, "precision"), make("span", { class: "key coverage" }, "coverage")));
  }

  function calibration({ calibration: made }) {
    if (!made) return null;
    const answered = made.threshold !== null && made.threshold !== undefined;
    return make("div", { class: "note" }, make("p", {}, answered
      ? `On ${format.count(made.models, "labelled model")} held out: ${format.percent(made.precision ?? 0)} of such suggestions are right, and ${format.percent(made.coverage ?? 0)} of the models get one.`
      : `No evidence suffices to have ${format.percent(made.target)} of the suggestions right, so ${made.kept_data ? "no labelled model names another" : "nothing is suggested"}.`),
    made.kept_data ? make("p", {}, `${format.count(made.kept_data, "kept data set")} may name models as well: fdr is twice the rate of the better list.`) : null,
    made.curve?.length > 1 ? curve(made.curve) : null);
  }

  function listing(name, list) {
    const shown = list.slice(0, SUGGESTED);
    return [make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table of ${name}` },
      make("table", { class: "list" },
        make("thead", {}, make("tr", {}, ["Model", "Dataset", "Verdict", "fdr"].map((text) => make("th", { scope: "col" }, text)))),
        make("tbody", {}, shown.map((answer) => make("tr", {},
          make("th", { scope: "row" }, button({ class: "link", onclick: () => deltadex.card.open(answer.model, { fly: true }) }, make("span", { class: "name" }, answer.model))),
          make("td", {}, answer.source === "kept data" ? legend.star(true) : legend.mark(answer.dataset), " ", answer.dataset,
            answer.source === "kept data" ? make("span", { class: "soft" }, " · kept data") : ""),
          make("td", {}, answer.verdict),
          make("td", { class: "number" }, format.percent(answer.fdr))))))),
    list.length > shown.length ? make("p", { class: "soft small" }, `The first ${SUGGESTED}.`) : null];
  }

  function suggestions(found) {
    const hints = found.hints ?? [];
    return make("section", { class: "block" }, make("h3", {}, "Suggested datasets"),
      make("p", { class: "soft" }, `${format.count(found.suggestions.length, "unlabelled model")} with a suggestion, ${format.whole(found.abstained)} without; ${format.whole(hints.length)} of these with a hint. fdr: the share of all suggestions with at least this evidence that is expected to be wrong.`),
      calibration(found),
      found.suggestions.length ? listing("suggested datasets", found.suggestions) : null,
      hints.length ? [make("h3", {}, "Hints"), make("p", { class: "soft" }, "The evidence is too weak for a suggestion; up to half of the hints may be wrong."),
        ...listing("hints", hints)] : null);
  }

  let shown = [];

  function show(box, found) {
    shown = found.clusters;
    if (!found.clusters.length) {
      box.replaceChildren(empty("No clusters", "The models of this family lie too evenly, or are too few, to fall into groups."), suggestions(found));
      return;
    }
    const silhouette = found.silhouette?.clusters;
    box.replaceChildren(
      make("dl", { class: "tiles" },
        tile(format.whole(found.clusters.length), "Clusters", `${format.count(found.noise.length, "model")} in none`),
        tile(told(found.ari), "ARI", "against the labels; 1 is the same"), tile(told(found.nmi), "NMI", "against the labels; 1 is the same"),
        tile(told(silhouette), "Silhouette", "−1 to 1, of the clusters")),
      make("ul", { class: "clusters" }, found.clusters.map(item)), suggestions(found));
  }

  function update() {
    const box = byId("clusters-body");
    load(box, (how) => deltadex.source.clusters(deltadex.withRecipe(), how), (found) => {
      if (!map.family.clusters) deltadex.gotClusters(found);
      show(box, found);
    }, "Looking for clusters…");
  }

  const csv = () => ({ columns: ["cluster", "name", "model"],
    rows: shown.flatMap(({ cluster, name, models }) => models.map((model) => [cluster, name, model])) });

  deltadex.clusters = { update, tile, csv };
}
