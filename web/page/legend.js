"use strict";
{
  const { byId, make, draw, button, state, format, colours, map } = deltadex;

  // A category's mark: filled for full fine-tunes, hollow for adapters.
  function swatch(item, hollow = false, size = 14) {
    const css = colours.css(colours.rgbOf(map.colours, item));
    return draw("svg", { viewBox: "0 0 14 14", width: size, height: size, class: "swatch", "aria-hidden": "true" },
      draw("circle", hollow ? { cx: 7, cy: 7, r: 4.6, fill: "none", stroke: css, "stroke-width": 2.4 }
        : { cx: 7, cy: 7, r: 5.6, fill: css }));
  }

  // The colour that a model's dataset has wherever datasets are coloured.
  function datasetItem(name) {
    const { items } = map.datasets;
    if (name === null || name === undefined) return { colour: "none" };
    return items.find((item) => item.key === `=${name}`) ?? { colour: "tail" };
  }

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
      swatch(item), make("span", { class: "name" }, item.name),
      make("span", { class: "n" }, format.whole(item.count))));
  }

  function update(asked) {
    const { family } = map;
    map.categories = colours.categorise(...family.columns(asked.colour));
    map.datasets = asked.colour === "dataset" ? map.categories : colours.categorise(...family.columns("dataset"));
    refresh(asked);
  }

  function refresh(asked) {
    const { items } = map.categories;
    map.hidden = off(asked, items);
    const focused = [...byId("categories").querySelectorAll("button")].indexOf(document.activeElement);
    byId("categories").replaceChildren(...items.map(row));
    byId("categories").querySelectorAll("button")[focused]?.focus();
    byId("every").disabled = map.hidden.size === 0;
    byId("colour").value = asked.colour;
    kinds();
  }

  function kinds() {
    const named = { colour: "none" };
    const family = map.family.document;
    byId("kinds").replaceChildren(...[["full fine-tune", false, "full"], ["adapter", true, "adapter"]]
      .filter(([, , kind]) => family.kinds.includes(kind))
      .map(([text, hollow]) => make("span", {}, swatch(named, hollow), text)),
    ...(family.downloads.some((n) => n > 0) ? [make("span", {}, "larger: more downloads")] : []));
  }

  function start() {
    byId("colour").onchange = (event) => state.change({ colour: event.target.value, off: [], only: [] });
    byId("every").onclick = () => state.change({ off: [], only: [] }, "replace");
    byId("nothing").onclick = () => keep(new Set(map.categories.items.map((item) => item.key)), map.categories.items);
  }

  deltadex.legend = { start, update, refresh, swatch, datasetItem };
}
