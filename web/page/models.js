"use strict";
{
  const { byId, make, button, icon, state, format, load, legend, empty } = deltadex;
  const ROWS = 50;
  const COLUMNS = [["model", "Model"], ["dataset", "Dataset"], ["author", "Author"], [null, "Kind"],
    ["downloads", "Downloads"], [null, "Status"]];

  function sortBy(name) {
    const { sort, order } = state.current;
    const first = name === "downloads" ? "desc" : "asc";
    const next = sort !== name ? first : order === "asc" ? "desc" : "asc";
    state.change({ sort: name, order: next, page: "1" });
  }

  function heading([name, text]) {
    const { sort, order } = state.current;
    if (name === null) return make("th", { scope: "col" }, text);
    const turned = sort === name ? (order === "asc" ? "ascending" : "descending") : null;
    return make("th", { scope: "col", "aria-sort": turned, class: name === "downloads" ? "number" : null },
      button({ class: "sort", onclick: () => sortBy(name) }, text, make("span", { "aria-hidden": "true" },
        turned === null ? "" : order === "asc" ? " ↑" : " ↓")));
  }

  const row = (found) => make("tr", { class: state.current.model === found.model ? "on" : null },
    make("th", { scope: "row" }, button({ class: "link", onclick: () => deltadex.card.open(found.model) },
      legend.swatch(legend.datasetItem(found.dataset), found.kind !== "full"), make("span", { class: "name" }, found.model))),
    make("td", {}, found.dataset ?? make("span", { class: "soft" }, "unlabelled")),
    make("td", {}, found.author ?? ""), make("td", {}, found.kind ?? ""),
    make("td", { class: "number" }, found.downloads === null || found.downloads === undefined ? "" : format.whole(found.downloads)),
    make("td", { title: found.reason ?? null }, found.code ? `${found.status}: ${found.code}` : found.status));

  function turn(page, by, text, shape, possible) {
    return button({ class: "quiet", disabled: !possible, onclick: () => state.change({ page: String(page + by) }), "aria-label": text }, icon(shape));
  }

  function show(box, found) {
    const page = Number(state.current.page), last = Math.max(1, Math.ceil(found.total / ROWS));
    if (!found.models.length) {
      box.replaceChildren(empty("No model passes", state.filtered() ? "Loosen the filters to see some." : "The catalog holds none yet.",
        state.filtered() ? button({ class: "quiet", onclick: () => state.change(state.cleared()) }, "Clear filters") : []));
      return;
    }
    box.replaceChildren(
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of models" },
        make("table", { class: "list" }, make("caption", {}, `${format.count(found.total, "model")}${state.filtered() ? " pass the filters" : ""}`),
          make("thead", {}, make("tr", {}, COLUMNS.map(heading))), make("tbody", {}, found.models.map(row)))),
      make("nav", { class: "pager", "aria-label": "Pages" }, turn(page, -1, "Previous page", "left", page > 1),
        make("span", { class: "number" }, `Page ${format.whole(page)} of ${format.whole(last)}`),
        turn(page, 1, "Next page", "right", page < last)));
  }

  // A cluster is known to the page, not to the service's list.
  function inCluster(asked) {
    const { family } = deltadex.map, wanted = family.clusterNames.indexOf(asked.cluster);
    const passing = family.passing(asked);
    const at = family.clusterOf.flatMap((c, i) => (c === wanted && passing[i] ? [i] : []));
    const models = at.map((i) => ({ model: family.id(i), status: "indexed", dataset: family.name("dataset", i),
      author: family.name("author", i), kind: family.name("kind", i), downloads: family.document.downloads[i] }));
    const turned = asked.order === "desc" ? -1 : 1, key = asked.sort;
    models.sort((a, b) => ((a[key] ?? "") < (b[key] ?? "") ? -turned : turned));
    const offset = (Number(asked.page) - 1) * ROWS;
    return { models: models.slice(offset, offset + ROWS), total: models.length };
  }

  function update(asked) {
    const box = byId("models-body");
    const params = { ...deltadex.scope(), ...deltadex.asParameters(asked, { kind: true }), sort: asked.sort, order: asked.order,
      limit: ROWS, offset: (Number(asked.page) - 1) * ROWS, ...(deltadex.source.can.details ? {} : { min: asked.downloads }) };
    const ask = asked.cluster && deltadex.map.family.clusters ? async () => inCluster(asked)
      : (how) => deltadex.source.models(params, how);
    load(box, ask, (found) => show(box, found), "Reading the list of models…");
  }

  deltadex.models = { update };
}
