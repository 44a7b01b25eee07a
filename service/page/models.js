"use strict";
{
  const { byId, make, button, icon, state, format, load, legend, empty } = deltadex;
  const ROWS = 50;
  const text = (name) => (found) => found[name] ?? "";
  const has = (name) => (found) => found[name] !== null && found[name] !== undefined;
  // What a column is sorted by, its heading, its cells, and whether a model has something there.
  const COLUMNS = [
    ["dataset", "Dataset", (found) => found.dataset ?? make("span", { class: "soft" }, "unlabelled"), () => true],
    ["author", "Author", text("author"), has("author")], [null, "Kind", (found) => deltadex.words.kind(found.kind), has("kind")],
    ["downloads", "Downloads", (found) => (has("downloads")(found) ? format.whole(found.downloads) : ""), has("downloads")],
    [null, "Status", (found) => (found.code ? `${found.status}: ${found.code}` : found.status), (found) => found.status !== "indexed"],
  ];
  const numeric = (sort) => (sort === "downloads" ? "number" : null);

  function sortBy(name) {
    const { sort, order } = state.current;
    const first = name === "downloads" ? "desc" : "asc";
    const next = sort !== name ? first : order === "asc" ? "desc" : "asc";
    state.change({ sort: name, order: next, page: "1" });
  }

  function heading([name, text]) {
    const { sort, order } = state.current;
    if (name === null) return make("th", { scope: "col", "data-name": text }, text);
    const turned = sort === name ? (order === "asc" ? "ascending" : "descending") : null;
    return make("th", { scope: "col", "aria-sort": turned, "data-name": text, class: numeric(name) },
      button({ class: "sort", onclick: () => sortBy(name) }, text, make("span", { "aria-hidden": "true" },
        turned === null ? "" : order === "asc" ? " ↑" : " ↓")));
  }

  const row = (columns) => (found) => make("tr", { class: state.current.model === found.model ? "on" : null },
    make("th", { scope: "row" }, button({ class: "link", onclick: () => deltadex.card.open(found.model) },
      legend.mark(found.dataset, found.kind !== "full"), make("span", { class: "name" }, deltadex.words.breakable(found.model)))),
    columns.map(([sort, name, cell]) => make("td", { class: numeric(sort), "data-name": name, title: name === "Status" ? found.reason : null }, cell(found))));

  const FACETS = [["dataset", "Dataset"], ["author", "Author"], ["kind", "Kind"], ["status", "Status"]], VALUES = 8;

  // The values of a column with their counts; each filters the list by itself.
  function facet(counted, [name, title]) {
    const values = counted.facets.filter(({ facet: of, value }) => of === name && value !== null), asked = state.current;
    if (values.length < 2 && !asked[name]) return null;
    const left = counted.others[name] + values.slice(VALUES).reduce((sum, { models }) => sum + models, 0);
    return make("div", { class: "facet", role: "group", "aria-label": title }, make("h3", {}, title),
      values.slice(0, VALUES).map(({ value, models }) => button({ class: "chip", "aria-pressed": String(asked[name] === value),
        onclick: () => state.change({ [name]: asked[name] === value ? "" : value, page: "1" }) },
      make("span", { class: "name" }, deltadex.words.called(name, value)), make("span", { class: "soft number" }, format.whole(models)))),
      left ? make("span", { class: "soft small" }, `and ${format.count(left, "other model")}`) : null);
  }

  // How many of the family's are listed, and why the others are on no map.
  function caption(found) {
    const count = `${format.count(found.total, "model")}${state.filtered() ? " pass the filters" : ""}`, { indexed, models } = deltadex.family() ?? {};
    if (state.filtered() || !(models > indexed)) return make("p", { class: "soft" }, `${count}.`);
    return make("p", { class: "soft" }, `${count}: ${format.whole(indexed)} indexed and on the map, ${format.whole(models - indexed)} not. `,
      button({ class: "inline", onclick: () => state.change({ status: "indexed", page: "1" }) }, "Only the indexed ones"), " · ",
      button({ class: "inline", onclick: () => state.change({ view: "failures" }) }, "Why the others are not"));
  }

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
    const columns = COLUMNS.filter(([, , , filled]) => found.models.some(filled));
    box.replaceChildren(caption(found), ...(found.counted ? FACETS.map((one) => facet(found.counted, one)).filter(Boolean) : []),
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of models" },
        make("table", { class: "list" }, make("caption", { class: "unseen" }, "Models"),
          make("thead", {}, make("tr", {}, [["model", "Model"], ...columns].map(heading))), make("tbody", {}, found.models.map(row(columns))))),
      make("nav", { class: "pager", "aria-label": "Pages" }, turn(page, -1, "Previous page", "left", page > 1),
        make("span", { class: "number" }, `Page ${format.whole(page)} of ${format.whole(last)}`),
        turn(page, 1, "Next page", "right", page < last)));
  }

  // Clusters and areas are known to the page, not to the service's list.
  const ownFilters = (asked) => (asked.area && deltadex.map.family.count) || (asked.cluster && deltadex.map.family.clusters);

  function passing(asked) {
    const { family } = deltadex.map;
    const at = [...family.passing(asked)].flatMap((passes, i) => (passes ? [i] : []));
    const models = at.map((i) => ({ model: family.id(i), status: "indexed", dataset: family.name("dataset", i),
      author: family.name("author", i), kind: family.name("kind", i), downloads: family.document.downloads[i] }));
    const turned = asked.order === "desc" ? -1 : 1, key = asked.sort;
    return models.sort((a, b) => ((a[key] ?? "") < (b[key] ?? "") ? -turned : turned));
  }

  function pageOf(models, asked) {
    const offset = (Number(asked.page) - 1) * ROWS;
    return { models: models.slice(offset, offset + ROWS), total: models.length };
  }

  const parameters = (asked) => ({ ...deltadex.scope(), ...deltadex.asParameters(asked, { kind: true }), sort: asked.sort, order: asked.order,
    ...(deltadex.source.can.details ? {} : { min: asked.downloads }) });

  function update(asked) {
    const box = byId("models-body");
    const params = { ...parameters(asked), indexed_first: true, limit: ROWS, offset: (Number(asked.page) - 1) * ROWS };
    const { sort, order, ...filters } = parameters(asked), { models, facets } = deltadex.source;
    const ask = ownFilters(asked) ? async () => pageOf(passing(asked), asked) : async (how) => {
      const [found, counted] = await Promise.all([models(params, how), facets?.(filters, how)]);
      return { ...found, counted };
    };
    load(box, ask, (found) => show(box, found), "Reading the list of models…");
  }

  // All pages of the list.
  async function csv(asked) {
    const models = ownFilters(asked) ? passing(asked) : [];
    if (!ownFilters(asked)) await deltadex.source.each(parameters(asked), { some: (some) => models.push(...some) });
    const columns = ["model", "dataset", "author", "kind", "downloads", "created_at", "status", "code"];
    return { columns, rows: models.map((found) => columns.map((name) => found[name])) };
  }

  deltadex.models = { update, csv };
}
