"use strict";
{
  const { byId, make, button, load, map, format } = deltadex;

  const TINY_P = 1e-12;
  const chance = (p) => (p < TINY_P ? "p < 10⁻¹²" : `p ${p.toPrecision(1)}`);

  const moved = (layers) => layers.some(([own, base]) => own !== base);

  function layerMap(layers) {
    return make("details", {}, make("summary", {}, "Layers, and those of the base that they are"),
      make("p", { class: "small" }, layers.map(([own, base]) => `${own} ← ${base}`).join(", ")));
  }

  function parents(list) {
    return make("table", { class: "near" },
      make("caption", { class: "unseen" }, "Parents of the merge, with their weights"),
      make("tbody", {}, list.map(({ model, weight }) =>
        make("tr", {}, make("th", { scope: "row" },
          map.family.place.has(model) ? button({ class: "link", onclick: () => deltadex.card.open(model) }, model) : model),
        make("td", { class: "score" }, make("span", { class: "number" }, format.signed(weight, 2)))))));
  }

  function show(box, found) {
    const evidence = [
      found.p === null ? null : chance(found.p),
      found.method && `merged by ${found.method}`,
      found.reconstructed_share === null || !found.complete ? null : `${format.percent(found.reconstructed_share, 1)} of the sampled entries reproduced`,
      found.bytes_read ? `${format.bytes(found.bytes_read)} read` : null,
    ].filter(Boolean);
    const facts = [...(found.verdict === "transformed" ? [] : found.changes), ...found.notes];
    box.replaceChildren(...[heading(),
      make("p", { class: found.verdict === "unknown" ? "soft" : "" }, found.sentence),
      facts.length ? make("ul", { class: "notes" }, facts.map((fact) => make("li", {}, fact))) : null,
      found.parents.length ? parents(found.parents) : null,
      moved(found.layers) ? layerMap(found.layers) : null,
      evidence.length ? make("p", { class: "soft small" }, evidence.join(" · ")) : null].filter(Boolean));
    deltadex.say(found.sentence);
  }

  const heading = () => make("div", { class: "section-head" }, make("h3", {}, "Where it comes from"));

  function trace(model) {
    const box = byId("origin");
    box.replaceChildren(); // so that it says that it waits
    load(box, (how) => deltadex.source.trace(model, deltadex.scope(), how), (found) => show(box, found), "Tracing…");
  }

  // Tracing reads some of the model's weights: it waits to be asked.
  function update(asked) {
    const box = byId("origin");
    deltadex.cancel(box);
    box.replaceChildren();
    if (!asked.model || !deltadex.source.trace) return;
    box.append(heading(), button({ class: "quiet", onclick: () => trace(asked.model) }, "Trace its base and parents"));
  }

  deltadex.origin = { update };
}
