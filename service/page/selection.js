"use strict";
{
  const { byId, make, button, icon, state, format, map, legend, bars, colours, words: { short, breakable, called } } = deltadex;
  const COLUMNS = [["dataset", "Dataset"], ["author", "Author"], ["month", "Date"], ["kind", "Kind"]];
  const FEW = 6, MANY = 60, ROWS = 40, MONTHS = 12;
  const panel = byId("selection");
  const unfolded = new Set();

  // Which models are seen: they pass the filters, and the legend does not hide them.
  function seen(asked) {
    const { family, categories, hidden } = map, passing = family.passing(asked);
    if (hidden.size) for (let i = 0; i < family.count; i++) if (hidden.has(categories.items[categories.of[i]].key)) passing[i] = 0;
    return passing;
  }

  // Where there are many months, a date is a year.
  const lengthOf = (column) => (column === "month" && map.family.document.months.length > MONTHS ? 4 : undefined);

  // How many models there are of each value, were this column not filtered.
  function counted(asked, column) {
    const { family } = map, mask = seen({ ...asked, [column]: "" }), [of, names] = family.columns(column);
    const counts = new Map(), length = lengthOf(column);
    for (let i = 0; i < family.count; i++) {
      if (!mask[i]) continue;
      const value = of[i] === null ? null : names[of[i]].slice(0, length);
      counts.set(value, (counts.get(value) ?? 0) + 1);
    }
    const byDate = ([a], [b]) => (a === null) - (b === null) || (a < b ? -1 : 1);
    const bySize = ([a, n], [b, m]) => (a === null) - (b === null) || m - n || (a < b ? -1 : 1);
    return [...counts].sort(column === "month" ? byDate : bySize);
  }

  function line(asked, column, [value, n], most) {
    const colour = column === "dataset" ? colours.css(colours.rgbOf(map.colours, legend.datasetItem(value))) : null;
    const parts = [make("span", { class: "name" }, called(column, value) ?? map.family.columns(column)[2]), bars.bar(n, [0, most], colour),
      make("span", { class: "n number" }, format.whole(n))];
    if (value === null) return make("li", {}, make("span", { class: "row" }, parts));
    const on = asked[column] === value;
    return make("li", {}, button({ class: "row", "aria-pressed": String(on), "data-key": `${column} ${value}`,
      title: on ? "Show the others again" : `Only ${called(column, value)}`, onclick: () => state.change({ [column]: on ? "" : value, page: "1" }) }, parts));
  }

  function histogram(asked, [column, title]) {
    const values = counted(asked, column), most = Math.max(1, ...values.map(([, n]) => n));
    if (values.every(([value]) => value === null)) return [];
    const open = unfolded.has(column), shown = values.slice(0, open ? MANY : FEW), left = values.length - shown.length;
    const fold = () => { open ? unfolded.delete(column) : unfolded.add(column); show(state.current); };
    return make("section", { class: "histogram" }, make("h3", {}, title),
      make("ul", {}, shown.map((value) => line(asked, column, value, most))),
      left || open ? button({ class: "inline small", "data-key": column, onclick: fold }, open ? "Show fewer" : `${format.whole(left)} more`) : null);
  }

  // The columns of the table of which something is known.
  const named = () => ["dataset", "author"].filter((name) => map.family.document[`${name}s`].length);

  const row = (i) => make("tr", {}, make("th", { scope: "row" }, make("div", { class: "line" },
    legend.mark(map.family.name("dataset", i), map.family.hollow[i] === 1),
    button({ class: "link", title: map.family.id(i), onclick: () => deltadex.card.open(map.family.id(i)),
      onpointerenter: () => map.hover(i), onpointerleave: () => map.hover(-1) }, make("span", { class: "name" }, breakable(short(map.family.id(i))))))),
  named().map((name) => make("td", {}, map.family.name(name, i) ?? map.family.columns(name)[2])));

  function table(asked, places) {
    return [make("table", { class: "near picked" }, make("caption", { class: "unseen" }, "Models that are seen"),
      make("thead", {}, make("tr", {}, ["model", ...named()].map((text) => make("th", { scope: "col" }, text)))),
      make("tbody", {}, places.slice(0, ROWS).map(row))),
    places.length > ROWS ? button({ class: "inline small", onclick: () => state.change({ view: "models" }) }, `All ${format.whole(places.length)} in Models`) : null];
  }

  function show(asked) {
    const mask = seen(asked), { count } = map.family, focused = document.activeElement?.dataset?.key, { scrollTop } = panel;
    const places = Array.from({ length: count }, (_, i) => i).filter((i) => mask[i]);
    panel.replaceChildren(...[
      make("div", { class: "card-head" }, make("h2", {}, places.length < count ? `${format.whole(places.length)} of ${format.count(count, "model")}` : format.count(count, "model")),
        button({ class: "round", "aria-label": "Close counts and table", title: "Close (Esc)", onclick: close }, icon("close"))),
      make("p", { class: "soft small" }, "A bar filters the map, the table and the other bars. To select an area, hold Shift and draw around models, or use the map’s first button."),
      asked.area ? button({ class: "quiet", onclick: () => state.change({ area: "" }) }, "Drop the area") : null,
      make("div", { class: "histograms" }, COLUMNS.flatMap((column) => histogram(asked, column))),
      ...(places.length ? table(asked, places) : [make("p", { class: "soft" }, "No model passes.")])].filter(Boolean));
    if (focused) panel.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    panel.scrollTop = scrollTop;
  }

  function update(asked) {
    const before = panel.hidden;
    panel.hidden = asked.view !== "map" || asked.counts !== "on" || !map.family.count || !byId("card").hidden;
    byId("counts").setAttribute("aria-expanded", String(asked.counts === "on"));
    if (panel.hidden) panel.replaceChildren();
    else show(asked);
    if (panel.hidden === before) return;
    if (before) deltadex.filters.close();
    deltadex.card.place();
  }

  function close() {
    state.change({ counts: "", area: "" });
    byId("stage").focus({ preventScroll: true });
  }

  function csv(asked) {
    const { family } = map, mask = seen(asked), { document } = family;
    const columns = ["model", "dataset", "author", "kind", "month", "downloads", "x", "y"];
    const rows = document.models.flatMap((id, i) => (mask[i] ? [[id, ...["dataset", "author", "kind", "month"].map((name) => family.name(name, i)),
      document.downloads[i], document.x[i], document.y[i]]] : []));
    return { columns, rows };
  }

  function start() {
    byId("counts").onclick = () => state.change(state.current.counts === "on" ? { counts: "", area: "" } : { counts: "on", model: "", other: "" });
    addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !panel.hidden && !event.defaultPrevented) close();
    });
  }

  deltadex.selection = { start, update };
  map.csv = csv;
}
