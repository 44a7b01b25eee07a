"use strict";
{
  const { byId, make, state, map, legend, filters, card, load, cancel, empty, say, theme } = deltadex;
  const VIEWS = ["map", "models", "clusters", "lineage", "evaluation", "failures"];
  const THEMES = { auto: "Theme: as the system", light: "Theme: light", dark: "Theme: dark" };
  const LAYOUTS = { pca: "PCA", tsne: "t-SNE", umap: "UMAP", auto: "t-SNE" };
  const ROOMS = {
    models: ["base", "sort", "order", "page", "model", ...state.FILTERS],
    clusters: ["base", "recipe", "colour"], evaluation: ["base", "recipe", "exclude"], failures: ["base"],
    lineage: ["base"],
  };
  const OPENING_MS = 2000;
  let families = [], clustersOf = null;

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
    const first = asked.model || (asked.view === "map" ? "" : asked.view[0].toUpperCase() + asked.view.slice(1));
    document.title = [first, deltadex.source.title ?? deltadex.base, "deltadex"].filter(Boolean).join(" · ");
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
    if (!family.count || family.clusters || clustersOf === family || !deltadex.source.can.cluster) return;
    clustersOf = family;
    const note = byId("colour-note");
    note.textContent = "Clustering…";
    const waiting = (found) => note.replaceChildren("Clustering… ", deltadex.stage(found), " ", deltadex.stopper(found) ?? "");
    deltadex.source.clusters(deltadex.withRecipe(), { waiting })
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

  function apply(asked, previous) {
    const differs = (...names) => !previous || state.differs(asked, previous, ...names);
    seen(asked);
    if (asked.colour === "cluster" || asked.cluster) wantClusters();
    if (differs("view") && asked.view === "map") map.resize();
    if (differs("colour")) legend.update(asked);
    else if (differs("off", "only")) legend.refresh(asked);
    if (differs("colour", "off", "only")) map.restyle();
    if (differs(...state.FILTERS)) filters.update(asked);
    card.update(asked, previous);
    if (differs("counts")) deltadex.selection.update(asked);
    if (differs("at")) map.look(asked.at);
    enter(asked, previous);
  }

  // Which family is seen

  function caption(found) {
    const share = found.explained && found.explained[0] + found.explained[1];
    const words = found.models.length === 1 ? "One model: nothing to compare it with."
      : found.layout === "pca" ? `Two axes with ${Math.round(100 * (share ?? 0))} % of the variance.`
      : "Near means alike; far apart means little.";
    byId("layout-note").textContent = deltadex.source.subtitle ?? words;
    if (found.computing) ahead(found.computing);
  }

  const ahead = (found) => byId("layout-note").replaceChildren(
    `Two axes, until ${LAYOUTS[found.layout] ?? "the layout"} is there. `, deltadex.stage(found), " ", deltadex.stopper(found) ?? "");

  // The axes are drawn already: the models move to the layout's places once it is there.
  function moveOn(params, { layout }) {
    const axes = map.family, waiting = (found) => { if (map.family === axes) ahead({ ...found, layout }); };
    deltadex.source.map({ ...params, axes: "false" }, { waiting })
      .then((placed) => { if (map.family === axes) arrive(placed); })
      .catch((error) => { if (map.family === axes) byId("layout-note").textContent = `Two axes. ${error.message}`; });
  }

  function offer(asked) {
    const family = families.find((one) => one.base === deltadex.base) ?? families[0];
    const layouts = ["pca", "tsne", ...(deltadex.umap ? ["umap"] : [])];
    deltadex.options(byId("layout"), [["auto", `Auto · ${LAYOUTS[map.family.document.layout] ?? map.family.document.layout}`],
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
    const asked = state.current;
    deltadex.base ||= found.base;
    map.setFamily(new deltadex.Family(found));
    map.shown = map.family.passing(asked);
    byId("family").textContent = deltadex.source.title ?? nameOf(found.base);
    byId("stage").setAttribute("aria-label",
      `Map of ${deltadex.format.count(found.models.length, "model")}. Arrow keys move between models, Enter opens one, plus and minus zoom.`);
    document.body.classList.add("ready");
    caption(found);
    offer(asked);
    filters.offer();
    legend.update(asked);
    map.restyle();
    if (asked.colour === "cluster" || asked.cluster) wantClusters();
    filters.update(asked);
    card.placed(asked);
    enter(asked, null);
  }

  function vacant() {
    byId("map-notice").hidden = false;
    byId("map-notice").replaceChildren(empty("No model yet", "This catalog has no indexed model. Fill it with: deltadex index BASE FOLDER"));
  }

  // Every view begins at once, with what it needs itself; places and colours come with the map.
  function settle(asked) {
    document.body.classList.remove("ready");
    deltadex.visitor.stays(deltadex.base);
    map.setFamily(deltadex.Family.none());
    byId("map-notice").hidden = false;
    apply(asked, null);
    const params = { ...deltadex.withRecipe(), layout: asked.layout };
    const show = (found) => { arrive(found); if (found.computing) moveOn(params, found.computing); };
    return load(byId("map-notice"), (how) => deltadex.source.map(params, how), show, "Drawing the map…");
  }

  // A base in a folder is called what its config says; of a name, its last part, where that is one base.
  const wholeName = (base) => families.find((one) => one.base === base)?.name ?? base;
  const lastPart = (name) => name.split("/").at(-1);
  function nameOf(base) {
    const part = lastPart(wholeName(base));
    return families.filter((one) => lastPart(wholeName(one.base)) === part).length > 1 ? wholeName(base) : part;
  }
  deltadex.families = () => families;
  deltadex.family = () => families.find((one) => one.base === deltadex.base);

  // How far the service is with its first opening of the indexes, and what answers already.
  function opening({ opening: now }) {
    byId("opening").hidden = !now;
    if (!now) return;
    const names = now.searchable.map(nameOf).join(", ");
    byId("opening").textContent = `Opening the indexes: ${now.percent} % done. ${names ? `Searches answer for ${names}.` : "Searches wait for them; maps and lists do not."}`;
    setTimeout(() => deltadex.source.families().then(opening, () => null), OPENING_MS);
  }

  function gotFamilies(found) {
    ({ families } = found);
    opening(found);
    deltadex.umap = found.umap;
    deltadex.takes = found.takes;
    const several = families.length > 1;
    byId("families").hidden = !several;
    byId("family").classList.toggle("unseen", several);
    const first = families.find((one) => one.indexed) ?? families[0];
    const base = families.some((one) => one.base === state.current.base) ? state.current.base : first?.base ?? "";
    deltadex.options(byId("base"), families.map((one) => [one.base, `${nameOf(one.base)} · ${one.indexed}`]), base);
    byId("lost").hidden = families.length > 0 && (!state.current.base || state.current.base === base);
    byId("map-notice").hidden = true;
    if (!families.length) lost("No model yet", "This catalog has no family. Fill it with: deltadex index BASE FOLDER");
    else if (!byId("lost").hidden) lost(`No family ${state.current.base}`, "This catalog has:", families.map(({ base: name, indexed }) =>
      make("p", {}, make("a", { href: `?base=${encodeURIComponent(name)}` }, `${nameOf(name)} · ${deltadex.format.count(indexed, "model")}`))));
    else if (several && !state.current.base) { deltadex.base = base; state.change({ base }, "replace"); }
    else { deltadex.base = base; byId("family").textContent = nameOf(base); settle(state.current); }
  }

  function lost(title, words, links = []) {
    cancel(byId("map-notice"));
    byId("lost").replaceChildren(empty(title, words, ...links));
    document.body.classList.add("at-loss");
  }

  function changed(asked, previous) {
    if (state.differs(asked, previous, "theme")) redress(asked);
    if (state.differs(asked, previous, "base", "recipe", "layout")) {
      deltadex.base = byId("base").value = asked.base || deltadex.base;
      if (asked.base !== previous.base && asked.model && asked.model === previous.model) {
        state.change({ ...state.cleared(), model: "", other: "", off: [], only: [], at: "", page: "1" }, "replace");
      }
      settle(state.current);
    } else apply(asked, previous);
  }

  async function copied(text, done, otherwise = "This browser does not let the page copy") {
    try {
      await navigator.clipboard.writeText(text);
      toast(done);
    } catch {
      toast(otherwise);
    }
  }

  function copyLink() {
    state.flush();
    copied(state.link(), "Link copied", "The link is in the address bar");
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
    Object.assign(deltadex, { wantClusters, gotClusters, copied, toast, nameOf, wholeName });
    dress(state.current);
    map.start();
    for (const room of [legend, filters, card, deltadex.search, deltadex.evaluation, deltadex.lasso, deltadex.selection,
      deltadex.visitor, deltadex.drop, deltadex.csv]) room.start();
    byId("views").onclick = follow;
    byId("theme").onclick = nextTheme;
    byId("copy").onclick = copyLink;
    byId("base").onchange = (event) => state.change({ base: event.target.value, recipe: "", ...state.cleared(),
      model: "", other: "", off: [], only: [], at: "", page: "1" });
    byId("layout").onchange = (event) => state.change({ layout: event.target.value, at: "", area: "" });
    for (const select of document.querySelectorAll(".recipe")) {
      select.onchange = (event) => state.change({ recipe: event.target.value, at: "", area: "" });
    }
    byId("legend-toggle").onclick = () => {
      const open = byId("legend").classList.toggle("open");
      byId("legend-toggle").setAttribute("aria-expanded", String(open));
      card.place();
    };
    theme.dark.addEventListener("change", () => redress(state.current));
    state.listen(changed);
    byId("map-notice").hidden = false;
    seen(state.current);
    const box = byId(`${state.current.view}-body`) ?? byId("map-notice");
    load(box, (how) => deltadex.source.families(how), gotFamilies, "Opening the catalog…");
  }

  start();
}
