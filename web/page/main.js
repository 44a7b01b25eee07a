"use strict";
{
  const { byId, make, state, map, legend, filters, card, load, empty, say, theme } = deltadex;
  const VIEWS = ["map", "models", "clusters", "lineage", "evaluation", "failures"];
  const THEMES = { auto: "Theme: as the system", light: "Theme: light", dark: "Theme: dark" };
  const LAYOUTS = { pca: "PCA", tsne: "t-SNE", umap: "UMAP" };
  const ROOMS = {
    models: ["base", "sort", "order", "page", "model", ...state.FILTERS],
    clusters: ["base", "recipe", "colour"], evaluation: ["base", "recipe", "exclude"], failures: ["base"],
    lineage: ["base"],
  };
  let families = [], clustersOf = null, settled = null;

  const themeOf = (asked) => asked.theme || theme.remembered() || "auto";

  function dress(asked) {
    const name = themeOf(asked);
    theme.apply(name);
    const button = byId("theme");
    button.setAttribute("aria-label", `${THEMES[name]}. Change`);
    button.title = THEMES[name];
    byId("theme-dark").toggleAttribute("hidden", name !== "dark");
    byId("theme-light").toggleAttribute("hidden", name !== "light");
    byId("theme-auto").toggleAttribute("hidden", name !== "auto");
  }

  // Colours are drawn, so a change of theme draws everything again.
  function redress(asked) {
    dress(asked);
    map.recolour();
    if (!map.family) return;
    legend.refresh(asked);
    card.update(asked, null);
    enter(asked, null);
  }

  function nextTheme() {
    const name = theme.THEMES[(theme.THEMES.indexOf(themeOf(state.current)) + 1) % theme.THEMES.length];
    theme.remember(name);
    state.change({ theme: name }, "replace");
    say(THEMES[name]);
  }

  // Which part is seen

  function title(asked) {
    const family = map.family?.document.base ?? "";
    const first = asked.model || (asked.view === "map" ? "" : asked.view[0].toUpperCase() + asked.view.slice(1));
    document.title = [first, deltadex.source.title ?? family, "deltadex"].filter(Boolean).join(" · ");
  }

  function seen(asked) {
    for (const name of VIEWS) byId(`view-${name}`).hidden = name !== asked.view;
    for (const link of document.querySelectorAll("#views a")) {
      link.toggleAttribute("aria-current", false);
      if (link.dataset.view === asked.view) link.setAttribute("aria-current", "page");
    }
    document.body.dataset.view = asked.view;
    byId("filter").hidden = !["map", "models"].includes(asked.view);
    if (byId("filter").hidden) filters.close();
    title(asked);
  }

  function enter(asked, previous) {
    const names = ROOMS[asked.view];
    if (names && (!previous || state.differs(asked, previous, "view", ...names))) deltadex[asked.view].update(asked);
  }

  // Clusters take the service a while: they are asked for when something shows them.
  function wantClusters() {
    const { family } = map;
    if (!family || family.clusters || clustersOf === family || !deltadex.source.can.cluster) return;
    clustersOf = family;
    const note = byId("colour-note");
    note.textContent = "Clustering…";
    deltadex.source.clusters(deltadex.withRecipe(), {})
      .then((found) => { if (map.family === family) gotClusters(found); note.textContent = ""; })
      .catch((error) => { clustersOf = null; note.textContent = error.message; });
  }

  function gotClusters(found) {
    if (map.family.clusters) return;
    map.family.setClusters(found);
    filters.offerClusters();
    if (state.current.colour === "cluster") legend.update(state.current);
    if (state.current.cluster) filters.update(state.current).then(() => card.update(state.current, null));
    map.restyle();
  }

  // `again`: another map of the same family; what does not show it stays as it is.
  function apply(asked, previous, again = false) {
    const differs = (...names) => !previous || state.differs(asked, previous, ...names);
    seen(asked);
    if (asked.colour === "cluster" || asked.cluster) wantClusters();
    if (differs("view") && asked.view === "map") map.resize();
    if (differs("colour")) legend.update(asked);
    else if (differs("off", "only")) legend.refresh(asked);
    if (differs("colour", "off", "only")) map.restyle();
    if (differs(...state.FILTERS)) filters.update(asked);
    if (again) card.replaced(asked);
    else card.update(asked, previous);
    if (differs("at") && !again) map.look(asked.at);
    if (!again || ["models", "clusters"].includes(asked.view)) enter(asked, previous);
  }

  // Which family is seen

  function caption(found) {
    const share = found.explained && found.explained[0] + found.explained[1];
    const words = found.layout === "pca"
      ? `Two axes with ${Math.round(100 * (share ?? 0))} % of the variance.`
      : "Near means alike; far apart means little.";
    byId("layout-note").textContent = deltadex.source.subtitle ?? words;
    if (found.computing) ahead(words, found.computing);
  }

  const ahead = (words, job) => {
    byId("layout-note").textContent = `${words} The layout is being computed: ${deltadex.progress(job)}.`;
  };

  // The axes are drawn already: the layout takes their place once it is there.
  function moveOn(params) {
    const axes = map.family, waiting = (job) => { if (map.family === axes) ahead("Two axes.", job); };
    deltadex.source.map({ ...params, axes: "false" }, { waiting })
      .then((placed) => { if (map.family === axes) arrive(placed); })
      .catch((error) => { if (map.family === axes) byId("layout-note").textContent = error.message; });
  }

  function offer(asked) {
    const family = families.find((one) => one.base === (asked.base || map.family.document.base)) ?? families[0];
    const layouts = ["pca", "tsne", ...(deltadex.umap ? ["umap"] : [])];
    const { layout } = map.family.document;
    deltadex.options(byId("layout"), [["auto", layout ? `Auto · ${LAYOUTS[layout] ?? layout}` : "Auto"],
      ...layouts.map((name) => [name, LAYOUTS[name]])], asked.layout);
    byId("layout-row").hidden = !deltadex.source.can.details;
    const recipes = family?.recipes ?? [];
    for (const select of document.querySelectorAll(".recipe")) {
      const used = recipes.find((one) => [one.id, one.name].includes(asked.recipe || map.family.document.recipe)) ?? recipes[0];
      deltadex.options(select, recipes.map((one) => [one.id, `${one.name} · ${one.models}`]), used?.id ?? "");
      select.closest(".pick").hidden = recipes.length < 2;
    }
    for (const [view, can] of [["clusters", "cluster"], ["evaluation", "evaluate"], ["lineage", "lineage"], ["failures", "details"]]) {
      document.querySelector(`#views [data-view=${view}]`).hidden = !deltadex.source.can[can];
    }
    byId("colour-cluster").hidden = byId("colour-cluster").disabled = !deltadex.source.can.cluster;
  }

  function arrive(found) {
    byId("map-notice").replaceChildren();
    byId("map-notice").hidden = true;
    if (!found.models.length) { vacant(); return; }
    const asked = state.current, again = map.family?.document.base === found.base;
    map.setFamily(new deltadex.Family(found));
    map.shown = map.family.passing(asked);
    byId("stage").setAttribute("aria-label",
      `Map of ${deltadex.format.count(found.models.length, "model")}. Arrow keys move between models, Enter opens one, plus and minus zoom.`);
    document.body.classList.add("ready");
    caption(found);
    offer(asked);
    filters.offer();
    apply(asked, null, again);
  }

  // All views but the map are there before it.
  function prepare(asked) {
    const family = families.find((one) => one.base === asked.base) ?? families[0];
    byId("family").textContent = deltadex.source.title ?? family.name ?? family.base;
    map.setFamily(deltadex.Family.awaited(family.base, asked.recipe));
    map.shown = map.family.passing(asked);
    offer(asked);
    filters.offer();
    apply(asked, null);
  }

  const notices = () => [byId("map-notice"), ...VIEWS.slice(1).map((name) => byId(`${name}-body`))];

  function vacant() {
    seen(state.current);
    byId("map-notice").hidden = false;
    for (const box of notices()) {
      box.replaceChildren(empty("No model yet", "This catalog has no indexed model. Fill it with: deltadex index BASE FOLDER"));
    }
  }

  // A family that the address names and the catalog does not have.
  function missing(base) {
    seen(state.current);
    byId("family").textContent = "";
    byId("map-notice").hidden = false;
    for (const box of notices()) {
      box.replaceChildren(empty("No such family", `The catalog has no models of ${base}. It has:`,
        ...families.map((one) => make("a", { href: `?base=${encodeURIComponent(one.base)}` },
          `${one.name ?? one.base}, ${deltadex.format.count(one.indexed, "model")}`))));
    }
  }

  function settle(asked) {
    const { document: shown } = map.family ?? {};
    if (shown && shown.base === asked.base && settled === asked.recipe) seen(asked);
    else prepare(asked);
    settled = asked.recipe;
    byId("map-notice").hidden = false;
    const params = { base: asked.base, recipe: asked.recipe, layout: asked.layout };
    const show = (found) => { arrive(found); if (found.computing) moveOn(params); };
    return load(byId("map-notice"), (how) => deltadex.source.map(params, how), show, "Drawing the map…");
  }

  function gotFamilies(found) {
    ({ families } = found);
    deltadex.umap = found.umap;
    const several = families.length > 1;
    byId("families").hidden = !several;
    byId("family").classList.toggle("unseen", several);
    const base = families.some((one) => one.base === state.current.base) ? state.current.base : families[0]?.base ?? "";
    deltadex.options(byId("base"), families.map((one) => [one.base, `${one.name ?? one.base} · ${one.indexed}`]), base);
    if (!families.length) { vacant(); return; }
    const asked = state.current.base;
    if (asked && !families.some((one) => asked === one.base || one.base.endsWith(`/${asked}`))) { missing(asked); return; }
    if (several && !state.current.base) state.change({ base }, "replace");
    else settle(state.current);
  }

  function changed(asked, previous) {
    if (state.differs(asked, previous, "theme")) redress(asked);
    if (state.differs(asked, previous, "base", "recipe", "layout")) {
      byId("base").value = asked.base;
      if (asked.base !== previous.base && asked.model && asked.model === previous.model) {
        state.change({ ...state.cleared(), model: "", other: "", off: [], only: [], at: "", page: "1" }, "replace");
      }
      settle(state.current);
    } else if (map.family) apply(asked, previous);
  }

  async function copyLink() {
    state.flush();
    try {
      await navigator.clipboard.writeText(state.link());
      toast("Link copied");
    } catch {
      toast("The link is in the address bar");
    }
  }

  function toast(words) {
    byId("toast").textContent = words;
    byId("toast").hidden = false;
    setTimeout(() => { byId("toast").hidden = true; }, 2000);
  }

  function follow(event) {
    const link = event.target.closest("a[data-view]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    state.change({ view: link.dataset.view });
  }

  function start() {
    const data = byId("data");
    deltadex.source = data ? deltadex.embedded(JSON.parse(data.textContent)) : deltadex.service();
    Object.assign(deltadex, { wantClusters, gotClusters });
    dress(state.current);
    map.start();
    for (const room of [legend, filters, card, deltadex.search, deltadex.evaluation]) room.start();
    byId("views").onclick = follow;
    byId("theme").onclick = nextTheme;
    byId("copy").onclick = copyLink;
    byId("base").onchange = (event) => state.change({ base: event.target.value, recipe: "", ...state.cleared(),
      model: "", other: "", off: [], only: [], at: "", page: "1" });
    byId("layout").onchange = (event) => state.change({ layout: event.target.value, at: "" });
    for (const select of document.querySelectorAll(".recipe")) {
      select.onchange = (event) => state.change({ recipe: event.target.value, at: "" });
    }
    byId("legend-toggle").onclick = () => {
      const open = byId("legend").classList.toggle("open");
      byId("legend-toggle").setAttribute("aria-expanded", String(open));
    };
    theme.dark.addEventListener("change", () => redress(state.current));
    state.listen(changed);
    byId("map-notice").hidden = false;
    load(byId("map-notice"), (how) => deltadex.source.families(how), gotFamilies, "Opening the catalog…");
  }

  start();
}
