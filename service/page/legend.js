"use strict";
{
  const { byId, make, draw, button, say, state, format, colours, map } = deltadex;

  // A category's mark: filled for full fine-tunes, hollow for adapters.
  function swatch(item, hollow = false, size = 14) {
    const css = colours.css(colours.rgbOf(map.colours, item));
    return draw("svg", { viewBox: "0 0 14 14", width: size, height: size, class: "swatch", "aria-hidden": "true" },
      draw("circle", hollow ? { cx: 7, cy: 7, r: 4.6, fill: "none", stroke: css, "stroke-width": 2.4 }
        : { cx: 7, cy: 7, r: 5.6, fill: css }));
  }

  function star(standsOut) {
    const points = Array.from({ length: 10 }, (_, n) => {
      const far = n % 2 ? 2.7 : 6.2, angle = (Math.PI * n) / 5;
      return `${(7 + far * Math.sin(angle)).toFixed(2)},${(7 - far * Math.cos(angle)).toFixed(2)}`;
    });
    return draw("svg", { viewBox: "0 0 14 14", width: 14, height: 14, class: standsOut ? "star" : "star hollow", "aria-hidden": "true" },
      draw("polygon", { points: points.join(" ") }));
  }

  // Kept data sets: a button shows where one stands on the map.
  function stars() {
    const { stars } = map.family;
    byId("stars").hidden = !stars.length;
    if (!stars.length) { byId("stars").replaceChildren(); return; }
    byId("stars").replaceChildren(
      make("h3", {}, "Kept data sets"),
      make("ul", {}, stars.map((data, n) => make("li", {}, button({ class: "row",
        title: data.standsOut ? "Show on the map" : "No model stands out. Show on the map",
        onclick: () => { map.flyToStar(n); say(deltadex.tooltip.spokenData(data)); },
        onpointerenter: () => map.star(n), onpointerleave: () => map.star(-1), onblur: () => map.star(-1) },
      star(data.standsOut), make("span", { class: "name" }, data.name), make("span", { class: "n" }, format.whole(data.examples)))))),
      stars.some((data) => !data.standsOut) ? make("p", { class: "soft small" }, "Hollow: no model stands out.") : "");
  }

  // The colour that a model's dataset has wherever datasets are coloured.
  function datasetItem(name) {
    const { items } = map.datasets;
    if (name === null || name === undefined) return { colour: "none" };
    return items.find((item) => item.key === `=${name}`) ?? { colour: "tail" };
  }

  // The mark of a model, in the colour that its dataset has now.
  const mark = (dataset, hollow) => Object.assign(swatch(datasetItem(dataset), hollow), { of: [dataset, hollow] });

  function off(asked, items) {
    const keys = items.map((item) => item.key);
    if (asked.only.length) return new Set(keys.filter((key) => !asked.only.includes(key)));
    return new Set(asked.off.filter((key) => keys.includes(key)));
  }

  // Kept in the address as the shorter of the two lists.
  function keep(hidden, items) {
    const shown = items.map((item) => item.key).filter((key) => !hidden.has(key));
    const shorter = shown.length && shown.length < hidden.size;
    state.change({ off: shorter ? [] : [...hidden], only: shorter ? shown : [] }, "replace");
  }

  function toggle(key) {
    const hidden = new Set(map.hidden);
    hidden.has(key) ? hidden.delete(key) : hidden.add(key);
    keep(hidden, map.categories.items);
  }

  function isolate(key) {
    const others = map.categories.items.map((item) => item.key).filter((other) => other !== key);
    keep(new Set(others), map.categories.items);
  }

  function row(item) {
    const clicked = (event) => (event.shiftKey ? isolate(item.key) : toggle(item.key));
    return make("li", {},
      button({ class: "row", "aria-pressed": String(!map.hidden.has(item.key)), onclick: clicked,
        ondblclick: () => isolate(item.key), title: "Click: show or hide. Double click or Shift: only this." },
      swatch(item), make("span", { class: "name" }, deltadex.words.breakable(item.name)),
      make("span", { class: "n" }, format.whole(item.count))));
  }

  // What passes the filters, of each category.
  function counted() {
    const passing = map.categories.items.map(() => 0);
    for (let i = 0; i < map.family.count; i++) if (map.shown[i]) passing[map.categories.of[i]]++;
    byId("categories").querySelectorAll(".n").forEach((node, n) => {
      const { count } = map.categories.items[n];
      node.textContent = format.whole(passing[n]);
      node.title = passing[n] === count ? "" : `of ${format.whole(count)}`;
    });
  }

  function update(asked) {
    const { family } = map;
    map.categories = categories(asked, null, []);
    map.datasets = asked.colour === "dataset" ? map.categories : colours.categorise(...family.columns("dataset"));
    refresh(asked);
  }

  function categories(asked, seen, before) {
    const { family } = map, found = colours.categorise(...family.columns(asked.colour),
      { seen, before, tones: asked.colour === "cluster" ? "clusters" : "of" });
    if (asked.colour === "kind") for (const item of found.items) item.name = deltadex.words.kind(item.name);
    if (asked.colour === "cluster" && family.clusters) {
      for (const item of found.items) item.name = family.clusterTitles[family.clusterNames.indexOf(item.key.slice(1))] ?? item.name;
    }
    return found;
  }

  // Colours go to what is in sight, where there are more names than colours.
  function inView() {
    const asked = state.current, before = map.categories;
    if (!before.crowded || map.hidden.size) return;
    const found = categories(asked, map.inSightAll(), before.items);
    if (String(found.items.map(({ key }) => key)) === String(before.items.map(({ key }) => key))) return;
    map.categories = found;
    if (asked.colour === "dataset") map.datasets = found;
    refresh(asked);
    deltadex.selection.update(asked);
    map.restyle();
  }

  function refresh(asked) {
    const { items } = map.categories;
    map.hidden = off(asked, items);
    const focused = [...byId("categories").querySelectorAll("button")].indexOf(document.activeElement);
    byId("categories").replaceChildren(...items.map(row));
    byId("categories").querySelectorAll("button")[focused]?.focus();
    counted();
    for (const old of document.querySelectorAll(".swatch")) if (old.of) old.replaceWith(mark(...old.of));
    byId("every").disabled = map.hidden.size === 0;
    byId("colour").value = asked.colour;
    kinds();
    stars();
  }

  function kinds() {
    const named = { colour: "text" };
    const family = map.family.document;
    byId("kinds").replaceChildren(...["full", "adapter"].filter((kind) => family.kinds.includes(kind))
      .map((kind) => make("span", {}, swatch(named, kind !== "full"), deltadex.words.kind(kind))),
    ...(family.downloads.some((n) => n > 0) ? [make("span", {}, "larger: more downloads")] : []),
    ...(map.family.contours.length ? [make("span", {}, "lines: models lie as densely along each")] : []));
  }

  function start() {
    byId("colour").onchange = (event) => state.change({ colour: event.target.value, off: [], only: [] });
    byId("every").onclick = () => state.change({ off: [], only: [] }, "replace");
    byId("nothing").onclick = () => keep(new Set(map.categories.items.map((item) => item.key)), map.categories.items);
  }

  deltadex.legend = { star, start, counted, inView, update, refresh, mark, datasetItem };
}
