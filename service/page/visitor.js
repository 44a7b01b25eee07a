"use strict";
{
  const { byId, make, button, state, say, map, legend, neighbours, format } = deltadex;
  const SHOWN = 15, FEWEST = 5, LEAST_Z = 0.1;
  const mark = byId("visitor");
  let visitor = null; // what was dropped: its name, what it is, and the answer about it

  const standsOut = (found) => found.verdict !== "no model stands out";

  // The neighbours that place it: those that stand out, else the nearest few.
  function placing({ answer }) {
    const known = answer.neighbours.filter(({ model }) => map.family.place.has(model)), best = known.filter(standsOut);
    return best.length ? best.slice(0, SHOWN) : known.slice(0, FEWEST);
  }

  // The mean place of these, weighted by z, as of kept data sets.
  function at() {
    const { x, y, place } = map.family, sum = [0, 0, 0];
    for (const { model, z } of placing(visitor)) {
      const i = place.get(model), weight = Math.max(LEAST_Z, z);
      for (const [n, value] of [x[i], y[i], 1].entries()) sum[n] += weight * value;
    }
    return sum[2] ? [sum[0] / sum[2], sum[1] / sum[2]] : null;
  }

  // Where it is on the screen; null where nothing was dropped.
  function place() {
    const [x, y] = visitor && map.family.count ? at() ?? [] : [];
    mark.hidden = x === undefined;
    if (mark.hidden) return null;
    const [left, top] = map.view.toScreen(x, y), [width, height] = map.view.size;
    mark.hidden = left < 0 || top < 0 || left > width || top > height;
    mark.style.setProperty("left", `${left}px`);
    mark.style.setProperty("top", `${top}px`);
    return [left, top];
  }

  function words() {
    const of = placing(visitor), n = of.length;
    if (!n) return "It has no place: none of its neighbours is on the map.";
    return standsOut(of[0]) ? n === 1 ? "It stands where the one model that stands out does." : `It stands at the mean place of the ${format.whole(n)} models that stand out, weighted by z.`
      : `No model stands out: it stands amid the ${format.whole(n)} nearest, and its place means little.`;
  }

  // The card of what was dropped.
  function show() {
    const { name, facts, answer } = visitor;
    byId("card-top").replaceChildren(
      make("div", { class: "card-head" },
        make("div", {}, make("h2", { tabindex: "-1", id: "card-title" }, name),
          make("p", { class: "tags" }, make("span", { class: "tag" }, legend.star(true), "dropped here, not stored"))),
        deltadex.card.closer()),
      make("p", { class: "soft small" }, [...facts, words()].join(" ")),
      button({ class: "quiet", onclick: leave }, "Take it off the map"));
    neighbours.given(answer);
    say(`Card of ${name}. ${byId("neighbours").querySelector(".headline")?.textContent ?? ""}`);
  }

  function arrive(found) {
    visitor = { ...found, base: deltadex.base, open: true };
    mark.setAttribute("aria-label", `${found.name}, dropped here. Open its card`);
    mark.title = found.name;
    state.change({ view: "map", model: "", other: "" });
    deltadex.card.update(state.current, null);
    byId("card-title")?.focus({ preventScroll: true });
    reveal();
  }

  function reveal() {
    const where = at();
    if (where) map.revealPlace(...where, false);
  }

  function leave() {
    visitor = null;
    mark.hidden = true;
    deltadex.card.update(state.current, null);
    map.dirty();
  }

  // Its card gives way to that of a model.
  function open(shown) {
    if (!visitor || visitor.open === shown) return;
    visitor.open = shown;
    if (shown && state.current.model) state.change({ model: "", other: "" });
    else deltadex.card.update(state.current, null);
  }

  function start() {
    mark.onclick = () => open(true);
  }

  deltadex.visitor = {
    start, arrive, place, show, open,
    isOpen: () => visitor?.open === true && !state.current.model,
    stays: (base) => { if (visitor && visitor.base !== base) visitor = null; },
  };
}
