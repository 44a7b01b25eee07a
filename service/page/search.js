"use strict";
{
  const { byId, make, state, say, format } = deltadex;
  const PAUSE_MS = 120;
  const SHOWN = 10;
  const input = byId("search"), list = byId("found");
  const HAS_WORDS = /\p{L}/u;
  const NOTHING = "matches nothing", NO_NAME = "No model of that name";
  let found = [], byWords = false, active = -1, timer = 0, control = new AbortController(), pending = null;

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
    const facts = [model.words && `by ${model.words.join(", ")}`, model.dataset ?? "unlabelled",
      model.author && `by ${model.author}`, deltadex.words.kind(model.kind), model.verdict === "perhaps" && model.verdict];
    return make("li", { role: "option", id: `found-${n}`, "aria-selected": String(n === active),
      onpointerdown: (event) => event.preventDefault(), onclick: () => choose(n) },
    deltadex.legend.mark(model.dataset, (model.kind ?? "full") !== "full"),
    make("span", { class: "name" }, model.model),
    make("span", { class: "soft" }, facts.filter(Boolean).join(" · ")));
  }

  const line = (text) => make("li", { class: "soft", role: "option", "aria-disabled": "true", "aria-selected": "false" }, text);

  function show(models, told, below = []) {
    [found, active] = [models, -1];
    list.replaceChildren(...models.map(option), ...below.map(line));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    say(told);
  }

  // Models whose training data is about the text, as the service ranks them; a text that matches nothing says so.
  function showWords({ neighbours, asked, families }) {
    const about = neighbours.filter(({ verdict }) => verdict !== NOTHING);
    const why = !families.length ? "and this family cannot be asked by words"
      : asked.length ? `and none stands out for ${asked.join(", ")}` : "and no word of it is known here";
    const told = about.length ? `${format.count(about.length, "model")} found by words, none by name` : `${NO_NAME}, ${why}`;
    show(about, told, [told]);
  }

  async function ask() {
    control.abort();
    control = new AbortController();
    const { signal } = control, q = input.value.trim();
    if (!q) { found = []; close(); return; }
    try {
      const page = await deltadex.source.models({ ...deltadex.scope(), q, limit: SHOWN }, { signal });
      byWords = !page.total && deltadex.source.search !== undefined && HAS_WORDS.test(q);
      const answer = byWords && await deltadex.source.search({ ...deltadex.scope(), text: q, k: SHOWN }, { signal });
      if (signal.aborted) return;
      if (byWords) showWords(answer);
      else show(page.models, page.total ? `${format.count(page.total, "model")} found` : NO_NAME, page.total ? [] : [NO_NAME]);
    } catch (error) {
      if (error.name !== "AbortError") show([], error.message, [error.message]);
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

  // A name is taken at once; of models that were found by words, one is chosen first.
  async function enter() {
    await pending;
    if (byWords && active < 0) move(1);
    else choose(Math.max(0, active));
  }

  function start() {
    if (deltadex.source.search) input.placeholder = "Name or topic";
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
