"use strict";
{
  const CELLS = 72, BLUR = 2, FEWEST = 300, LEVELS = [0.12, 0.3, 0.55], EDGE = 1.15;

  // How many models lie where, on a square of cells, smoothed by three running means each way.
  function density({ x, y, count }) {
    let cells = new Float32Array(CELLS * CELLS);
    const row = (value) => Math.min(CELLS - 1, Math.floor(((value + EDGE) / (2 * EDGE)) * CELLS));
    for (let i = 0; i < count; i++) cells[row(y[i]) * CELLS + row(x[i])]++;
    for (let n = 0; n < 3; n++) for (const step of [1, CELLS]) cells = smooth(cells, step);
    return cells;
  }

  function smooth(cells, step) {
    return cells.map((_, at) => {
      const along = step === 1 ? at % CELLS : Math.floor(at / CELLS);
      let sum = 0;
      for (let by = -BLUR; by <= BLUR; by++) if (along + by >= 0 && along + by < CELLS) sum += cells[at + by * step];
      return sum / (2 * BLUR + 1);
    });
  }

  // Lines along which as many models lie, as ends of segments in the plane (marching squares).
  function lines(cells, level) {
    const plane = (value) => ((value + 0.5) / CELLS) * 2 * EDGE - EDGE, ends = [];
    for (let r = 0; r < CELLS - 1; r++) {
      for (let c = 0; c < CELLS - 1; c++) {
        const corners = [[c, r], [c + 1, r], [c + 1, r + 1], [c, r + 1]], crossed = [];
        corners.forEach(([u, v], n) => {
          const [s, t] = corners[(n + 1) % 4], a = cells[v * CELLS + u], b = cells[t * CELLS + s];
          if ((a < level) === (b < level)) return;
          const share = (level - a) / (b - a);
          crossed.push(plane(u + share * (s - u)), plane(v + share * (t - v)));
        });
        ends.push(...crossed);
      }
    }
    return ends;
  }

  // Nothing for few models, whose points are seen one by one.
  function of(family) {
    if (family.count < FEWEST) return [];
    const cells = density(family), most = cells.reduce((max, n) => Math.max(max, n), 0);
    return LEVELS.map((share) => lines(cells, share * most));
  }

  function draw(context, { family, toScreen, colours, glides }) {
    if (glides) return;
    context.strokeStyle = deltadex.colours.css(colours.text);
    context.lineWidth = 1;
    family.contours.forEach((ends, n) => {
      context.globalAlpha = 0.16 + 0.1 * n;
      context.beginPath();
      for (let at = 0; at < ends.length; at += 4) {
        context.moveTo(...toScreen(ends[at], ends[at + 1]));
        context.lineTo(...toScreen(ends[at + 2], ends[at + 3]));
      }
      context.stroke();
    });
    context.globalAlpha = 1;
  }

  deltadex.contours = { of, draw };
}
