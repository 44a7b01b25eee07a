"use strict";
{
  const { byId, make, button, format, load, empty, legend, map } = deltadex;
  const OPEN = 60; // models up to which everything is unfolded
  const SHOWN = 30; // models below one before the rest waits for a press
  const CLAIMS = 50;
  const KINDS = { duplicate: "copy", quantised: "rounded copy", merge: "merge" };

  // A model stands below its first parent; other parents of a merge are named beside it.
  function treeOf({ base, edges }) {
    const below = new Map(), others = new Map(), seen = new Set();
    for (const edge of edges) {
      const [list, key] = seen.has(edge.child) ? [others, edge.child] : [below, edge.parent];
      seen.add(edge.child);
      if (!list.has(key)) list.set(key, []);
      list.get(key).push(edge);
    }
    const order = [base], sizes = new Map();
    for (const name of order) for (const edge of below.get(name) ?? []) order.push(edge.child);
    for (const name of order.reverse()) {
      sizes.set(name, (below.get(name) ?? []).reduce((sum, edge) => sum + sizes.get(edge.child), 1));
    }
    for (const list of below.values()) {
      list.sort((a, b) => sizes.get(b.child) - sizes.get(a.child) || (a.child < b.child ? -1 : 1));
    }
    return { base, below, others, sizes };
  }

  function line(edge, tree) {
    const words = [KINDS[edge.kind]];
    if (edge.weight !== null && edge.weight !== undefined) {
      words.push(`weight ${edge.weight.toFixed(2)}`);
      for (const other of tree.others.get(edge.child) ?? []) words.push(`with ${other.parent} ${other.weight.toFixed(2)}`);
    }
    if (edge.parent !== tree.base) words.push(`p ${edge.probability.toFixed(2)}`);
    const at = map.family.place.get(edge.child), dataset = at === undefined ? null : map.family.name("dataset", at);
    words.push(dataset, edge.words.join(", "));
    return [at === undefined ? null : legend.mark(dataset, map.family.hollow[at] === 1),
      button({ class: "link", onclick: () => deltadex.card.open(edge.child, { fly: true }) }, make("span", { class: "name" }, deltadex.words.breakable(edge.child))),
      make("span", { class: "soft small" }, words.filter(Boolean).join(" · "))];
  }

  function entry(edge, tree, open) {
    const own = tree.below.get(edge.child) ?? [];
    const item = make("li", {});
    let list = null;
    const fold = button({ class: "fold", "aria-expanded": "false", "aria-label": `Models below ${edge.child}: ${tree.sizes.get(edge.child) - 1}`, onclick: () => {
      if (!list) item.append(list = branch(own, tree, open));
      else list.hidden = !list.hidden;
      fold.setAttribute("aria-expanded", String(!list.hidden));
    } });
    item.append(make("div", { class: "leaf" }, own.length ? fold : make("span", { class: "dot" }), line(edge, tree)));
    if (own.length && open) fold.click();
    return item;
  }

  function branch(edges, tree, open) {
    const list = make("ul", { class: "lineage" });
    const more = (from) => {
      list.append(...edges.slice(from, from + SHOWN).map((edge) => entry(edge, tree, open)));
      const left = edges.length - from - SHOWN;
      if (left <= 0) return;
      const rest = make("li", {}, button({ class: "quiet", onclick: () => {
        rest.remove();
        more(from + SHOWN);
        list.children[from + SHOWN]?.querySelector("button")?.focus();
      } }, `${format.count(left, "more model")}`));
      list.append(rest);
    };
    more(0);
    return list;
  }

  function claims(found) {
    const told = found.claims.filter((claim) => claim.note);
    if (!told.length) return null;
    return make("section", { class: "block" }, make("h3", {}, "What cards say otherwise"),
      make("ul", { class: "notes" }, told.slice(0, CLAIMS).map((claim) => make("li", {}, make("b", {}, claim.model), `: ${claim.note}`))),
      told.length > CLAIMS ? make("p", { class: "soft small" }, `${format.whole(told.length - CLAIMS)} more.`) : null);
  }

  let shown = [];

  function show(box, found) {
    shown = found.edges ?? [];
    if (!found.models) {
      box.replaceChildren(empty("No lineage", "No model of this family has a linear sketch: index it again with the recipe sketch."));
      return;
    }
    const tree = treeOf(found), tops = tree.below.get(tree.base) ?? [], isOpen = found.models <= OPEN;
    const related = tops.filter(({ child }) => tree.sizes.get(child) > 1), alone = tops.filter((edge) => !related.includes(edge));
    box.replaceChildren(...[
      make("p", { class: "soft" }, `${format.count(found.models, "model")}, ${format.whole(found.without_parent)} without a known parent. p is the probability of an edge; below ${found.level} a model hangs at the base.`),
      make("div", { class: "lineage-root" }, make("b", {}, deltadex.nameOf(tree.base))),
      branch(related, tree, isOpen),
      alone.length ? make("details", { open: !related.length }, make("summary", {}, `${format.count(alone.length, "model")} without relatives`), branch(alone, tree, isOpen)) : null,
      claims(found),
      found.not_compared.length ? make("p", { class: "soft" }, `${format.count(found.not_compared.length, "model")} not compared: ${found.not_compared[0].reason}.`) : null,
    ].filter(Boolean));
  }

  function update() {
    const box = byId("lineage-body");
    load(box, (how) => deltadex.source.lineage(deltadex.base, how), (found) => show(box, found), "Comparing models…");
  }

  const EDGE = ["parent", "child", "kind", "probability", "weight"];

  deltadex.lineage = { update, csv: () => ({ columns: EDGE, rows: shown.map((edge) => EDGE.map((name) => edge[name])) }) };
}
