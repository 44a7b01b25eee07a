"use strict";
{
  const { byId, make, button, icon, state, format, load, map, legend, say } = deltadex;
  const card = byId("card");
  const ZOOM_PX = 24; // what the buttons take beyond the map's edge
  const BROAD = 0.6, STRIP_PX = 40; // a panel broader than this share is a sheet, or lies on top
  const HUB_ID = /^[\w.-]+\/[\w.-]+$/;
  const STATED = { labels: "your labels", tags: "its tags", card: "its card", "model-index": "its card’s results", sentence: "its card’s text", name: "its name" };
  let byKeyboard = false, details = null, linked = ""; // the model that a link opened, and no view of the map

  // From a click the card opens beside the map; from keys it also takes the focus.
  function open(model, { fly = false } = {}) {
    byKeyboard = card.contains(document.activeElement) || !document.activeElement?.matches(":hover");
    const view = ["map", "models"].includes(state.current.view) && !fly ? state.current.view : "map";
    deltadex.visitor.open(false);
    state.change({ model, other: "", view });
    if (fly) map.reveal(map.chosen, true);
  }

  function close() {
    deltadex.visitor.open(false);
    state.change({ model: "", other: "" });
    byId("stage").focus({ preventScroll: true });
  }

  const DAY = /^\d{4}-\d\d-\d\d/;
  const day = (text) => text.match(DAY)?.[0] ?? text;

  const facts = (found) => [
    ["Author", found.author],
    ["Downloads", found.downloads === null || found.downloads === undefined ? null : format.whole(found.downloads)],
    ["Run", found.run], ["Base", found.base && deltadex.wholeName(found.base)], ["Revision", found.revision],
    ["Copy of", found.duplicate_of],
    ["Weights read", found.bytes_read ? `${format.bytes(found.bytes_read)} of ${format.bytes(found.bytes_total ?? found.bytes_read)}` : null],
    ["Indexed", found.indexed_at && day(found.indexed_at)],
  ].filter(([, value]) => value !== null && value !== undefined && value !== "");

  function link(found) {
    if (found.source !== "hub" || !HUB_ID.test(found.model)) return null;
    return make("a", { href: `https://huggingface.co/${found.model}`, rel: "noopener noreferrer", target: "_blank", class: "out" },
      "Open on the Hub");
  }

  const closer = () => button({ class: "round", "aria-label": "Close the card", title: "Close (Esc)", onclick: close }, icon("close"));

  // What it is, before what it was trained on.
  function headline(found) {
    const what = [deltadex.words.kind(found.kind), found.method !== found.kind && found.method, found.base && deltadex.nameOf(found.base), found.task, found.license, found.created_at && day(found.created_at)];
    return make("div", { class: "card-head" },
      make("div", {}, make("h2", { tabindex: "-1", id: "card-title" }, deltadex.words.breakable(found.model), deltadex.words.copier(found.model)),
        make("p", { class: "soft" }, what.filter(Boolean).join(" · "))),
      closer());
  }

  // Words by the weights; the data set by whoever states it.
  function trained(found) {
    const raw = found.dataset_raw !== found.dataset && found.dataset_raw;
    const said = found.dataset && found.label_source && `stated by ${STATED[found.label_source] ?? found.label_source}${raw ? `: ${raw}` : ""}`;
    const words = found.words?.length ? make("p", { class: "words" }, make("span", { class: "soft" }, "By its weights: "), found.words.join(", "))
      : found.words && found.status === "indexed" ? make("p", { class: "soft small" }, "By its weights: no words; ", make("code", {}, "deltadex words"), " says why.") : null;
    return [words,
      make("p", { class: "tags" }, make("span", { class: "tag" }, legend.mark(found.dataset, found.kind !== "full"), found.dataset ?? "unlabelled"),
        said ? make("span", { class: "soft small" }, said) : null,
        found.status && found.status !== "indexed" ? make("span", { class: "tag bad" }, found.status) : null)];
  }

  function top(found) {
    byId("card-top").replaceChildren(...[headline(found), ...trained(found),
      found.reason ? make("p", { class: "reason" }, make("code", {}, found.code ?? ""), " ", found.reason) : null, link(found)].filter(Boolean));
  }

  const folded = (found) => make("details", {}, make("summary", {}, make("h3", {}, "Facts")),
    make("dl", { class: "facts" }, facts(found).map(([name, value]) =>
      make("div", {}, make("dt", {}, name), make("dd", {}, String(value))))),
    found.notes?.length ? make("ul", { class: "notes" }, found.notes.map((note) => make("li", {}, note))) : null);

  // A model that there is not: where to look instead.
  function missing(words) {
    byId("card-top").replaceChildren(make("div", { class: "card-head" }, make("h2", { tabindex: "-1", id: "card-title" }, `No model ${state.current.model}`),
      closer()),
    make("p", { class: "soft" }, words),
    make("p", {}, `This family has ${format.count(deltadex.family()?.models ?? map.family.count, "model")}. `,
      button({ class: "inline", onclick: () => state.change({ view: "models", model: "", ...state.cleared() }) }, "List them")));
    byId("origin").replaceChildren();
  }

  const unknown = (error) => {
    if (error.code !== "unknown-model") throw error;
    return { told: error.message.replace(/; GET .*$/, ".").replace(/^no model '[^']*'[;.]? ?/, "") };
  };

  // What is not in the index has no neighbours; another family may have it.
  function near(asked) {
    if (!details?.status || details.status === "indexed") { deltadex.neighbours.update(asked, details?.dataset ?? null); return; }
    const own = deltadex.families().find(({ base }) => base !== deltadex.base && base === details.base_raw);
    byId("neighbours").replaceChildren(make("p", { class: "soft" }, "It is not in the index of this family: it has no neighbours and no place on the map. "),
      own ? make("a", { href: `?base=${encodeURIComponent(own.base)}&model=${encodeURIComponent(details.model)}` }, `Look for it in ${deltadex.nameOf(own.base)}`)
        : button({ class: "inline", onclick: () => state.change({ view: "failures", model: "" }) }, "Why models are left out"));
  }

  function show(found) {
    if (found.told !== undefined) { missing(found.told); return; }
    details = found;
    top(found);
    byId("facts").replaceChildren(folded(found));
    byId("changes").replaceChildren(...deltadex.heatmap.section(found.slots));
    near(state.current);
    deltadex.data.update(state.current);
    say(`Card of ${found.model}, ${found.dataset ?? "unlabelled"}`);
    if (byKeyboard) byId("card-title").focus({ preventScroll: true });
    byKeyboard = false;
  }

  function update(asked, previous) {
    const closed = card.hidden, opened = closed && asked.model !== "";
    if (opened && (previous || !asked.at)) {
      map.lend();
      linked = previous ? "" : asked.model;
    }
    const guest = deltadex.visitor.isOpen();
    card.hidden = !(asked.model || guest) || !["map", "models"].includes(asked.view);
    if (!card.hidden && (closed || (previous && asked.model !== previous.model))) deltadex.filters.close();
    deltadex.selection.update(asked);
    map.chosen = card.hidden ? -1 : map.family.place.get(asked.model) ?? -1;
    place();
    if (card.hidden) { map.giveBack(); map.links = []; map.dirty(); deltadex.explain.update({}); return; }
    if (guest) { clear(); deltadex.explain.update({}); deltadex.visitor.show(); return; }
    const fresh = opened || !previous || asked.model !== previous.model || asked.base !== previous.base;
    if (fresh || state.differs(asked, previous, "recipe", "k", ...state.FILTERS)) refresh(asked, fresh);
    else if (asked.measure !== previous.measure) byId("changes").replaceChildren(...deltadex.heatmap.section(details?.slots));
    if (fresh || state.differs(asked, previous, "other", "recipe")) {
      deltadex.explain.update(asked);
      for (const row of card.querySelectorAll("tr.on, [aria-pressed=true].round")) row.classList.remove("on");
      if (!fresh) near(asked);
    }
    if (previous && asked.view !== previous.view && !map.view.byHand) map.show();
    map.dirty();
  }

  function clear() {
    card.scrollTop = 0;
    details = null;
    for (const id of ["card-top", "facts", "changes", "neighbours", "nearest-data", "origin"]) { deltadex.cancel(byId(id)); byId(id).replaceChildren(); }
    map.links = [];
  }

  function refresh(asked, fresh) {
    if (!fresh) {
      near(asked);
      deltadex.data.update(asked);
      return;
    }
    clear();
    deltadex.origin.update(asked);
    load(byId("card-top"), (how) => deltadex.source.model(asked.model, deltadex.scope(), how).catch(unknown), show);
    map.reveal(map.chosen, false);
  }

  // The map came after the card, or the models moved on it.
  function placed(asked) {
    if (card.hidden) return;
    map.chosen = map.family.place.get(asked.model) ?? -1;
    if (deltadex.visitor.isOpen()) { deltadex.visitor.show(); return; }
    deltadex.neighbours.redraw();
    deltadex.data.update(asked);
    if (!map.view.byHand) {
      if (linked === asked.model) map.reveal(map.chosen, true);
      map.show();
    }
    map.dirty();
  }

  // The map's middle is the middle of what panels leave of it: one at its right, and the legend. Offsets, since the card slides in.
  function place() {
    const beside = [card, byId("selection"), byId("filters")], { clientWidth: width, clientHeight: height } = byId("main");
    document.body.classList.toggle("with-card", beside.some((panel) => !panel.hidden));
    const inset = { left: 0, right: 0, top: 0, bottom: 0 };
    for (const { offsetLeft, offsetTop, offsetWidth, offsetHeight } of [byId("legend"), ...beside].filter((panel) => panel.offsetWidth)) {
      if (offsetWidth > BROAD * width) Object.assign(inset, offsetTop > STRIP_PX ? { bottom: height - offsetTop } : { top: offsetTop + offsetHeight });
      else Object.assign(inset, offsetLeft > width / 3 ? { right: width - offsetLeft } : { left: offsetLeft + offsetWidth });
    }
    map.inset({ ...inset, right: ZOOM_PX + inset.right });
  }

  function start() {
    addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !card.hidden && !event.defaultPrevented) close();
    });
    addEventListener("resize", place);
  }

  deltadex.card = { start, open, close, closer, update, placed, place };
}
