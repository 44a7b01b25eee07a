"use strict";
{
  const { css } = deltadex.colours;
  const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
  const SCORES_SHOWN = 5, ZOOM_PX = [64, 178], INSET_PX = 24; // what the buttons take of the corner
  const MARGIN_PX = 6, GUEST_PX = 13, RING_PX = 6, STAR_PX = 9, WAIST = 0.42, STARS_NAMED = 24, NAMES = 24;
  const LEADER_FROM = 10, WAYS = [2, 10, 22, 38, 60, 90, 130]; // pixels from what is named
  const DIRECTIONS = [[0, -1], [1, 0], [-1, 0], [0, 1], [0.7, -0.9], [-0.7, -0.9], [0.7, 0.9], [-0.7, 0.9],
    [1, -0.5], [-1, -0.5], [1, 0.5], [-1, 0.5]];

  // Five points around a middle, the first of them on top.
  function starPath(context, x, y, radius) {
    context.beginPath();
    for (let n = 0; n < 10; n++) {
      const far = n % 2 ? radius * WAIST : radius, angle = (Math.PI * n) / 5;
      context.lineTo(x + far * Math.sin(angle), y - far * Math.cos(angle));
    }
    context.closePath();
  }

  // A line's ends, moved in so that it touches no mark.
  function between([x, y], [u, v], first, last) {
    const length = Math.hypot(u - x, v - y) || 1, [dx, dy] = [(u - x) / length, (v - y) / length];
    if (length <= first + last) return [[x, y], [x, y]];
    return [[x + dx * first, y + dy * first], [u - dx * last, v - dy * last]];
  }

  // What lies over the points: links to neighbours, rings, names of categories.
  class Overlay {
    constructor(canvas) {
      this.canvas = canvas;
      this.context = canvas.getContext("2d");
      this.blank = true;
    }

    draw(scene) {
      const { context, canvas } = this;
      const { chosen, hovered, links, labels, stars } = scene;
      const idle = chosen < 0 && hovered < 0 && !labels.length && !stars.length && !scene.family.stacks.size
        && !scene.family.contours.length && !deltadex.lasso.shows() && !scene.guest;
      canvas.hidden = idle;
      if (idle && this.blank) return;
      context.setTransform(scene.ratio, 0, 0, scene.ratio, 0, 0);
      context.clearRect(0, 0, canvas.width / scene.ratio, canvas.height / scene.ratio);
      this.blank = idle;
      [this.width, this.height] = [canvas.width / scene.ratio, canvas.height / scene.ratio];
      this.taken = [[this.width - scene.inset.right + INSET_PX - ZOOM_PX[0] / 2, this.height - ZOOM_PX[1] / 2, ZOOM_PX[0] / 2, ZOOM_PX[1] / 2]];
      if (scene.visitor) this.taken.push([...scene.visitor, GUEST_PX, GUEST_PX]);
      if (chosen >= 0) this.taken.push([...scene.place(chosen), ...Array(2).fill(scene.radiusOf(chosen) + RING_PX)]);
      deltadex.contours.draw(context, scene);
      deltadex.lasso.paint(context, scene);
      if (chosen >= 0 || scene.guest) this.links(scene, links);
      for (const i of [chosen, hovered]) if (i >= 0) this.ring(scene, i, i === chosen ? 2.5 : 1.5);
      this.badges(scene);
      this.stars(scene, stars);
      this.names(scene, labels);
      if (chosen >= 0 || scene.guest) this.scores(scene, links);
    }

    // Kept data sets: hollow where no model stands out.
    stars(scene, stars) {
      const { context } = this, { toScreen, colours, starred, naming } = scene;
      context.lineJoin = "round";
      const sizeOf = (n) => (n === starred ? STAR_PX + 3 : STAR_PX);
      stars.forEach((star, n) => this.taken.push([...toScreen(star.x, star.y), sizeOf(n), sizeOf(n)]));
      stars.forEach((star, n) => {
        const [x, y] = toScreen(star.x, star.y), size = sizeOf(n);
        starPath(context, x, y, size);
        context.strokeStyle = css(colours.sheet);
        context.lineWidth = 5;
        context.stroke();
        context.strokeStyle = css(colours.text);
        context.lineWidth = 1.6;
        context.fillStyle = css(star.standsOut ? colours.text : colours.sheet);
        context.fill();
        context.stroke();
        if (n === starred || (naming && n < STARS_NAMED)) this.text(scene, star.label, [x, y], size, 12, 650, colours.text);
      });
    }

    // How many copies lie on one place.
    badges({ place, radiusOf, colours, family, modes, naming }) {
      const { context } = this;
      if (!modes || !naming) return;
      context.font = `600 11px ${FONT}`;
      context.textAlign = "left";
      context.textBaseline = "middle";
      context.fillStyle = css(colours.text);
      for (const [i, stack] of family.stacks) {
        if (i !== stack[0] || modes[i] !== 2) continue;
        const [x, y] = place(i), words = `×${stack.length}`, wide = context.measureText(words).width;
        const left = x + radiusOf(i) + 2, top = y - radiusOf(i) - 2;
        context.fillText(words, left, top);
        this.taken.push([left + wide / 2, top, wide / 2, 7]);
      }
    }

    // As wide as z is high; dashed where the neighbour does not stand out.
    links({ place, radiusOf, chosen, guest, colours, radius, marked }, links) {
      const { context } = this;
      const most = Math.max(deltadex.neighbours.FULL_Z, ...links.map((link) => link.z));
      context.lineCap = "butt";
      for (const link of [...links].reverse()) {
        const [[x, y], [u, v]] = between(guest ?? place(chosen), place(link.at), guest ? GUEST_PX : radiusOf(chosen) + RING_PX, radiusOf(link.at) + 2);
        const lit = marked === link.at;
        if (link.standsOut) this.taken.push(...this.between(x, y, u, v).map((at) => [...at, 2, 2]));
        context.strokeStyle = css(lit ? colours.accent : colours.text);
        context.globalAlpha = lit ? 1 : link.standsOut ? 0.7 : 0.3;
        context.lineWidth = Math.max(1, (radius > 3 ? 5 : 4) * link.z / most);
        context.setLineDash(link.standsOut ? [] : [3, 4]);
        context.beginPath();
        context.moveTo(x, y);
        context.lineTo(u, v);
        context.stroke();
      }
      context.setLineDash([]);
      context.globalAlpha = 1;
    }

    ring({ place, radiusOf, colours }, i, width) {
      const { context } = this, [x, y] = place(i);
      for (const [colour, wide] of [[colours.sheet, width + 3], [colours.text, width]]) {
        context.strokeStyle = css(colour);
        context.lineWidth = wide;
        context.beginPath();
        context.arc(x, y, radiusOf(i) + 4, 0, 7);
        context.stroke();
      }
    }

    scores(scene, links) {
      const { place, radiusOf, colours, marked, guest, chosen } = scene;
      const [x, y] = guest ?? place(chosen), size = guest ? GUEST_PX : radiusOf(chosen) + RING_PX;
      const told = links.filter((link, n) => n < SCORES_SHOWN || link.at === marked);
      told.sort((a, b) => (b.at === marked) - (a.at === marked));
      for (const link of told) {
        const [u, v] = place(link.at), gap = Math.hypot(u - x, v - y) < size ? size : radiusOf(link.at);
        this.text(scene, `z ${deltadex.format.signed(link.z, 1)}`, [u, v], gap, 11.5, 500, colours.text);
      }
    }

    names(scene, labels) {
      const { toScreen, colours } = scene;
      let drawn = 0;
      for (const label of labels) {
        const at = toScreen(label.x, label.y);
        if (drawn === NAMES) return;
        if (this.text(scene, label.text, at, label.gap, 13, 650, colours.text, { mark: label.rgb, most: Infinity })) drawn++;
      }
    }

    // Whether a box of the screen is free of points, of words and of what lies over the map.
    free({ toPlane, family, modes, radius, inset, glides }, x, y, half, tall) {
      if (x - half < inset.left + MARGIN_PX || x + half > this.width - inset.right - MARGIN_PX || y - tall < 4 || y + tall > this.height - inset.bottom - 4) return false;
      if (this.taken.some(([u, v, w, h]) => Math.abs(u - x) < w + half && Math.abs(v - y) < h + tall)) return false;
      if (glides || !modes) return true;
      const more = radius * 1.7, [left, high] = toPlane(x - half - more, y - tall - more), [right, low] = toPlane(x + half + more, y + tall + more);
      return !family.grid.any(left, right, low, high, (i) => modes[i] > 0);
    }

    // Written beside its place where nothing is yet, with a line to it; not at all where there is no room near.
    text(scene, words, [x, y], gap, size, weight, rgb, { mark = null, most = LEADER_FROM } = {}) {
      const { context } = this, { colours, inset: { left, right, top, bottom } } = scene;
      if (x < left || y < top || x > this.width - right + INSET_PX || y > this.height - bottom) return false; // under a panel
      context.font = `${weight} ${size}px ${FONT}`;
      const half = context.measureText(words).width / 2 + 3, tall = size * 0.7;
      for (const far of WAYS.filter((way) => way <= most)) {
        for (const [dx, dy] of DIRECTIONS) {
          const u = x + dx * (gap + far + half), v = y + dy * (gap + far + tall);
          if (!this.free(scene, u, v, half, tall)) continue;
          const line = far > LEADER_FROM ? this.between(x, y, Math.max(u - half, Math.min(x, u + half)), Math.max(v - tall, Math.min(y, v + tall))) : [];
          if (line.some(([p, q]) => this.taken.some(([s, t, w, h]) => Math.abs(s - p) < w && Math.abs(t - q) < h))) continue;
          this.taken.push([u, v, half, tall], ...line.map(([p, q]) => [p, q, 2, 2]));
          if (line.length) this.leader(line[0], line.at(-1), mark ?? rgb);
          context.textAlign = "center";
          context.textBaseline = "middle";
          context.fillStyle = css(mark ? deltadex.colours.mix(mark, colours.text, 0.45) : rgb);
          context.fillText(words, u, v);
          return true;
        }
      }
      return false;
    }

    // Places along a line from what is named to its name.
    between(x, y, u, v) {
      const n = Math.ceil(Math.hypot(u - x, v - y) / 6);
      return Array.from({ length: n + 1 }, (_, i) => [x + ((u - x) * i) / n, y + ((v - y) * i) / n]);
    }

    leader([x, y], [u, v], rgb) {
      const { context } = this;
      context.strokeStyle = css(rgb);
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(u, v);
      context.stroke();
    }
  }

  deltadex.Overlay = Overlay;
}
