"use strict";
{
  const { byId, make, state, say, format } = deltadex;
  const PAUSE_MS = 120;
  const SHOWN = 10;
  const input = byId("search"), list = byId("found");
  let found = [], active = -1, timer = 0, control = new AbortController(), pending = null;

  function close() {
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function choose(n) {
    const model = found[n];
    if (!model) return;
    close();
    input.value = "";
    deltadex.card.open(model.model, { fly: true });
  }

  function option(model, n) {
    const facts = [model.dataset ?? "unlabelled", model.author && `by ${model.author}`, model.kind];
    return make("li", { role: "option", id: `found-${n}`, "aria-selected": String(n === active),
      onpointerdown: (event) => event.preventDefault(), onclick: () => choose(n) },
    deltadex.legend.swatch(deltadex.legend.datasetItem(model.dataset), model.kind !== "full"),
    make("span", { class: "name" }, model.model),
    make("span", { class: "soft" }, facts.filter(Boolean).join(" · ")));
  }

  function show(total) {
    list.replaceChildren(...(found.length ? found.map(option)
      : [make("li", { class: "soft", role: "option", "aria-disabled": "true", "aria-selected": "false" }, "No model of that name")]));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    say(total ? `${format.count(total, "model")} found` : "no model found");
  }

  async function ask() {
    control.abort();
    control = new AbortController();
    const q = input.value.trim();
    if (!q) { found = []; close(); return; }
    try {
      const { signal } = control;
      const page = await deltadex.source.models({ ...deltadex.scope(), q, limit: SHOWN }, { signal });
      if (signal.aborted) return;
      found = page.models;
      active = -1;
      show(page.total);
    } catch (error) {
      if (error.name === "AbortError") return;
      found = [];
      list.replaceChildren(make("li", { class: "soft", role: "option", "aria-selected": "false" }, error.message));
      list.hidden = false;
    }
  }

  function typed() {
    clearTimeout(timer);
    pending = new Promise((done) => { timer = setTimeout(() => done(ask()), PAUSE_MS); });
  }

  function move(by) {
    if (list.hidden || !found.length) return;
    active = (active + by + found.length + (active < 0 && by < 0 ? 1 : 0)) % found.length;
    [...list.children].forEach((node, n) => node.setAttribute("aria-selected", String(n === active)));
    list.children[active].scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", `found-${active}`);
  }

  async function enter() {
    await pending;
    choose(Math.max(0, active));
  }

  function start() {
    input.oninput = typed;
    input.onblur = close;
    input.onfocus = () => { if (input.value) typed(); };
    input.onkeydown = (event) => {
      const act = { ArrowDown: () => move(1), ArrowUp: () => move(-1), Enter: enter }[event.key];
      if (act) { event.preventDefault(); act(); }
      if (event.key === "Escape") {
        event.stopPropagation();
        if (list.hidden) input.blur();
        close();
      }
    };
    addEventListener("keydown", (event) => {
      const typing = event.target.matches?.("input, select, textarea");
      if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) { event.preventDefault(); input.focus(); }
    });
    state.listen(close);
  }

  deltadex.search = { start };
}
