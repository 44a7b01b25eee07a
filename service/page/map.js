"use strict";
{
  const { byId, state, say, format } = deltadex;
  const FEW = 40, FRAME_PX = 60;
  const REACH_PX = 14;
  const STAR_REACH_PX = 12;
  const GLIDE_MS = 900;
  const REST_MS = 250;
  const MOST_SPREAD = 0.4; // of the plane, which is 2 wide
  const THICKER = 0.15; // fewer points are drawn larger
  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  const stage = byId("stage");

  const map = {
    family: deltadex.Family.none(), colours: null, categories: null, shown: new Uint8Array(0), hidden: new Set(),
    chosen: -1, hovered: -1, marked: -1, starred: -1, links: [], labels: [], ratio: 1,
    frames: { count: 0, script_ms: 0 }, pace: new deltadex.Pace(),
  };
  const { pace } = map;
  let renderer, overlay, view, lent = null, glide = null, resting = 0, asked = 0, stale = false, filtered = false;

  function start() {
    try {
      renderer = new deltadex.Points(byId("points"), () => { dirty(); });
    } catch {
      byId("points").replaceWith(Object.assign(document.createElement("canvas"), { id: "points" }));
      renderer = new deltadex.FlatPoints(byId("points"));
      byId("slow").hidden = false;
    }
    map.renderer = renderer;
    overlay = new deltadex.Overlay(byId("overlay"));
    view = map.view = new deltadex.View(stage, { changed: moved, tapped, hovered });
    new ResizeObserver(resize).observe(stage);
    stage.addEventListener("keydown", pressed);
    stage.addEventListener("blur", () => { hover(-1); star(-1); });
    byId("closer").onclick = () => view.zoomBy(1.6);
    byId("farther").onclick = () => view.zoomBy(1 / 1.6);
    byId("home").onclick = () => view.flyTo(HOME);
    recolour();
  }

  // Drawing: at most once a frame, and only after something changed. Frames are watched until
  // the map rests.

  function watch() {
    if (!asked) asked = requestAnimationFrame(frame);
  }

  function dirty() {
    stale = true;
    watch();
  }

  function frame(now) {
    asked = 0;
    const begun = performance.now();
    view.step(now);
    if (glide) glideOn(now);
    if (pace.tick(now) || stale) {
      stale = false;
      paint();
      pace.painted = true;
      map.frames.count++;
      map.frames.script_ms += performance.now() - begun;
    }
    if (view.flight || glide || pace.moving) watch();
  }

  const place = (i) => view.toScreen(map.family.x[i], map.family.y[i]);

  function radius() {
    const n = Math.max(1, map.family.count);
    const far = Math.max(1.15, Math.min(7.5, 11 - 2 * Math.log10(n)));
    return Math.min(Math.max(far, 9), far * view.camera.zoom ** 0.45);
  }
  const radiusOf = (i) => radius() * map.sizes[i];

  // The share of the points that is in sight, by a sample of them.
  function inSight() {
    const { sample } = map.family, [width, height] = view.size;
    let within = 0;
    for (const i of sample) {
      const [left, top] = place(i);
      if (left > 0 && top > 0 && left < width && top < height) within++;
    }
    return within / sample.length;
  }

  // Which models are in sight, as 0 and 1; null where all are.
  function inSightAll() {
    const { x, y, count } = map.family, [width, height] = view.size;
    const [left, high] = view.toPlane(view.inset.left, 0), [right, low] = view.toPlane(width - view.inset.right, height);
    const seen = Uint8Array.from({ length: count }, (_, i) => (x[i] > left && x[i] < right && y[i] > low && y[i] < high ? 1 : 0));
    return seen.includes(0) && seen.includes(1) ? seen : null;
  }

  // What of the points is drawn, from the lowest to the topmost: first place and number.
  function parts(share) {
    const { family } = map;
    if (share === 1) return [[0, family.count]];
    const { beneath, count, rank } = family;
    const kept = [...map.links.map((link) => link.at), map.chosen, map.hovered].filter((i) => i >= 0);
    return [[0, Math.ceil(share * beneath)], [beneath, Math.ceil(share * (count - beneath))],
      ...kept.map((i) => [rank[i], 1])];
  }

  function paint() {
    const { camera, unit, middle, size: area } = view;
    const share = pace.now.points < map.family.count ? pace.share(map.family.count, inSight()) : 1;
    const ratio = Math.min(map.ratio, pace.now.ratio), size = radius();
    fit(ratio);
    renderer.draw({ camera, unit, middle, area, ratio, parts: parts(share), size: size * share ** -THICKER,
      sheet: map.colours.sheet, alpha: map.family.count > 5000 ? 0.82 : 0.95 });
    const named = pace.now.names && !glide, visitor = deltadex.visitor.place();
    overlay.draw({ ...map, place, radiusOf, radius: size, ratio,
      toScreen: (x, y) => view.toScreen(x, y), toPlane: (x, y) => view.toPlane(x, y), inset: view.inset, visitor, guest: deltadex.visitor.isOpen() ? visitor : null, glides: glide !== null, labels: named ? map.labels : [],
      stars: map.family.stars, naming: pace.now.names });
  }

  // A canvas that gets another size is empty.
  function fit(ratio) {
    const [width, height] = view.size.map((length) => Math.round(length * ratio));
    for (const canvas of [renderer.canvas, overlay.canvas]) {
      if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    }
  }

  function resize() {
    const { width, height, left, top } = stage.getBoundingClientRect();
    if (!width || !height) return;
    view.size = [width, height];
    view.corner = [left, top];
    map.ratio = Math.min(devicePixelRatio || 1, map.family.count > 20000 ? 1.5 : 2);
    view.measure();
    dirty();
  }

  // Where the camera is

  function moved() {
    pace.moved();
    if (map.hovered >= 0) deltadex.tooltip.show(map.family, map.hovered, place(map.hovered), radiusOf(map.hovered));
    if (map.starred >= 0) pointAt(map.starred);
    const { x, y, zoom } = view.camera;
    clearTimeout(resting);
    resting = setTimeout(() => deltadex.legend.inView(), REST_MS);
    state.quietly({ at: isHome() ? "" : [x.toFixed(4), y.toFixed(4), zoom.toFixed(3)].join(",") });
    dirty();
  }

  function look(at) {
    const [x, y, zoom] = at.split(",").map(Number);
    view.flight = null;
    view.set([x, y, zoom].every(Number.isFinite) ? { x, y, zoom } : HOME);
    if (at) lent = null;
    else if (lent) lend();
  }

  const HOME = { x: 0, y: 0, zoom: 1 };
  function isHome() {
    const { x, y, zoom } = view.camera;
    return Math.abs(x) + Math.abs(y) < 1e-4 && Math.abs(zoom - 1) < 1e-3;
  }

  // Panels over the map move its middle, not what is seen of it; unless that is everything.
  function inset(changes) {
    const before = view.middle ?? [0, 0];
    Object.assign(view.inset, changes);
    view.measure();
    if (isHome() && !view.flight) { view.set(HOME); return; }
    const scale = view.unit * view.camera.zoom;
    view.set({ ...view.camera, x: view.camera.x + (view.middle[0] - before[0]) / scale,
      y: view.camera.y - (view.middle[1] - before[1]) / scale });
  }

  // Everything between these corners of the plane, in what panels leave of the map.
  function fitTo(corners) {
    const [[left, right], [low, high]] = [0, 1].map((side) => corners.map((corner) => corner[side])).map((values) => [Math.min(...values), Math.max(...values)]);
    const { left: beside, right: other, top, bottom } = view.inset, [width, height] = view.size;
    const fit = Math.min((width - beside - other - FRAME_PX) / (right - left), (height - top - bottom - FRAME_PX) / (high - low)) / view.unit;
    view.flyTo({ x: (left + right) / 2, y: (low + high) / 2, zoom: Math.min(fit, Math.max(1, (view.flight?.to ?? view.camera).zoom)) });
  }

  const inFreeSpace = ([x, y]) => x > view.inset.left + 20 && x < view.size[0] - view.inset.right - 20
    && y > view.inset.top + 20 && y < view.size[1] - view.inset.bottom - 20;

  // What is chosen and its neighbours, unless they are in sight already, or the address says what is.
  function show() {
    const models = [map.chosen, ...map.links.map(({ at }) => at)];
    if (!lent || map.chosen < 0 || !stage.clientWidth) return;
    if (view.flight || !models.every((i) => inFreeSpace(place(i)))) fitTo(models.map((i) => [map.family.x[i], map.family.y[i]]));
  }

  // The view as it was lent to a card, unless it was moved by hand since.
  function lend() {
    lent = { ...view.camera };
    view.byHand = false;
  }

  function giveBack() {
    if (lent && !view.byHand) view.flyTo(lent);
    lent = null;
  }

  function reveal(i, near) {
    if (i >= 0) revealPlace(map.family.x[i], map.family.y[i], near);
  }

  function revealPlace(u, v, near) {
    if (!stage.clientWidth || (inFreeSpace(view.toScreen(u, v)) && !near)) return;
    const zoom = near ? Math.max(view.camera.zoom, Math.min(6, 1 + map.family.count / 40)) : view.camera.zoom;
    view.flyTo({ x: u, y: v, zoom });
  }

  // What is shown

  function setFamily(family) {
    const before = map.family;
    Object.assign(map, { family, chosen: -1, hovered: -1, marked: -1, starred: -1, links: [] });
    const largest = family.document.downloads.reduce((most, n) => Math.max(most, n ?? 0), 0);
    const scale = Math.log1p(Math.max(1, largest));
    map.sizes = Float32Array.from(family.document.downloads,
      (n) => (largest ? 0.8 + (0.9 * Math.log1p(n ?? 0)) / scale : 1));
    map.modes = null;
    glide = !deltadex.still() && before.isOf(family) ? { from: before, to: { x: family.x.slice(), y: family.y.slice() }, start: performance.now() } : null;
    upload();
    view.span = family.span;
    view.furthest = Math.max(24, Math.sqrt(family.count) * 6);
    resize();
  }

  function upload() {
    const { family } = map, places = new Float32Array(3 * family.count);
    for (let i = 0; i < family.count; i++) places.set([family.x[i], family.y[i], map.sizes[i]], 3 * family.rank[i]);
    renderer.setPlaces(places);
  }

  // Models on their way from one layout to the next.
  function glideOn(now) {
    const { from, to, start } = glide, { x, y } = map.family;
    const share = deltadex.ease(Math.min(1, Math.max(0, (now - start) / GLIDE_MS)));
    for (let i = 0; i < x.length; i++) {
      x[i] = from.x[i] + share * (to.x[i] - from.x[i]);
      y[i] = from.y[i] + share * (to.y[i] - from.y[i]);
    }
    if (share === 1) glide = null;
    upload();
    stale = true;
  }

  // Colours and what is dimmed: goes up again when a filter, the legend or the theme changes.
  function restyle() {
    const { family, categories, hidden, shown, colours } = map;
    if (!categories) return;
    const rgb = categories.items.map((item) => deltadex.colours.rgbOf(colours, item));
    const styles = new Uint8Array(4 * family.count), modes = new Uint8Array(family.count);
    let dimmed = false, seen = 0;
    const off = categories.items.map((item) => hidden.has(item.key));
    for (let i = 0; i < family.count; i++) {
      const of = categories.of[i];
      const mode = off[of] ? 0 : shown[i] ? 2 : 1;
      dimmed ||= mode === 1;
      seen += mode === 2;
      const to = 4 * family.rank[i], colour = rgb[of];
      styles[to] = colour[0]; styles[to + 1] = colour[1]; styles[to + 2] = colour[2];
      styles[to + 3] = mode + 4 * family.hollow[i];
      modes[i] = mode;
    }
    renderer.setStyles(styles, dimmed);
    map.modes = modes;
    map.seen = seen;
    filtered = seen < family.count;
    map.labels = labels(rgb, off);
    tell();
    dirty();
  }

  // The model with the least way to the others.
  function innermost(of) {
    const { x, y } = map.family;
    const way = of.map((i) => of.reduce((sum, j) => sum + Math.hypot(x[i] - x[j], y[i] - y[j]), 0));
    return of[way.indexOf(Math.min(...way))];
  }

  // Names of categories: at their innermost model, or amid them where they are many. One model needs
  // no name, and models that lie everywhere have no place for one.
  function labels(rgb, off) {
    const { family, categories } = map;
    if (categories.items.length < 2) return [];
    const members = categories.items.map(() => []);
    for (let i = 0; i < family.count; i++) if (map.modes[i] === 2) members[categories.of[i]].push(i);
    return categories.items.flatMap((item, n) => (item.colour === "none" && !off[n] ? areas(members[n], rgb[n])
      : typeof item.colour !== "number" || off[n] ? [] : label(item.name, members[n], rgb[n])));
  }

  // Clusters without a data set are named by words, where both are known.
  function areas(of, rgb) {
    const { clusters, clusterOf } = map.family;
    return (clusters?.clusters ?? []).flatMap(({ words, datasets }, c) => (datasets.length || !words.length ? []
      : label(words.join(", "), of.filter((i) => clusterOf[i] === c), rgb)));
  }

  function label(name, of, rgb) {
    const { x: xs, y: ys } = map.family, middle = (values) => Float64Array.from(values).sort()[Math.floor(values.length / 2)];
    if (of.length < 2) return [];
    const few = of.length <= FEW, at = few && innermost(of);
    const x = few ? xs[at] : middle(of.map((i) => xs[i])), y = few ? ys[at] : middle(of.map((i) => ys[i]));
    if (middle(of.map((i) => Math.hypot(xs[i] - x, ys[i] - y))) > MOST_SPREAD) return [];
    return [{ text: deltadex.words.clipped(name), rgb, gap: 8, x, y }];
  }

  function tell() {
    const { family, seen } = map;
    const words = !family.count ? "" : filtered ? `${format.whole(seen)} of ${format.count(family.count, "model")}`
      : `${format.count(family.count, "fine-tune")} of ${deltadex.nameOf(family.document.base)}`;
    byId("counted").textContent = words;
    byId("none").hidden = seen > 0;
  }

  function recolour() {
    map.colours = deltadex.colours.palette();
    restyle();
    dirty();
  }

  // Pointing and keys

  const visible = (i) => map.modes[i] === 2;

  function at([left, top]) {
    if (!map.modes) return -1;
    const reach = Math.max(REACH_PX, radius() + 4) / (view.unit * view.camera.zoom);
    return map.family.grid.nearest(...view.toPlane(left, top), reach, visible);
  }

  function hover(i) {
    if (i === map.hovered) return;
    map.hovered = i;
    stage.classList.toggle("pointing", i >= 0);
    deltadex.tooltip.show(map.family, i, i < 0 ? [0, 0] : place(i), i < 0 ? 0 : radiusOf(i));
    dirty();
  }

  // Kept data sets lie above the models.
  function starAt([left, top]) {
    let best = -1, least = STAR_REACH_PX;
    map.family.stars.forEach(({ x, y }, n) => {
      const [u, v] = view.toScreen(x, y), far = Math.hypot(u - left, v - top);
      if (far < least) [best, least] = [n, far];
    });
    return best;
  }

  function pointAt(n) {
    const data = map.family.stars[n];
    deltadex.tooltip.showData(data, view.toScreen(data.x, data.y), STAR_REACH_PX);
  }

  function star(n) {
    if (n === map.starred) return;
    map.starred = n;
    stage.classList.toggle("pointing", n >= 0);
    if (n >= 0) { hover(-1); pointAt(n); }
    else if (map.hovered < 0) deltadex.tooltip.show(map.family, -1, [0, 0], 0);
    dirty();
  }

  function flyToStar(n) {
    const { x, y } = map.family.stars[n];
    view.flyTo({ x, y, zoom: Math.max(view.camera.zoom, 2) });
    star(n);
  }

  function hovered(here) {
    const n = here === null ? -1 : starAt(here);
    star(n);
    if (n < 0) hover(here === null ? -1 : at(here));
  }

  function tapped(here) {
    const data = map.family.stars[starAt(here)];
    if (data) { star(-1); state.change({ model: data.nearest[0].model, other: "" }); return; }
    const i = at(here);
    hover(-1);
    deltadex.visitor.open(false);
    state.change({ model: i < 0 ? "" : map.family.id(i), other: "" });
  }

  function step([dx, dy]) {
    const { family } = map;
    const from = map.hovered >= 0 ? map.hovered : map.chosen;
    let best = -1, least = Infinity;
    if (from < 0) {
      best = family.grid.nearest(view.camera.x, view.camera.y, 4, visible);
    } else {
      for (let i = 0; i < family.count; i++) {
        if (i === from || !visible(i)) continue;
        const [u, v] = [family.x[i] - family.x[from], family.y[i] - family.y[from]];
        const along = u * dx + v * dy, across = Math.abs(u * dy - v * dx);
        if (along > 0 && along + 2 * across < least) { best = i; least = along + 2 * across; }
      }
    }
    if (best < 0) return;
    reveal(best, false);
    hover(best);
    say(deltadex.tooltip.spoken(family, best));
  }

  function pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !map.modes) return;
    if (deltadex.lasso.pressed(event)) { event.preventDefault(); return; }
    const act = event.key in ARROWS ? () => step(ARROWS[event.key]) : {
      Enter: () => map.hovered >= 0 && deltadex.card.open(map.family.id(map.hovered)),
      "+": () => view.zoomBy(1.6), "=": () => view.zoomBy(1.6), "-": () => view.zoomBy(1 / 1.6),
      0: () => view.flyTo(HOME),
    }[event.key];
    if (act) { event.preventDefault(); act(); }
  }

  Object.assign(map, { start, inSightAll, dirty, paint, resize, look, inset, fitTo, show, lend, giveBack, reveal, revealPlace, setFamily, restyle, recolour, hover, star, flyToStar });
  deltadex.map = map;
}
