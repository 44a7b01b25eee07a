"use strict";
{
  const { byId, make, button, icon, state, format, map } = deltadex;
  const OFFERED = 300;
  const NAMES = { dataset: "dataset", author: "author", kind: "kind", status: "status",
    downloads: "downloads ≥", where: "where", cluster: "cluster", month: "created", area: "area" };
  const TYPED = state.FILTERS.filter((name) => name !== "area"); // an area is drawn
  const STATUSES = [["", "any"], ["indexed", "indexed"], ["failed", "failed"], ["skipped", "skipped"],
    ["no-update", "no update"]];
  let control = new AbortController();

  const field = (name) => byId(`filter-${name}`);

  // The free condition is the service's to read: it says which models pass.
  async function applyWhere(asked) {
    control.abort();
    control = new AbortController();
    const { signal } = control, { family } = map;
    tell("");
    family.where = null;
    if (!asked.where || !family.count || !deltadex.source.can.details) return;
    const passing = new Uint8Array(family.count);
    try {
      await deltadex.source.each({ ...deltadex.scope(), where: asked.where, status: "indexed" }, { signal,
        some: (models) => {
          for (const { model: id } of models) if (family.place.has(id)) passing[family.place.get(id)] = 1;
          family.where = passing;
          if (!signal.aborted) show(state.current);
        } });
      family.where = passing;
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof deltadex.Problem)) throw error;
      tell(error.message);
    }
  }

  function tell(message) {
    byId("where-problem").textContent = message;
    byId("where-problem").hidden = !message;
    field("where").setAttribute("aria-invalid", String(message !== ""));
    if (message) open(true);
  }

  function show(asked) {
    map.shown = map.family.passing(asked);
    deltadex.legend.counted();
    map.restyle();
    deltadex.selection.update(asked);
  }

  async function update(asked) {
    describe(asked);
    show(asked);
    await applyWhere(asked);
    show(asked);
  }

  function chips(asked) {
    return state.FILTERS.filter((name) => asked[name]).map((name) =>
      button({ class: "chip", onclick: () => state.change({ [name]: "" }), "aria-label": `Remove filter ${NAMES[name]} ${name === "area" ? "drawn" : asked[name]}` },
        make("span", { class: "soft" }, NAMES[name]), make("span", { class: "name" }, name === "area" ? "drawn" : deltadex.words.called(name, asked[name])), icon("close")));
  }

  function describe(asked) {
    for (const name of TYPED) if (document.activeElement !== field(name)) field(name).value = asked[name];
    const on = chips(asked);
    byId("chips").replaceChildren(...on);
    byId("chips").hidden = !on.length;
    byId("filters-on").textContent = on.length ? String(on.length) : "";
    byId("clear").disabled = !on.length;
  }

  function offer() {
    const { document: family } = map.family;
    for (const name of ["dataset", "author"]) {
      byId(`${name}s`).replaceChildren(...family[`${name}s`].slice(0, OFFERED).map((value) => make("option", { value })));
    }
    deltadex.options(field("kind"), [["", "any"], ...family.kinds.map((kind) => [kind, deltadex.words.kind(kind)])], state.current.kind);
    deltadex.options(field("status"), STATUSES, state.current.status);
    offerClusters();
  }

  function offerClusters() {
    const names = map.family.clusters ? map.family.clusterNames : [];
    deltadex.options(field("cluster"), [["", names.length ? "any" : "…"], ...names.map((name) => [name, name])],
      state.current.cluster);
  }

  const open = (shown) => {
    if (byId("filters").hidden !== shown) return;
    byId("filters").hidden = !shown;
    deltadex.card.place();
    byId("filter").setAttribute("aria-expanded", String(shown));
  };

  function start() {
    byId("filter").onclick = () => {
      open(byId("filters").hidden);
      if (!byId("filters").hidden) field("dataset").focus();
    };
    byId("filters-close").onclick = () => { open(false); byId("filter").focus(); };
    field("cluster").onfocus = () => deltadex.wantClusters();
    byId("clear").onclick = () => state.change(state.cleared());
    byId("none-clear").onclick = () => state.change({ ...state.cleared(), off: [], only: [] });
    byId("filters").onsubmit = (event) => event.preventDefault();
    for (const name of TYPED) {
      field(name).onchange = (event) => state.change({ [name]: event.target.value.trim(), page: "1" });
    }
    byId("filters").onkeydown = (event) => {
      if (event.key === "Enter" && event.target.matches("input")) event.target.dispatchEvent(new Event("change"));
    };
    addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || byId("filters").hidden || event.defaultPrevented) return;
      event.preventDefault(); // of a card beneath
      byId("filters-close").click();
    });
    byId("where-field").hidden = !deltadex.source.can.details;
    byId("status-field").hidden = !deltadex.source.can.details;
    byId("cluster-field").hidden = !deltadex.source.can.cluster;
  }

  deltadex.filters = { start, update, show, offer, offerClusters, close: () => open(false) };
}
