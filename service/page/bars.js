"use strict";
{
  const { make } = deltadex;
  const at = (value) => `${(100 * value).toFixed(2)}%`;

  // A bar from zero, to the left where the value is below it.
  function bar(value, [low, high], colour) {
    const zero = -low / (high - low), end = (value - low) / (high - low);
    return make("span", { class: "bar", "aria-hidden": "true" },
      make("span", { class: "fill", css: { left: at(Math.min(zero, end)), width: at(Math.abs(end - zero)),
        ...(colour ? { "background-color": colour } : {}) } }),
      low < 0 ? make("span", { class: "zero", css: { left: at(zero) } }) : null);
  }

  function range(values) {
    const low = Math.min(0, ...values), high = Math.max(0, ...values);
    return low === high ? [0, 1] : [low, high];
  }

  // Names, bars and numbers, one a line.
  function table(caption, rows, limits = range(rows.map((row) => row.value))) {
    return make("table", { class: "bars" }, make("caption", {}, caption), make("tbody", {},
      rows.map((row) => make("tr", {}, make("th", { scope: "row" }, row.name),
        make("td", { class: "track" }, bar(row.value, limits, row.colour)),
        make("td", { class: "number" }, row.text)))));
  }

  deltadex.bars = { bar, range, table };
}
