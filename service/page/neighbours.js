"use strict";
{
  const { byId, make, button, icon, state, load, map, legend, format, words: { help, short, brief, breakable } } = deltadex;
  const COUNTS = ["5", "10", "20", "50", "100"];
  const FULL_Z = 10; // where a line is widest, unless a neighbour's z is higher
  const NULL_ALONE = "the null alone";
  const SAYS = { perhaps: "perhaps the same data as", copy: "copy of" };
  let detailed = false;

  const standsOut = (found) => found.verdict !== "no model stands out";
  const capital = (words) => words[0].toUpperCase() + words.slice(1);

  // What was dropped is no stored model, whose slots the service has.
  const explains = () => deltadex.source.can.explain && state.current.model !== "";

  // Why there is no verdict: too few models, labels that contradict one another, or no evidence.
  function silent([best], { compared, suspects, calibration: { source, verdict_from: least } }) {
    const among = `among ${format.whole(compared)} compared`;
    if (source === NULL_ALONE) return `Too few models to tell: no verdict ${among}.`;
    const reached = `The likeliest has ${best.probability.toFixed(2)}, a verdict needs ${least.toFixed(2)}.`;
    return suspects?.length ? `They are alike, but labels of this catalog contradict one another: no verdict ${among}. ${reached}`
      : `No model stands out ${among}. ${reached}`;
  }

  // Labels that contradict what the weights say.
  const doubts = (suspects = []) => (suspects.length ? make("ul", { class: "notes" }, suspects.map(({ model, dataset, own_z: own, nearer, z }) =>
    make("li", {}, make("b", { title: model }, breakable(brief(model))), ` is labelled ${dataset} (z ${format.signed(own, 1)}), and nearer to ${nearer} (z ${format.signed(z, 1)})`))) : null);

  // The verdict on the nearest, and how often such a verdict is wrong.
  function verdict(list, answer) {
    const [best] = list;
    const sure = answer.calibration.source !== NULL_ALONE;
    if (!list.some(standsOut)) return [make("p", { class: "headline" }, silent(list, answer))];
    if (!standsOut(best)) return [make("p", { class: "headline" }, others(list, answer))];
    return [make("p", { class: "headline" }, `${capital(SAYS[best.verdict] ?? `${best.verdict} as`)} `,
      make("b", { title: best.model }, breakable(brief(best.model))), best.dataset ? `, ${best.dataset}` : "",
      make("span", { class: "soft" }, sure ? ` (${format.rate(best.fdr)} of such answers are wrong)` : " (too few models to say how often such answers are wrong)")),
    make("p", { class: "soft small" }, others(list, answer))];
  }

  // How many stand out, by verdict; more may where the last of the list does.
  function others(list, answer) {
    const counts = new Map();
    for (const { verdict: said } of list.filter(standsOut)) counts.set(said, (counts.get(said) ?? 0) + 1);
    const last = list.length < answer.compared ? list.toSorted((a, b) => a.rank - b.rank).at(-1).verdict : null;
    const parts = [...counts].map(([said, n]) => (said === last
      ? `${said}: ${format.whole(n)} or more models` : `${said}: ${format.count(n, "model")}`));
    return capital(`${parts.join(", ")}, of ${format.whole(answer.compared)} compared.`);
  }

  function calibration({ source, queries, datasets, models, models_needed, verdict_from: least }) {
    const from = `; a verdict needs ${least?.toFixed(2)}.`;
    if (source === "labelled models of the family")
      return `Probability from ${format.count(queries, "labelled model")}, ${format.count(datasets, "dataset")}${from}`;
    return source === "families like it" ? `Probability from families like it, for too few labels of its own${from}`
      : `No probability: ${format.count(models, "model")} are too few, ${models_needed} are needed; of so few more are wrong than fdr says.`;
  }

  // A data set in words, also where there is no label.
  function about({ dataset, model }) {
    const at = map.family.place.get(model);
    return dataset ?? (at === undefined ? "unlabelled" : map.family.topic(at));
  }

  const numbers = (found) => `z ${format.signed(found.z, 1)} · fdr ${format.rate(found.fdr)} · cosine ${format.signed(found.cosine)}`;

  function light(id) {
    map.marked = id === null ? -1 : map.family.place.get(id) ?? -1;
    map.dirty();
  }

  // Copies of a model that is listed already stand behind its badge.
  function piles(list) {
    const { family } = map, first = new Map(), rows = [];
    for (const found of list) {
      const stack = family.stacks.get(family.place.get(found.model));
      if (stack && first.has(stack)) { first.get(stack).copies.push(found); continue; }
      const row = { found, copies: [] };
      if (stack) first.set(stack, row);
      rows.push(row);
    }
    return rows;
  }

  function badge(copies) {
    const names = copies.map(({ model }) => model).join(", ");
    return make("span", { class: "badge", title: `Copies: ${names}`, "aria-label": `and ${format.count(copies.length, "copy", "copies")}: ${names}`, role: "img" }, `×${copies.length + 1}`);
  }

  function row({ found, copies }, sameAs) {
    const other = state.current.other === found.model;
    const same = found.dataset !== null && found.dataset === sameAs;
    return make("tr", { onpointerenter: () => light(found.model), onpointerleave: () => light(null),
      onfocusin: () => light(found.model), onfocusout: () => light(null), class: other ? "on" : null },
    make("th", { scope: "row" }, make("div", { class: "line" },
      legend.mark(found.dataset, map.family.hollow[map.family.place.get(found.model)] === 1),
      button({ class: "link", title: `${found.model}\n${about(found)}${found.author ? ` · ${found.author}` : ""}`,
        onclick: () => deltadex.card.open(found.model, { fly: false }) }, make("span", { class: "name" }, breakable(short(found.model)))),
      copies.length ? badge(copies) : "", deltadex.words.copier(found.model)),
    make("span", { class: "under soft" }, standsOut(found) ? make("b", { class: "verdict" }, `${found.verdict} · `) : null,
      make("span", { class: same ? "same" : null }, about(found)), make("span", { class: "more" }, ` · ${numbers(found)}`))),
    make("td", { class: "number" }, found.probability === null ? `z ${format.signed(found.z, 1)}` : found.probability.toFixed(2)),
    explains() ? make("td", {}, button({ class: "round", "aria-pressed": String(other),
      "aria-label": `Explain the likeness to ${found.model}`, title: "Explain",
      onclick: () => state.change({ other: other ? "" : found.model }) }, icon("explain"))) : null);
  }

  function table(list, sameAs) {
    const likely = list[0].probability === null ? ["z", help("z")] : ["prob.", help("probability")];
    return make("table", { class: "near" },
      make("caption", { class: "unseen" }, "Nearest models, with verdict and probability"),
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "model"),
        make("th", { scope: "col", class: "number" }, likely),
        explains() ? make("th", { scope: "col" }, make("span", { class: "unseen" }, "explain")) : null)),
      make("tbody", {}, piles(list).map((pile) => row(pile, sameAs))));
  }

  function show(box, list, answer, sameAs) {
    const clear = list.filter(standsOut), agree = clear.filter((found) => found.dataset === sameAs).length;
    const k = make("select", { id: "k", "aria-label": "How many neighbours",
      onchange: (event) => state.change({ k: event.target.value }, "replace") });
    deltadex.options(k, COUNTS.map((n) => [n, n]), state.current.k);
    const more = button({ class: "inline", "aria-pressed": String(detailed), onclick: () => {
      detailed = !detailed;
      box.classList.toggle("detailed", detailed);
      more.setAttribute("aria-pressed", String(detailed));
    } }, "Numbers");
    box.classList.toggle("detailed", detailed);
    box.replaceChildren(...(list.length ? [
      ...verdict(list, answer), doubts(answer.suspects),
      make("div", { class: "section-head" }, make("h3", {}, "Nearest models"), make("span", { class: "small" }, more),
        deltadex.source.can.explain ? make("span", { class: "select small" }, k) : ""),
      table(list, sameAs),
      make("p", { class: "soft small" }, sameAs && clear.length ? `${agree} of ${format.count(clear.length, "model")} with a verdict ${agree === 1 ? "shares" : "share"} its dataset. ` : "",
        calibration(answer.calibration), " z", help("z"), " fdr", help("fdr")),
    ] : [make("h3", {}, "Nearest models"), make("p", { class: "soft" }, state.filtered() ? "No other model passes the filters." : "There is no other model in this family.")]).filter(Boolean));
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

  // By what the list shows: copies, then others with a verdict; by probability, then z.
  const before = (a, b) => (b.verdict === "copy") - (a.verdict === "copy") || standsOut(b) - standsOut(a) || b.probability - a.probability || b.z - a.z;

  // Again, once the map has places and colours.
  function redraw() {
    if (!shown) return;
    const { asked, answer, sameAs } = shown;
    const list = answer.neighbours.filter(inCluster(asked)).slice(0, Number(asked.k)).sort(before);
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
      map.show();
    }, "Searching…");
  }

  // An answer that came another way.
  function given(answer) {
    shown = { asked: { ...state.current, cluster: "" }, answer, sameAs: null };
    redraw();
  }

  deltadex.neighbours = { update, redraw, given, FULL_Z };
}
