"use strict";
{
  const { byId, make, button, format, load, empty, state } = deltadex;
  const OPEN = 8;

  const group = (found) => make("details", { class: "failure", open: found.models.length <= OPEN },
    make("summary", {}, make("code", {}, found.code), make("span", { class: "meaning" }, found.meaning ?? ""),
      make("span", { class: "tag" }, found.status), make("span", { class: "number" }, format.whole(found.models.length))),
    make("ul", {}, found.models.map((model) => make("li", {}, make("b", {}, deltadex.words.breakable(model.model)), make("span", { class: "soft" }, model.reason ?? "")))));

  let shown = [];

  function show(box, { failures }) {
    shown = failures;
    const total = failures.reduce((sum, found) => sum + found.models.length, 0);
    if (!total) {
      box.replaceChildren(empty("Nothing failed", "Every model that was found is in the index."));
      return;
    }
    box.replaceChildren(make("p", { class: "soft" }, `${format.count(total, "model")} not in the index, for ${format.count(failures.length, "reason")}. `,
      button({ class: "inline", onclick: () => state.change({ view: "models", status: "failed" }) }, "List the failed ones")),
    ...[...failures].sort((a, b) => b.models.length - a.models.length).map(group));
  }

  deltadex.failures = {
    csv: () => ({ columns: ["model", "status", "code", "reason"],
      rows: shown.flatMap(({ code, status, models }) => models.map((found) => [found.model, status, code, found.reason])) }),
    update: () => load(byId("failures-body"), (how) => deltadex.source.failures(deltadex.scope(), how), (found) => show(byId("failures-body"), found), "Reading what failed…"),
  };
}
