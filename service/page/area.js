"use strict";
{
  const MOST = 80; // corners that an address keeps
  const STRAIGHT = 0.003; // of the plane, which is 2 wide

  // An area of a layout as the address has it: its name, then corners in thousandths of the plane.
  function read(text) {
    const [layout, ...corners] = text.split(":");
    return { layout, corners: corners.map((corner) => corner.split(",").map((value) => Number(value) / 1000)) };
  }

  function write(layout, corners) {
    const bends = bent(corners), step = Math.ceil(bends.length / MOST);
    return [layout, ...bends.filter((_, n) => n % step === 0).map((corner) => corner.map((value) => Math.round(1000 * value)).join(","))].join(":");
  }

  // Corners without those on the way from one to the next.
  function bent(corners) {
    const kept = [corners[0]];
    for (let n = 1; n < corners.length; n++) {
      const [[x, y], [u, v], [s, t]] = [kept.at(-1), corners[n], corners[(n + 1) % corners.length]];
      const way = Math.hypot(s - x, t - y) || 1;
      if (Math.abs((s - x) * (v - y) - (t - y) * (u - x)) / way > STRAIGHT) kept.push([u, v]);
    }
    return kept;
  }

  // Whether a place lies within: a ray from it crosses the border an odd number of times.
  function holds(corners, x, y) {
    let within = false;
    for (let n = 0, before = corners.length - 1; n < corners.length; before = n++) {
      const [u, v] = corners[n], [s, t] = corners[before];
      if (v > y !== t > y && x < ((s - u) * (y - v)) / (t - v) + u) within = !within;
    }
    return within;
  }

  deltadex.area = { read, write, holds };
}
