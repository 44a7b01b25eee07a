"use strict";
{
  const { css } = deltadex.colours;
  const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
  const SCORES_SHOWN = 5;
  const STAR_PX = 9, WAIST = 0.42, STARS_NAMED = 24;

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
      const idle = chosen < 0 && hovered < 0 && !labels.length && !stars.length && !scene.family.stacks.size;
      canvas.hidden = idle;
      if (idle && this.blank) return;
      context.setTransform(scene.ratio, 0, 0, scene.ratio, 0, 0);
      context.clearRect(0, 0, canvas.width / scene.ratio, canvas.height / scene.ratio);
      this.blank = idle;
      this.width = canvas.width / scene.ratio;
      this.taken = [];
      if (chosen >= 0) this.links(scene, links);
      for (const i of [chosen, hovered]) if (i >= 0) this.ring(scene, i, i === chosen ? 2.5 : 1.5);
      this.badges(scene);
      this.stars(scene, stars);
      if (chosen >= 0) this.scores(scene, links);
      this.names(scene, labels);
    }

    // Kept data sets: hollow where no model stands out.
    stars({ toScreen, colours, starred, naming }, stars) {
      const { context } = this;
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
        if (n === starred || (naming && n < STARS_NAMED)) this.text(star.label, x, y + size + 12, 12, 650, colours.text, colours);
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
    links({ place, radiusOf, chosen, colours, radius, marked }, links) {
      const { context } = this;
      const most = Math.max(deltadex.neighbours.FULL_Z, ...links.map((link) => link.z));
      context.lineCap = "butt";
      for (const link of [...links].reverse()) {
        const [[x, y], [u, v]] = between(place(chosen), place(link.at), radiusOf(chosen) + 6, radiusOf(link.at) + 2);
        const lit = marked === link.at;
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

    scores({ place, radiusOf, colours, marked }, links) {
      const told = links.filter((link, n) => n < SCORES_SHOWN || link.at === marked);
      told.sort((a, b) => (b.at === marked) - (a.at === marked));
      for (const link of told) {
        const [x, y] = place(link.at);
        this.text(`z ${deltadex.format.signed(link.z, 1)}`, x, y - radiusOf(link.at) - 10, 11.5, 500, colours.text, colours);
      }
    }

    names({ toScreen, colours }, labels) {
      for (const label of labels) {
        const [x, y] = toScreen(label.x, label.y);
        this.text(label.text, x, y - label.lift, 13, 650, label.rgb, colours);
      }
    }

    // Written only where nothing is written yet.
    text(words, x, y, size, weight, rgb, colours) {
      const { context } = this;
      context.font = `${weight} ${size}px ${FONT}`;
      const half = context.measureText(words).width / 2 + 5, tall = size * 0.8;
      if (x > 0 && x < this.width) x = Math.max(half, Math.min(x, this.width - half));
      if (this.taken.some(([u, v, w, h]) => Math.abs(u - x) < w + half && Math.abs(v - y) < h + tall)) return;
      this.taken.push([x, y, half, tall]);
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.lineJoin = "round";
      context.lineWidth = 4;
      context.strokeStyle = css(colours.sheet);
      context.fillStyle = css(deltadex.colours.mix(rgb, colours.text, 0.35));
      context.strokeText(words, x, y);
      context.fillText(words, x, y);
    }
  }

  deltadex.Overlay = Overlay;
}
