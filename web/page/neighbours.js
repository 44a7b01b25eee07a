"use strict";
{
  const { byId, make, button, icon, state, bars, load, map, legend, format, Z } = deltadex;
  const COUNTS = ["5", "10", "20", "50", "100"];

  function light(id) {
    map.marked = id === null ? -1 : map.family.place.get(id) ?? -1;
    map.dirty();
  }

  function row(found, limits, sameAs) {
    const other = state.current.other === found.model;
    const item = legend.datasetItem(found.dataset);
    const same = found.dataset !== null && found.dataset === sameAs;
    return make("tr", { onpointerenter: () => light(found.model), onpointerleave: () => light(null),
      onfocusin: () => light(found.model), onfocusout: () => light(null), class: other ? "on" : null },
    make("td", { class: "rank" }, String(found.rank)),
    make("th", { scope: "row" }, button({ class: "link", onclick: () => deltadex.card.open(found.model, { fly: false }) },
      legend.swatch(item, map.family.place.has(found.model) && map.family.hollow[map.family.place.get(found.model)] === 1),
      make("span", { class: "name" }, found.model)),
    make("span", { class: same ? "soft same" : "soft" }, found.dataset ?? "unlabelled", found.author ? ` · ${found.author}` : "")),
    make("td", { class: "score" }, make("span", { class: "number" }, bars.score(found.score, found.score_se)),
      bars.whisker(found.score, found.score_se, limits, deltadex.colours.css(deltadex.colours.rgbOf(map.colours, item)))),
    deltadex.source.can.explain ? make("td", {}, button({ class: "round", "aria-pressed": String(other),
      "aria-label": `Explain the likeness to ${found.model}`, title: "Explain",
      onclick: () => state.change({ other: other ? "" : found.model }) }, icon("explain"))) : null);
  }

  function table(list, sameAs) {
    const reach = list.flatMap(({ score, score_se }) => [score - Z * (score_se ?? 0), score + Z * (score_se ?? 0)]);
    const limits = bars.range(reach);
    return make("table", { class: "near" },
      make("caption", { class: "unseen" }, "Nearest models, their scores and 95 % intervals"),
      make("thead", { class: "unseen" }, make("tr", {}, ["rank", "model", "score", "explain"]
        .slice(0, deltadex.source.can.explain ? 4 : 3).map((text) => make("th", { scope: "col" }, text)))),
      make("tbody", {}, list.map((found) => row(found, limits, sameAs))));
  }

  function show(box, list, sameAs) {
    const agree = list.filter((found) => found.dataset !== null && found.dataset === sameAs).length;
    const k = make("select", { id: "k", "aria-label": "How many neighbours",
      onchange: (event) => state.change({ k: event.target.value }, "replace") });
    deltadex.options(k, COUNTS.map((n) => [n, n]), state.current.k);
    box.replaceChildren(
      make("div", { class: "section-head" }, make("h3", {}, "Nearest models"),
        deltadex.source.can.explain ? make("span", { class: "select small" }, k) : ""),
      list.length ? table(list, sameAs) : make("p", { class: "soft" }, "No other model passes the filters."),
      make("p", { class: "soft small" }, sameAs && list.length ? `${agree} of ${list.length} share its dataset. ` : "",
        "0 is as alike as any two of the family, 1 a copy; ± is a 95 % interval."));
  }

  function link(list) {
    const { place } = map.family;
    map.links = list.filter((found) => place.has(found.model))
      .map((found) => ({ at: place.get(found.model), score: found.score, error: found.score_se ?? null }));
    map.dirty();
  }

  const inCluster = (asked) => (found) => {
    const { family } = map;
    if (!asked.cluster || !family.clusters) return true;
    return family.clusterNames[family.clusterOf[family.place.get(found.model)]] === asked.cluster;
  };

  function update(asked, sameAs) {
    const box = byId("neighbours");
    link([]);
    if (!asked.model || !deltadex.source.can.search) { deltadex.cancel(box); box.replaceChildren(); return; }
    const params = { ...deltadex.withRecipe(), ...deltadex.asParameters(asked, { kind: false }), model: asked.model,
      k: asked.cluster ? 100 : asked.k };
    load(box, (how) => deltadex.source.similar(params, how), (answer) => {
      const list = answer.neighbours.filter(inCluster(asked)).slice(0, Number(asked.k));
      show(box, list, sameAs);
      link(list);
    }, "Searching…");
  }

  deltadex.neighbours = { update, format };
}
