"use strict";
{
  const EDGE = 44;
  const FLIGHT_MS = 650;
  const TAP_PX = 5;
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const ease = (t) => (t < 0.5 ? 4 * t ** 3 : 1 - (2 - 2 * t) ** 3 / 2);

  // The camera over a plane of −1 … 1, and the fingers and wheels that move it.
  class View {
    constructor(stage, { changed, tapped, hovered }) {
      Object.assign(this, { stage, changed, tapped, hovered });
      this.camera = { x: 0, y: 0, zoom: 1 };
      this.span = [1, 1];
      this.inset = { left: 0, right: 0, top: 0, bottom: 0 };
      this.size = [1, 1];
      this.furthest = 64;
      this.pointers = new Map();
      this.flight = null;
      this.listen();
    }

    // How many pixels one unit of the plane is, with everything in sight.
    measure() {
      const { left, right, top, bottom } = this.inset, [width, height] = this.size;
      const across = Math.max(60, width - left - right - 2 * EDGE);
      const down = Math.max(60, height - top - bottom - 2 * EDGE);
      this.unit = Math.min(across / (2 * this.span[0]), down / (2 * this.span[1]));
      this.middle = [left + (width - left - right) / 2, top + (height - top - bottom) / 2];
    }

    toScreen(x, y) {
      const scale = this.unit * this.camera.zoom;
      return [this.middle[0] + (x - this.camera.x) * scale, this.middle[1] - (y - this.camera.y) * scale];
    }

    toPlane(left, top) {
      const scale = this.unit * this.camera.zoom;
      return [this.camera.x + (left - this.middle[0]) / scale, this.camera.y - (top - this.middle[1]) / scale];
    }

    set(camera) {
      const within = (value) => Math.max(-2, Math.min(2, value));
      this.camera = { x: within(camera.x), y: within(camera.y),
        zoom: Math.max(0.5, Math.min(this.furthest, camera.zoom)) };
      this.changed();
    }

    zoomAt(factor, left, top) {
      this.byHand = true;
      const [x, y] = this.toPlane(left, top);
      const zoom = Math.max(0.5, Math.min(this.furthest, this.camera.zoom * factor));
      const scale = this.unit * zoom;
      this.flight = null;
      this.set({ x: x - (left - this.middle[0]) / scale, y: y + (top - this.middle[1]) / scale, zoom });
    }

    zoomBy(factor) {
      this.byHand = true;
      this.flyTo({ ...this.camera, zoom: this.camera.zoom * factor }, 180);
    }

    flyTo(camera, duration = FLIGHT_MS) {
      if (deltadex.still()) { this.flight = null; this.set(camera); return; }
      this.flight = { from: { ...this.camera }, to: { ...camera }, start: performance.now(), duration };
      this.changed();
    }

    // A frame of the flight; whether there is another one.
    step(now) {
      if (!this.flight) return false;
      const { from, to, start, duration } = this.flight;
      const t = Math.min(1, Math.max(0, (now - start) / duration)), e = ease(t);
      const along = (a, b) => a + (b - a) * e;
      if (t === 1) this.flight = null;
      this.set({ x: along(from.x, to.x), y: along(from.y, to.y), zoom: from.zoom * (to.zoom / from.zoom) ** e });
      return t < 1;
    }

    listen() {
      const { stage } = this;
      stage.addEventListener("pointerdown", (event) => this.down(event));
      stage.addEventListener("pointermove", (event) => this.move(event));
      for (const end of ["pointerup", "pointercancel"]) {
        stage.addEventListener(end, (event) => this.up(event));
      }
      stage.addEventListener("pointerleave", () => this.hovered(null));
      stage.addEventListener("dblclick", (event) => this.zoomAt(2, ...this.local(event)));
      stage.addEventListener("wheel", (event) => {
        event.preventDefault();
        const lines = event.deltaMode === 1 ? 16 : 1;
        this.zoomAt(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0018)), ...this.local(event));
      }, { passive: false });
    }

    local(event) {
      return [event.clientX - this.corner[0], event.clientY - this.corner[1]];
    }

    down(event) {
      if (event.button !== 0) return;
      this.stage.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, this.local(event));
      this.travelled = this.pointers.size > 1 ? Infinity : 0;
      this.flight = null;
    }

    move(event) {
      const here = this.local(event), before = this.pointers.get(event.pointerId);
      if (!before) { this.hovered(here); return; }
      const others = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      this.pointers.set(event.pointerId, here);
      if (others.length === 1) { this.pinch(others[0], before, here); return; }
      this.travelled += Math.hypot(here[0] - before[0], here[1] - before[1]);
      if (this.travelled < TAP_PX) return;
      this.stage.classList.add("dragging");
      this.byHand = true;
      this.hovered(null);
      const scale = this.unit * this.camera.zoom;
      this.set({ ...this.camera, x: this.camera.x - (here[0] - before[0]) / scale,
        y: this.camera.y + (here[1] - before[1]) / scale });
    }

    pinch(fixed, before, here) {
      const span = (a) => Math.max(10, Math.hypot(a[0] - fixed[0], a[1] - fixed[1]));
      this.zoomAt(span(here) / span(before), (fixed[0] + here[0]) / 2, (fixed[1] + here[1]) / 2);
    }

    up(event) {
      const wasDown = this.pointers.delete(event.pointerId);
      if (this.pointers.size) return;
      this.stage.classList.remove("dragging");
      if (wasDown && event.type === "pointerup" && this.travelled < TAP_PX) this.tapped(this.local(event));
    }
  }

  Object.assign(deltadex, { View, ease, still: () => still.matches || document.hidden });
}
