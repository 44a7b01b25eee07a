"use strict";
{
  const SLOW_MS = 20, WINDOW = 8, FEWEST = 3, REST_MS = 120, FORGET_MS = 30_000, GAIN = 1.3, IN_VAIN = 5;
  const ASIDE = 0.27; // what a point out of sight costs, of one in sight
  // From everything down to what a processor alone draws in time (benchmarks/frames.py).
  const LEVELS = [
    { points: Infinity, ratio: Infinity, names: true },
    { points: 30_000, ratio: 1, names: true },
    { points: 8_000, ratio: 0.75, names: false },
    { points: 2_500, ratio: 0.5, names: false },
  ];

  // How much to draw: all of it at rest, and less while the map moves where frames come late.
  class Pace {
    constructor() {
      Object.assign(this, { adaptive: true, level: 0, moving: false, painted: false, vain: 0 });
      this.moved_at = this.late_at = -Infinity;
      this.forget();
    }

    forget() {
      this.frames = this.spent = this.worst = 0;
    }

    get now() {
      return LEVELS[this.moving ? this.level : 0];
    }

    // The share of the points to draw, where `seen` of them are in sight.
    share(count, seen) {
      return Math.min(1, this.now.points / (count * (ASIDE + (1 - ASIDE) * seen)));
    }

    moved() {
      this.moved_at = performance.now();
      if (this.moving) return;
      this.moving = true;
      this.painted = false;
      if (this.adaptive && this.level && this.moved_at - this.late_at > FORGET_MS) this.level--;
    }

    // Takes note of a frame of the browser; whether the map rests now and lacks something.
    tick(at) {
      if (!this.moving) return false;
      if (this.painted) {
        if (this.adaptive) this.judge(at - this.ticked_at, at);
      } else if (at - this.moved_at > REST_MS) {
        this.moving = false;
        return this.level > 0;
      }
      this.ticked_at = at;
      this.painted = false;
      return false;
    }

    // Late are the frames of a window that take too long together, the longest aside.
    judge(took, at) {
      this.frames++;
      this.spent += took;
      this.worst = Math.max(this.worst, took);
      const spent = this.spent - this.worst;
      if (this.frames >= FEWEST && spent > (WINDOW - 1) * SLOW_MS) {
        this.late_at = at;
        this.step(spent / (this.frames - 1));
        this.forget();
      } else if (this.frames === WINDOW) this.forget();
    }

    // Where the screen itself is slow, drawing less gains nothing: window after window.
    step(mean) {
      const last = LEVELS.length - 1;
      if (this.level === 0) this.full_ms = mean;
      if (this.level < last) {
        this.level = Math.min(last, this.level + (mean > 3 * SLOW_MS ? 2 : 1));
        this.vain = 0;
      } else {
        this.vain = mean * GAIN > this.full_ms ? this.vain + 1 : 0;
        if (this.vain === IN_VAIN) Object.assign(this, { level: 0, adaptive: false });
      }
    }
  }

  deltadex.Pace = Pace;
}
