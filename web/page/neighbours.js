"use strict";
{
  const { byId, make, button, icon, state, bars, load, map, legend, format } = deltadex;
  const COUNTS = ["5", "10", "20", "50", "100"];
  const FULL_Z = 10; // where a bar ends, unless a neighbour's z is higher

  const standsOut = (found) => found.verdict !== "no model stands out";
  const capital = (words) => words[0].toUpperCase() + words.slice(1);

  // How many stand out, by verdict; more may where the last of the list does.
  function headline(list, answer) {
    const counts = new Map();
    for (const { verdict } of list.filter(standsOut)) counts.set(verdict, (counts.get(verdict) ?? 0) + 1);
    if (!counts.size) return `No model stands out among ${format.whole(answer.compared)} compared`;
    const last = list.length < answer.compared ? list.at(-1).verdict : null;
    const parts = [...counts].map(([verdict, n]) => (verdict === last
      ? `${verdict}: ${format.whole(n)} or more models` : `${verdict}: ${format.count(n, "model")}`));
    return capital(`${parts.join(", ")}, of ${format.whole(answer.compared)} compared`);
  }

  function calibration({ source, queries, datasets, models, models_needed }) {
    if (source === "labelled models of the family")
      return `Probability from ${format.count(queries, "labelled model")}, ${format.count(datasets, "dataset")}.`;
    return source === "families like it" ? "Probability from families like it: too few labels of its own."
      : `No probability: ${format.count(models, "model")} are too few, ${models_needed} are needed, and fdr is too low in a family as small.`;
  }

  const chance = ({ probability }) => (probability === null ? "" : `probability ${probability.toFixed(2)} · `);

  function light(id) {
    map.marked = id === null ? -1 : map.family.place.get(id) ?? -1;
    map.dirty();
  }

  function row(found, span, sameAs) {
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
    make("td", { class: "score" },
      make("span", { class: standsOut(found) ? "verdict" : "verdict none", title: `cosine ${format.signed(found.cosine)}` },
        standsOut(found) ? found.verdict : "does not stand out"),
      bars.bar(found.z, span, deltadex.colours.css(deltadex.colours.rgbOf(map.colours, item))),
      make("span", { class: "number" }, `${chance(found)}z ${format.signed(found.z, 1)} · fdr ${format.rate(found.fdr)}`)),
    deltadex.source.can.explain ? make("td", {}, button({ class: "round", "aria-pressed": String(other),
      "aria-label": `Explain the likeness to ${found.model}`, title: "Explain",
      onclick: () => state.change({ other: other ? "" : found.model }) }, icon("explain"))) : null);
  }

  const limits = (list) => bars.range([FULL_Z, ...list.map(({ z }) => z)]);

  function table(list, sameAs) {
    const span = limits(list);
    return make("table", { class: "near" },
      make("caption", { class: "unseen" }, "Nearest models, with verdict, probability, z and false discovery rate"),
      make("thead", { class: "unseen" }, make("tr", {}, ["rank", "model", "evidence", "explain"]
        .slice(0, deltadex.source.can.explain ? 4 : 3).map((text) => make("th", { scope: "col" }, text)))),
      make("tbody", {}, list.map((found) => row(found, span, sameAs))));
  }

  function show(box, list, answer, sameAs) {
    const agree = list.filter((found) => found.dataset !== null && found.dataset === sameAs).length;
    const k = make("select", { id: "k", "aria-label": "How many neighbours",
      onchange: (event) => state.change({ k: event.target.value }, "replace") });
    deltadex.options(k, COUNTS.map((n) => [n, n]), state.current.k);
    box.replaceChildren(
      make("div", { class: "section-head" }, make("h3", {}, "Nearest models"),
        deltadex.source.can.explain ? make("span", { class: "select small" }, k) : ""),
      ...(list.length ? [
        make("p", { class: "headline" }, headline(list, answer)),
        make("p", { class: "soft small" }, calibration(answer.calibration)),
        table(list, sameAs),
        make("p", { class: "soft small" }, sameAs ? `${agree} of ${list.length} share its dataset. ` : "",
          `Bars show z, standard deviations above the family's strangers; a full bar is ${format.signed(limits(list)[1], 1)}. `,
          "probability: that both were trained on the same data; fdr: of all answers up to here."),
      ] : [make("p", { class: "soft" }, "No other model passes the filters.")]));
  }

  function link(list) {
    const { place } = map.family;
    map.links = list.filter((found) => place.has(found.model))
      .map((found) => ({ at: place.get(found.model), z: found.z, standsOut: standsOut(found) }));
    map.dirty();
  }

  const inCluster = (asked) => (found) => {
    const { family } = map;
    if (!asked.cluster || !family.clusters) return true;
    return family.clusterNames[family.clusterOf[family.place.get(found.model)]] === asked.cluster;
  };

  let shown = null; // the latest answer, and whose it is

  // Again, once the map has places and colours.
  function redraw() {
    if (!shown) return;
    const { asked, answer, sameAs } = shown;
    const list = answer.neighbours.filter(inCluster(asked)).slice(0, Number(asked.k));
    show(byId("neighbours"), list, answer, sameAs);
    link(list);
  }

  function update(asked, sameAs) {
    const box = byId("neighbours");
    shown = null;
    link([]);
    if (!asked.model || !deltadex.source.can.search) { deltadex.cancel(box); box.replaceChildren(); return; }
    const params = { ...deltadex.withRecipe(), ...deltadex.asParameters(asked, { kind: false }), model: asked.model,
      k: asked.cluster ? 100 : asked.k };
    load(box, (how) => deltadex.source.similar(params, how), (answer) => {
      shown = { asked, answer, sameAs };
      redraw();
    }, "Searching…");
  }

  deltadex.neighbours = { update, redraw, FULL_Z };
}
