"use strict";
{
  const { byId, state, say, map, area, format } = deltadex;
  const STEP_PX = 6, LEAST_PX = 12, MOVE_PX = 24, SHARE = 6;
  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const stage = byId("stage"), choose = byId("lasso");
  let path = null; // on the screen, while it is drawn
  let box = null; // the same by keys: middle and half sides
  let armed = false;

  const local = (event) => map.view.local(event);
  const cornersOf = ({ x, y, across, down }) =>
    [[x - across, y - down], [x + across, y - down], [x + across, y + down], [x - across, y + down]];
  const drawn = () => path ?? (box && cornersOf(box));

  function arm(on) {
    armed = on;
    stage.classList.toggle("lasso", on);
    choose.setAttribute("aria-pressed", String(on));
  }

  function drop() {
    path = box = null;
    arm(false);
    map.dirty();
  }

  // Keeps an area that is large enough to be meant.
  function take(corners) {
    const [across, down] = [0, 1].map((side) => corners.map((corner) => corner[side]))
      .map((values) => Math.max(...values) - Math.min(...values));
    drop();
    if (across < LEAST_PX && down < LEAST_PX) return;
    deltadex.visitor.open(false);
    const places = corners.map(([left, top]) => map.view.toPlane(left, top));
    state.change({ area: area.write(map.family.document.layout, places), counts: "on", model: "", other: "" });
    map.fitTo(places);
    say(`${format.count(map.seen, "model")} selected`);
  }

  // The pointer

  function begin(event) {
    if (event.button !== 0 || !(event.shiftKey || armed) || !map.family.count) return;
    event.stopImmediatePropagation();
    stage.setPointerCapture(event.pointerId);
    map.hover(-1);
    box = null;
    path = [local(event)];
  }

  function draw(event) {
    if (!path) return;
    event.stopImmediatePropagation();
    const here = local(event), [x, y] = path.at(-1);
    if (Math.hypot(here[0] - x, here[1] - y) >= STEP_PX) path.push(here);
    map.dirty();
  }

  function end(event) {
    if (!path) return;
    event.stopImmediatePropagation();
    if (event.type === "pointerup") take(path);
    else drop();
  }

  // Keys: a rectangle that arrows move and, with Shift, stretch.

  function startBox() {
    const { view, family } = map, at = map.hovered >= 0 ? map.hovered : map.chosen;
    const [x, y] = at >= 0 ? view.toScreen(family.x[at], family.y[at]) : view.middle;
    box = { x, y, across: view.size[0] / SHARE, down: view.size[1] / SHARE };
    arm(true);
    stage.focus({ preventScroll: true });
    map.hover(-1);
    map.dirty();
    say(`Rectangle with ${format.count(within(), "model")}. Arrow keys move it, Shift and arrow keys change its size, Enter takes it, Escape drops it.`);
  }

  function within() {
    const corners = drawn(), { family, modes, view } = map;
    let n = 0;
    for (let i = 0; i < family.count; i++) if (modes?.[i] === 2 && area.holds(corners, ...view.toScreen(family.x[i], family.y[i]))) n++;
    return n;
  }

  function arrow([dx, dy], stretches) {
    if (stretches) {
      box.across = Math.max(LEAST_PX, box.across + dx * MOVE_PX);
      box.down = Math.max(LEAST_PX, box.down - dy * MOVE_PX);
    } else {
      box.x += dx * MOVE_PX;
      box.y += dy * MOVE_PX;
    }
    map.dirty();
    say(format.count(within(), "model"));
  }

  // Whether a key of the map was for the rectangle.
  function pressed(event) {
    if (!box) {
      if (event.key !== "s" || !map.modes) return false;
      startBox();
      return true;
    }
    if (event.key in ARROWS) arrow(ARROWS[event.key], event.shiftKey);
    else if (event.key === "Enter") take(cornersOf(box));
    else if (event.key === "Escape") drop();
    else return false;
    return true;
  }

  // What is being drawn; else the border of what was.
  function paint(context, { toScreen, colours, family }) {
    const corners = drawn() ?? kept(family).map(([x, y]) => toScreen(x, y));
    if (!corners.length) return;
    context.beginPath();
    for (const corner of corners) context.lineTo(...corner);
    context.closePath();
    context.strokeStyle = context.fillStyle = deltadex.colours.css(colours.accent);
    context.lineWidth = 1.5;
    context.globalAlpha = 0.06;
    context.fill();
    context.globalAlpha = 1;
    context.setLineDash(drawn() ? [] : [6, 4]);
    context.stroke();
    context.setLineDash([]);
  }

  // The area of the address, where the map has the layout that it is of.
  function kept(family) {
    if (!state.current.area || !family.count) return [];
    const { layout, corners } = area.read(state.current.area);
    return layout === family.document.layout ? corners : [];
  }

  const shows = () => drawn() !== null || kept(map.family).length > 0;

  function start() {
    stage.addEventListener("pointerdown", begin, true);
    stage.addEventListener("pointermove", draw, true);
    for (const over of ["pointerup", "pointercancel"]) stage.addEventListener(over, end, true);
    choose.onclick = (event) => {
      if (armed) drop();
      else if (event.detail === 0) startBox();
      else arm(true);
    };
  }

  deltadex.lasso = { start, pressed, paint, shows };
}
