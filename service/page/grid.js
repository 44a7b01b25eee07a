"use strict";
{
  const PER_CELL = 2;

  // Points in square cells of their plane, so that the nearest is found without asking all.
  class Grid {
    constructor(x, y) {
      this.x = x;
      this.y = y;
      this.side = Math.max(1, Math.min(512, Math.ceil(Math.sqrt(x.length / PER_CELL))));
      const cells = this.side * this.side;
      this.start = new Uint32Array(cells + 1);
      const cell = Uint32Array.from(x, (_, i) => this.row(y[i]) * this.side + this.row(x[i]));
      for (const c of cell) this.start[c + 1]++;
      for (let c = 0; c < cells; c++) this.start[c + 1] += this.start[c];
      const next = this.start.slice(0, cells);
      this.order = new Uint32Array(x.length);
      cell.forEach((c, i) => { this.order[next[c]++] = i; });
    }

    // The plane is −1 … 1 both ways.
    row(value) {
      return Math.max(0, Math.min(this.side - 1, Math.floor(((value + 1) / 2) * this.side)));
    }

    // Whether one that `accepts` lies within these sides.
    any(left, right, low, high, accepts) {
      const [first, last] = [this.row(left), this.row(right)];
      for (let r = this.row(low); r <= this.row(high); r++) {
        const end = this.start[r * this.side + last + 1];
        for (let n = this.start[r * this.side + first]; n < end; n++) {
          const i = this.order[n];
          if (this.x[i] >= left && this.x[i] <= right && this.y[i] >= low && this.y[i] <= high && accepts(i)) return true;
        }
      }
      return false;
    }

    // The nearest that `accepts`, within `reach`; −1 where none is.
    nearest(x, y, reach, accepts) {
      let best = -1, least = reach * reach;
      const [left, right] = [this.row(x - reach), this.row(x + reach)];
      for (let r = this.row(y - reach); r <= this.row(y + reach); r++) {
        const from = this.start[r * this.side + left], to = this.start[r * this.side + right + 1];
        for (let n = from; n < to; n++) {
          const i = this.order[n];
          const distance = (this.x[i] - x) ** 2 + (this.y[i] - y) ** 2;
          if (distance <= least && accepts(i)) { best = i; least = distance; }
        }
      }
      return best;
    }
  }

  deltadex.Grid = Grid;
}
