"use strict";
{
  const { make, draw, format, Z } = deltadex;
  const at = (value) => `${(100 * value).toFixed(2)}%`;

  // A bar from zero, to the left where the value is below it.
  function bar(value, [low, high], colour) {
    const zero = -low / (high - low), end = (value - low) / (high - low);
    return make("span", { class: "bar", "aria-hidden": "true" },
      make("span", { class: "fill", css: { left: at(Math.min(zero, end)), width: at(Math.abs(end - zero)),
        ...(colour ? { "background-color": colour } : {}) } }),
      low < 0 ? make("span", { class: "zero", css: { left: at(zero) } }) : null);
  }

  // A score as a dot with its 95 % interval.
  function whisker(score, error, [low, high], colour) {
    const place = (value) => 2 + (96 * (value - low)) / (high - low || 1);
    const kids = [draw("line", { class: "base", x1: 0, x2: 100, y1: 8, y2: 8 })];
    if (low < 0 && high > 0) kids.push(draw("line", { class: "zero", x1: place(0), x2: place(0), y1: 1, y2: 15 }));
    if (error !== null) {
      const [a, b] = [place(score - Z * error), place(score + Z * error)];
      kids.push(draw("path", { class: "range", d: `M${a} 2V14M${a} 8H${b}M${b} 2V14` }));
    }
    return draw("svg", { class: "whisker", viewBox: "0 0 100 16", preserveAspectRatio: "none", "aria-hidden": "true" },
      ...kids, draw("line", { class: "dot", x1: place(score), x2: place(score), y1: 8, y2: 8, stroke: colour }));
  }

  function range(values) {
    const low = Math.min(0, ...values), high = Math.max(0, ...values);
    return low === high ? [0, 1] : [low, high];
  }

  const score = (value, error) =>
    `${format.signed(value)}${error === null ? "" : ` ± ${(Z * error).toFixed(3)}`}`;

  // Names, bars and numbers, one a line.
  function table(caption, rows, limits = range(rows.map((row) => row.value))) {
    return make("table", { class: "bars" }, make("caption", {}, caption), make("tbody", {},
      rows.map((row) => make("tr", {}, make("th", { scope: "row" }, row.name),
        make("td", { class: "track" }, bar(row.value, limits, row.colour)),
        make("td", { class: "number" }, row.text)))));
  }

  deltadex.bars = { bar, whisker, range, score, table };
}
