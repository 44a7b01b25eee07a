"use strict";
{
  const { make } = deltadex;
  const BASE = 8;
  const SHOWN = 3 * BASE; // each base colour as it is, deeper, and paler

  const probe = make("span", { hidden: true });

  function read(name) {
    if (!probe.isConnected) document.body.append(probe);
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  }

  const mix = (a, b, share) => a.map((value, i) => Math.round(value + (b[i] - value) * share));
  const css = (rgb) => `rgb(${rgb.join(" ")})`;

  // The colours of the theme that is on now.
  function palette() {
    const sheet = read("sheet"), text = read("text");
    const base = Array.from({ length: BASE }, (_, i) => read(`c${i}`));
    return {
      sheet, text, none: read("none"), tail: read("tail"), accent: read("accent"), quiet: read("quiet"),
      of: (i) => {
        const tone = Math.floor(i / BASE) % 3, colour = base[i % BASE];
        return tone === 0 ? colour : tone === 1 ? mix(colour, text, 0.42) : mix(colour, sheet, 0.42);
      },
    };
  }

  // Which category every model is in, and the categories, largest first; the smallest share one.
  function categorise(column, names, missing) {
    const counts = new Array(names.length).fill(0);
    let unnamed = 0;
    for (const at of column) at === null ? unnamed++ : counts[at]++;
    const ranked = names.map((_, i) => i).filter((i) => counts[i] > 0)
      .sort((a, b) => counts[b] - counts[a] || (names[a] < names[b] ? -1 : 1));
    const shown = ranked.length > SHOWN ? ranked.slice(0, SHOWN - 1) : ranked;
    const tail = ranked.slice(shown.length);
    const items = shown.map((i, n) =>
      ({ key: `=${names[i]}`, name: names[i], count: counts[i], colour: n }));
    const at = new Int16Array(names.length).fill(shown.length);
    shown.forEach((i, n) => { at[i] = n; });
    if (tail.length) {
      items.push({ key: "*", name: `${tail.length} smaller ones`, colour: "tail",
        count: tail.reduce((sum, i) => sum + counts[i], 0) });
    }
    if (unnamed) items.push({ key: "?", name: missing, count: unnamed, colour: "none" });
    const of = Int16Array.from(column, (i) => (i === null ? items.length - 1 : at[i]));
    return { items, of };
  }

  const rgbOf = (colours, item) =>
    typeof item.colour === "number" ? colours.of(item.colour) : colours[item.colour];

  const luminance = (rgb) => rgb
    .map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4))
    .reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);

  // Black or white, whichever reads better on the colour.
  const inkOn = (rgb) => (luminance(rgb) > 0.179 ? "#000" : "#fff");

  // A cell of a heat map: paper where nothing is, the accent where most is.
  function shade(colours, share) {
    const rgb = mix(colours.sheet, colours.accent, 0.04 + 0.96 * Math.max(0, Math.min(1, share)));
    return { "background-color": css(rgb), color: inkOn(rgb) };
  }

  deltadex.colours = { palette, categorise, rgbOf, css, mix, shade };
}
