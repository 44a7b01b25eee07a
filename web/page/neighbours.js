"use strict";
{
  const { byId, make, button, icon, state, bars, load, map, legend, format } = deltadex;
  const COUNTS = ["5", "10", "20", "50", "100"];
  let drawn = null;
  const FULL_Z = 10; // where a bar ends, unless a neighbour's z is higher

  const standsOut = (found) => found.verdict !== "no model stands out";
  const capital = (words) => words[0].toUpperCase() + words.slice(1);

  // What is said of the query: whom it copies, whose data it has, and how often such an answer is wrong.
  function verdict(list) {
    const named = ({ model, dataset }) => `${map.family.short(model)}${dataset ? `, labelled ${dataset}` : ""}`;
    const copies = list.filter((found) => found.verdict === "copy");
    const alike = list.find((found) => standsOut(found) && found.verdict !== "copy");
    const said = copies.length ? [`A copy of ${copies.map((found) => map.family.short(found.model)).join(", ")}.`] : [];
    if (alike) {
      const sure = alike.verdict === "perhaps" ? "Perhaps the same data" : capital(alike.verdict);
      said.push(`${sure} as ${named(alike)} (${format.rate(alike.fdr)} of such answers are wrong).`);
    }
    return said.length ? said.join(" ") : "No model stands out: nothing here was surely trained on its data.";
  }

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

  function light(id) {
    map.marked = id === null ? -1 : map.family.place.get(id) ?? -1;
    map.dirty();
  }

  const told = (found) => (standsOut(found) ? found.verdict : "does not stand out");

  // One line: who, what is said of it, how likely that is.
  function row(found, copies) {
    const other = state.current.other === found.model;
    const hollow = map.family.place.has(found.model) && map.family.hollow[map.family.place.get(found.model)] === 1;
    return make("tr", { onpointerenter: () => light(found.model), onpointerleave: () => light(null),
      onfocusin: () => light(found.model), onfocusout: () => light(null), class: other ? "on" : null },
    make("th", { scope: "row" }, button({ class: "link", title: [found.model, found.dataset ?? "unlabelled", found.author].filter(Boolean).join(" · "),
      onclick: () => deltadex.card.open(found.model, { fly: false }) },
    legend.swatch(legend.datasetItem(found.dataset), hollow), make("span", { class: "name" }, map.family.short(found.model))),
    copies.length ? make("span", { class: "tag", title: copies.join("\n") }, `+ ${format.count(copies.length, "copy", "copies")}`) : null),
    make("td", { class: standsOut(found) ? "verdict" : "verdict none" }, told(found)),
    make("td", { class: "number", title: "Probability that both were trained on the same data" }, found.probability === null ? "" : format.percent(found.probability)),
    deltadex.source.can.explain ? make("td", {}, button({ class: "round", "aria-pressed": String(other),
      "aria-label": `Explain the likeness to ${found.model}`, title: "Explain",
      onclick: () => state.change({ other: other ? "" : found.model }) }, icon("explain"))) : null);
  }

  // Copies of the query stand in one row.
  function stacked(list) {
    const copies = list.filter((found) => found.verdict === "copy");
    const rest = copies.slice(1).map((found) => found.model);
    return list.filter((found) => !rest.includes(found.model)).map((found) => row(found, found === copies[0] ? rest : []));
  }

  function numbers(found, span) {
    const colour = deltadex.colours.css(deltadex.colours.rgbOf(map.colours, legend.datasetItem(found.dataset)));
    return make("tr", {}, make("th", { scope: "row", class: "name", title: found.model }, map.family.short(found.model, 22)),
      make("td", { class: "track" }, bars.bar(found.z, span, colour)),
      ...[format.signed(found.z, 1), format.rate(found.fdr), format.signed(found.cosine)].map((text) => make("td", { class: "number" }, text)));
  }

  const limits = (list) => bars.range([FULL_Z, ...list.map(({ z }) => z)]);

  function table(list) {
    return make("table", { class: "near" },
      make("caption", { class: "unseen" }, "Nearest models, with verdict and probability"),
      make("thead", { class: "unseen" }, make("tr", {}, ["model", "verdict", "probability", "explain"]
        .slice(0, deltadex.source.can.explain ? 4 : 3).map((text) => make("th", { scope: "col" }, text)))),
      make("tbody", {}, stacked(list)));
  }

  function evidence(list, answer, sameAs) {
    const span = limits(list), agree = list.filter((found) => found.dataset !== null && found.dataset === sameAs).length;
    return make("details", { class: "evidence", open: state.current.evidence === "1", ontoggle: keepOpen },
      make("summary", {}, "Evidence"),
      make("p", { class: "soft small" }, `${headline(list, answer)}. `, sameAs ? `${agree} of ${list.length} share its dataset. ` : "",
        calibration(answer.calibration)),
      make("table", { class: "bars" },
        make("thead", {}, make("tr", {}, ["model", "", "z", "fdr", "cosine"].map((text) =>
          make("th", { scope: "col", class: "soft" }, text, ...["z", "fdr"].includes(text) ? [deltadex.help(text)] : [])))),
        make("tbody", {}, list.map((found) => numbers(found, span)))));
  }

  const keepOpen = (event) => state.quietly({ evidence: event.target.open ? "1" : "" });

  function show(box, list, answer, sameAs) {
    const k = make("select", { id: "k", "aria-label": "How many neighbours",
      onchange: (event) => state.change({ k: event.target.value }, "replace") });
    deltadex.options(k, COUNTS.map((n) => [n, n]), state.current.k);
    box.replaceChildren(
      ...(list.length ? [make("p", { class: "headline" }, verdict(list))] : []),
      make("div", { class: "section-head" }, make("h3", {}, "Nearest models"),
        deltadex.source.can.explain ? make("span", { class: "select small" }, k) : ""),
      ...(list.length ? [table(list), evidence(list, answer, sameAs)]
        : [make("p", { class: "soft" }, "No other model passes the filters.")]));
  }

  function link(list) {
    const { place } = map.family;
    map.links = list.filter((found) => place.has(found.model))
      .map((found) => ({ at: place.get(found.model), z: found.z, standsOut: standsOut(found) }));
    map.dirty();
  }

  const redraw = () => { if (drawn) { show(...drawn); link(drawn[1]); } };

  const inCluster = (asked) => (found) => {
    const { family } = map;
    if (!asked.cluster || !family.clusters) return true;
    return family.clusterNames[family.clusterOf[family.place.get(found.model)]] === asked.cluster;
  };

  function update(asked, sameAs) {
    const box = byId("neighbours");
    link([]);
    drawn = null;
    if (!asked.model || !deltadex.source.can.search) { deltadex.cancel(box); box.replaceChildren(); return; }
    const params = { ...deltadex.withRecipe(), ...deltadex.asParameters(asked, { kind: false }), model: asked.model,
      k: asked.cluster ? 100 : asked.k };
    load(box, (how) => deltadex.source.similar(params, how), (answer) => {
      const list = answer.neighbours.filter(inCluster(asked)).slice(0, Number(asked.k));
      drawn = [box, list, answer, sameAs];
      redraw();
    }, "Searching…");
  }

  deltadex.neighbours = { update, redraw, FULL_Z };
}
