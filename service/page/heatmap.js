"use strict";
{
  const { make, button, state, colours, map, format } = deltadex;
  const ROLES = ["q", "k", "v", "qkv", "o", "up", "gate", "down", "cross_q", "cross_k", "cross_v", "cross_o"];
  const STACKS = ["encoder", "decoder", "text", "vision"];

  function parts(slot) {
    const [stack, layer, ...role] = slot.split(".");
    return { stack, layer: Number(layer), role: role.join(".") };
  }

  // Relative norms where the base was read; plain norms for adapters without one.
  function measured(slots, measure) {
    if (measure === "rank") {
      return { of: (slot) => slot.stable_rank, text: (value) => value.toFixed(1),
        words: "Stable rank of the update: |ΔW|²F / |ΔW|²2. Low: few directions." };
    }
    if (slots.some((slot) => slot.relative_norm !== null)) {
      return { of: (slot) => slot.relative_norm, text: (value) => (100 * value).toPrecision(2),
        words: "How far each matrix moved: |ΔW| / |W|, in %." };
    }
    return { of: (slot) => slot.fro_norm, text: (value) => value.toPrecision(2),
      words: "Size of each update: |ΔW|, Frobenius. The base’s own weights were not read." };
  }

  // Names that are not in the list come behind it, by name.
  const place = (name, list) => (list.includes(name) ? list.indexOf(name) : list.length);
  const compare = (a, b, list) => place(a, list) - place(b, list) || a.localeCompare(b);

  function grid(slots, how) {
    const cells = new Map(), rows = new Map(), roles = new Set();
    for (const slot of slots) {
      const { stack, layer, role } = parts(slot.slot);
      roles.add(role);
      rows.set(`${stack}.${layer}`, { stack, layer });
      cells.set(`${stack}.${layer}.${role}`, how.of(slot));
    }
    const lines = [...rows.values()].sort((a, b) =>
      compare(a.stack, b.stack, STACKS) || a.layer - b.layer);
    return { cells, lines, roles: [...roles].sort((a, b) => compare(a, b, ROLES)) };
  }

  function cell(value, how, [low, high]) {
    if (value === null || value === undefined) return make("td", { class: "nothing" }, "·");
    const share = high > low ? (value - low) / (high - low) : 1;
    return make("td", { css: colours.shade(map.colours, share) }, how.text(value));
  }

  function table(slots, measure) {
    const how = measured(slots, measure), { cells, lines, roles } = grid(slots, how);
    const values = [...cells.values()].filter((value) => value !== null && value !== undefined);
    const limits = [Math.min(0, ...values), Math.max(0, ...values)];
    const several = new Set(lines.map((line) => line.stack)).size > 1;
    const name = (line) => (several ? `${line.stack} ${line.layer}` : String(line.layer));
    return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "What it changed, layer by role" },
      make("table", { class: "heat" },
        make("caption", {}, how.words),
        make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "layer"),
          roles.map((role) => make("th", { scope: "col" }, role.replace("cross_", "×"))))),
        make("tbody", {}, lines.map((line) => make("tr", {}, make("th", { scope: "row" }, name(line)),
          roles.map((role) => cell(cells.get(`${line.stack}.${line.layer}.${role}`), how, limits)))))));
  }

  function section(slots) {
    if (!slots?.length) return [];
    const { measure } = state.current;
    const choice = (value, text) => button({ "aria-pressed": String(measure === value),
      onclick: () => state.change({ measure: value }, "replace") }, text);
    return [make("div", { class: "section-head" }, make("h3", {}, "What it changed"),
      make("div", { class: "switch", role: "group", "aria-label": "Measure" },
        choice("norm", "Size"), choice("rank", "Stable rank"))),
    table(slots, measure),
    make("p", { class: "soft small" }, `${format.count(slots.length, "matrix", "matrices")} changed.`)];
  }

  deltadex.heatmap = { section, parts };
}
