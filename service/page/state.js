"use strict";
{
  // What the address says. Empty values are left out of it.
  const DEFAULTS = {
    view: "map", base: "", recipe: "", layout: "auto", colour: "dataset",
    model: "", other: "", k: "10", measure: "norm",
    dataset: "", author: "", kind: "", status: "", downloads: "", where: "", cluster: "", month: "", area: "", counts: "",
    off: [], only: [], exclude: "", sort: "model", order: "asc", page: "1", at: "", theme: "",
  };
  const ALLOWED = {
    view: ["map", "models", "clusters", "lineage", "evaluation", "failures"],
    colour: ["dataset", "cluster", "author", "kind"],
    layout: ["auto", "pca", "tsne", "umap"],
    measure: ["norm", "rank"], exclude: ["", "author", "run"], order: ["asc", "desc"],
    kind: ["", "full", "adapter"], status: ["", "indexed", "failed", "skipped", "no-update"],
    sort: ["model", "downloads", "dataset", "author", "indexed_at"], theme: ["", "auto", "light", "dark"], counts: ["", "on"],
  };
  const FILTERS = ["dataset", "author", "kind", "status", "downloads", "where", "cluster", "month", "area"];
  const PATTERNS = { downloads: /^\d{0,12}$/, page: /^[1-9]\d{0,6}$/, k: /^(5|10|20|50|100)$/,
    month: /^(\d{4}(-\d\d)?)?$/, area: /^([a-z]{1,9}(:-?\d{1,5},-?\d{1,5}){3,81})?$/ };
  const WAIT_MS = 200;

  const valid = (name, value) =>
    ALLOWED[name]?.includes(value) ?? PATTERNS[name]?.test(value) ?? value.length <= 2000;

  function parse(text) {
    const given = new URLSearchParams(text);
    const state = structuredClone(DEFAULTS);
    for (const name of Object.keys(DEFAULTS)) {
      const values = given.getAll(name).filter((value) => valid(name, value));
      if (values.length) state[name] = Array.isArray(DEFAULTS[name]) ? values : values[0];
    }
    return state;
  }

  function format(state) {
    const out = new URLSearchParams();
    for (const [name, usual] of Object.entries(DEFAULTS)) {
      if (Array.isArray(usual)) state[name].forEach((value) => out.append(name, value));
      else if (state[name] !== usual) out.set(name, state[name]);
    }
    return out.toString();
  }

  // A file keeps its state behind the #, where every browser lets it.
  const inFile = document.getElementById("data") !== null || location.protocol === "file:";
  const address = (state) => {
    const text = format(state);
    if (inFile) return `#${text}`;
    return location.pathname + (text && `?${text}`);
  };
  const read = () => parse(inFile ? location.hash.slice(1) : location.search);

  let current = read();
  const listeners = [];
  let timer = 0;

  function tell(previous) {
    for (const listener of listeners) listener(current, previous);
  }

  function flush() {
    clearTimeout(timer);
    timer = 0;
    history.replaceState(null, "", address(current));
  }

  // "push": a step that Back undoes. "replace": the same step, told to everyone.
  function change(changes, how = "push") {
    const previous = current;
    current = { ...current, ...changes };
    if (format(previous) === format(current)) return;
    if (timer) clearTimeout(timer), (timer = 0);
    if (how === "push") history.pushState(null, "", address(current));
    else history.replaceState(null, "", address(current));
    tell(previous);
  }

  // Where the camera is changes many times a second, and nobody else needs to know.
  function quietly(changes) {
    current = { ...current, ...changes };
    if (!timer) timer = setTimeout(flush, WAIT_MS);
  }

  addEventListener("popstate", () => {
    clearTimeout(timer);
    timer = 0;
    const previous = current;
    current = read();
    tell(previous);
  });

  deltadex.state = {
    FILTERS, DEFAULTS, change, quietly, flush,
    get current() { return current; },
    listen: (listener) => listeners.push(listener),
    link: () => new URL(address(current), location.href).href,
    filtered: () => FILTERS.some((name) => current[name] !== ""),
    cleared: () => Object.fromEntries(FILTERS.map((name) => [name, ""])),
    differs: (a, b, ...names) => names.some((name) => String(a[name]) !== String(b[name])),
  };
}
