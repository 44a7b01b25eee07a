"use strict";
{
  const { byId, make, button, icon, state, format, bars, load } = deltadex;
  const SLOTS_SHOWN = 8;

  const named = (total) => total.name ?? total.role ?? total.layer ?? total.block;
  const share = (total) => (total.share === null ? format.signed(total.contribution, 4) : format.percent(total.share));

  const totals = (caption, list, name = named) => bars.table(caption,
    list.map((total) => ({ name: name(total), value: total.contribution, text: share(total) })));

  const layerName = (several) => (total) => (several ? named(total).replace(".", " ") : named(total).split(".").pop());

  function slots(list) {
    const ranked = [...list].sort((a, b) => Math.abs(b.contribution) - Math.abs(a.contribution));
    const table = (shown) => totals(`Matrices that carry it, ${shown.length} of ${list.length}`, shown, (slot) => slot.slot);
    const box = make("div", {}, table(ranked.slice(0, SLOTS_SHOWN)));
    if (ranked.length > SLOTS_SHOWN) {
      const all = button({ class: "quiet", onclick: () => box.replaceChildren(table(ranked)) },
        `Show all ${format.count(ranked.length, "matrix", "matrices")}`);
      box.append(all);
    }
    return box;
  }

  const alone = (id, list) => list.length && make("details", { class: "alone" },
    make("summary", {}, `${format.count(list.length, "matrix", "matrices")} only `, make("b", {}, id), " changed"),
    make("p", { class: "soft small" }, list.join(", ")));

  function show(box, found) {
    const several = new Set(found.by_layer.map((total) => named(total).split(".")[0])).size > 1;
    box.replaceChildren(...[
      make("div", { class: "section-head" }, make("h3", { tabindex: "-1" }, "Why they are alike"),
        button({ class: "round", "aria-label": "Close the explanation", onclick: () => state.change({ other: "" }) }, icon("close"))),
      make("p", {}, make("b", {}, found.query), " and ", make("b", {}, found.model), " have a cosine of ",
        make("b", { class: "number" }, format.signed(found.similarity)),
        found.slots.length ? `, carried by ${format.count(found.slots.length, "matrix", "matrices")} that both changed.`
          : ". They changed no matrix in common."),
      ...(found.slots.length ? [totals("By role", found.by_role), totals("By layer", found.by_layer, layerName(several)),
        found.by_block.length > 1 ? totals("By side", found.by_block) : null, slots(found.slots)] : []),
      alone(found.query, found.only_query), alone(found.model, found.only_model),
    ].filter(Boolean));
  }

  function update(asked) {
    const box = byId("explain");
    box.hidden = !(asked.model && asked.other && deltadex.source.can.explain);
    if (box.hidden) { deltadex.cancel(box); box.replaceChildren(); return; }
    load(box, (how) => deltadex.source.explain({ ...deltadex.withRecipe(), model: asked.model, other: asked.other }, how),
      (found) => {
        show(box, found);
        box.scrollIntoView({ block: "start", behavior: "auto" });
      }, "Taking the cosine apart…");
  }

  deltadex.explain = { update };
}
