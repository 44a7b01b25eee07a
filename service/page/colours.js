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
    const tones = (letter) => {
      const base = Array.from({ length: BASE }, (_, i) => read(`${letter}${i}`));
      return (i) => {
        const tone = Math.floor(i / BASE) % 3, colour = base[i % BASE];
        return tone === 0 ? colour : tone === 1 ? mix(colour, text, 0.42) : mix(colour, sheet, 0.42);
      };
    };
    return {
      sheet, text, none: read("none"), tail: read("tail"), accent: read("accent"), quiet: read("quiet"),
      of: tones("c"), clusters: tones("k"),
    };
  }

  // Which category every model is in, and the categories, largest first; the smallest share one. Where
  // there are more than colours, those in sight get them, and keep what they had before.
  function categorise(column, names, missing, { tones = "of", seen = null, before = [] } = {}) {
    const counts = new Array(names.length).fill(0), near = new Array(names.length).fill(0);
    let unnamed = 0;
    column.forEach((at, i) => {
      if (at === null) { unnamed++; return; }
      counts[at]++;
      if (!seen || seen[i]) near[at]++;
    });
    const ranked = names.map((_, i) => i).filter((i) => counts[i] > 0)
      .sort((a, b) => near[b] - near[a] || counts[b] - counts[a] || (names[a] < names[b] ? -1 : 1));
    const shown = ranked.length > SHOWN ? ranked.slice(0, SHOWN - 1) : ranked;
    const tail = ranked.slice(shown.length);
    const had = new Map(before.filter(({ colour }) => typeof colour === "number").map(({ key, colour }) => [key, colour]));
    const kept = new Set(shown.map((i) => had.get(`=${names[i]}`)));
    const spare = Array.from({ length: SHOWN }, (_, n) => n).filter((n) => !kept.has(n));
    const items = shown.map((i) => ({ key: `=${names[i]}`, name: names[i], count: counts[i], tones,
      colour: had.get(`=${names[i]}`) ?? spare.shift() }));
    const at = new Int16Array(names.length).fill(shown.length);
    shown.forEach((i, n) => { at[i] = n; });
    if (tail.length) {
      items.push({ key: "*", name: `${tail.length} smaller ones`, colour: "tail",
        count: tail.reduce((sum, i) => sum + counts[i], 0) });
    }
    if (unnamed) items.push({ key: "?", name: missing, count: unnamed, colour: "none" });
    const of = Int16Array.from(column, (i) => (i === null ? items.length - 1 : at[i]));
    return { items, of, crowded: tail.length > 0 };
  }

  const rgbOf = (colours, item) =>
    typeof item.colour === "number" ? colours[item.tones](item.colour) : colours[item.colour];

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
