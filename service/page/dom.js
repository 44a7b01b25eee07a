"use strict";
{
  const SVG = "http://www.w3.org/2000/svg";
  const ICONS = {
    close: "M4 4 12 12M12 4 4 12",
    explain: "M2.5 13.5V8M6.2 13.5V3M9.8 13.5V6M13.5 13.5V10",
    copy: "M5.5 5.5V2.5h8v8h-3M2.5 5.5h8v8h-8Z",
    left: "M10 3 5 8l5 5",
    right: "M6 3l5 5-5 5",
  };
  const byId = (id) => document.getElementById(id);

  // Text goes in as text only: names are strangers' words.
  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (value === undefined || value === null || value === false) continue;
      if (typeof value === "function") node[name] = value;
      else if (name === "css") {
        for (const [property, text] of Object.entries(value)) node.style.setProperty(property, text);
      } else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return node;
  }

  const make = (tag, attributes = {}, ...children) =>
    fill(document.createElement(tag), attributes, children);
  const draw = (tag, attributes = {}, ...children) =>
    fill(document.createElementNS(SVG, tag), attributes, children);

  const icon = (name) =>
    draw("svg", { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" },
      draw("path", { d: ICONS[name] }));

  const button = (attributes, ...children) =>
    make("button", { type: "button", ...attributes }, ...children);

  const options = (select, pairs, chosen) => {
    select.replaceChildren(...pairs.map(([value, text]) =>
      make("option", { value, selected: value === chosen }, text)));
    select.value = chosen;
  };

  const say = (text) => { byId("status").textContent = text; };

  const groups = new Intl.NumberFormat("en");
  const whole = (n) => groups.format(n);
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  const count = (n, one, many = `${one}s`) => `${whole(n)} ${n === 1 ? one : many}`;
  const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)}\u00a0%`;
  const bytes = (n) => {
    const step = Math.min(4, Math.floor(Math.log10(Math.max(n, 1)) / 3));
    return `${(n / 1000 ** step).toFixed(step ? 1 : 0)} ${["B", "kB", "MB", "GB", "TB"][step]}`;
  };
  // A rate of errors: rounded up, so that none is shown below the limit that it missed.
  const rate = (share) => {
    const tenths = Math.ceil(+(1000 * share).toFixed(6));
    if (share < 0.001) return "<0.1\u00a0%";
    return tenths < 100 ? percent(tenths / 1000, 1) : percent(share);
  };
  const signed = (value, digits = 3) => value.toFixed(digits).replace("-", "−");

  Object.assign(deltadex, {
    byId, make, draw, icon, button, options, say,
    format: { whole, short: (n) => short.format(n), count, percent, rate, bytes, signed },
  });
}
