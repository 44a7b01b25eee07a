"""How smoothly the page's map moves: frames a second while it is zoomed and dragged.

    python benchmarks/frames.py --models 100000 --seconds 5 --rounds 3

Headless Chromium on SwiftShader, which draws on the processor: the weakest "GPU" there is. Each
frame of the browser gives the map one wheel or pointer event. Without adaption every frame draws
all points. Of the rounds the best is told, with the processor time that Chromium's GPU process
spent on a frame, which other programs disturb less than the clock.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "web" / "page"))

from conftest import ARGUMENTS, CHROMIUM
from playwright.sync_api import sync_playwright
from stand_in import MadeUp, served

MOVE = """([how, seconds, adaptive]) => new Promise((done) => {
  const { map } = deltadex, stage = document.getElementById("stage"), times = [];
  map.pace.adaptive = adaptive;
  map.pace.level = 0;
  const { count, script_ms } = map.frames, start = performance.now();
  const at = (now) => ({
    clientX: 700 + 150 * Math.cos(now / 400), clientY: 400 + 150 * Math.sin(now / 400) });
  const deltaY = (now) => (Math.floor((now - start) / 1000) % 2 ? 30 : -30);
  const shared = { bubbles: true, cancelable: true, pointerId: 1 };
  function step(now) {
    times.push(now);
    if (now - start > 1000 * seconds && times.length > 1) { finish(); return; }
    stage.dispatchEvent(how === "zoom"
      ? new WheelEvent("wheel", { ...shared, clientX: 800, clientY: 400, deltaY: deltaY(now) })
      : new PointerEvent("pointermove", { ...shared, ...at(now) }));
    requestAnimationFrame(step);
  }
  function finish() {
    const frames = map.frames.count - count, late = times.slice(1).map((t, i) => t - times[i]);
    done({ frames, took_s: (times.at(-1) - times[0]) / 1000,
      median_ms: late.sort((a, b) => a - b)[late.length >> 1],
      script_ms: (map.frames.script_ms - script_ms) / Math.max(1, frames), level: map.pace.level });
  }
  requestAnimationFrame(step);
})"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One stretch of moving.

    Attributes:
        rate: Frames a second.
        median_ms: From one frame to the next.
        script_ms: Of the page's own in a frame.
        gpu_ms: Processor time of the GPU process in a frame.
        level: Of the page's pace at the end; 0 draws everything.
        load: The machine's load average afterwards.
    """

    rate: float
    median_ms: float
    script_ms: float
    gpu_ms: float
    level: int
    load: float


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--settle", type=float, default=1.0, help="Seconds of rest before a round.")
    args = parser.parse_args()
    family = MadeUp(models=args.models, datasets=tuple(f"d{i}" for i in range(12)))
    with served(family) as address, sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(address)
        page.wait_for_selector("body.ready")
        print(f"{args.models:,} models, {os.cpu_count()} cores, best of {args.rounds}")
        for adaptive in (False, True):
            for how in ("zoom", "pan"):
                rounds = [
                    measure(page, how, args.seconds, adaptive, args.settle)
                    for _ in range(args.rounds)
                ]
                points = "fewer points while it moves" if adaptive else "all points"
                tell(f"{how}, {points}", rounds)
        browser.close()


def measure(page: Any, how: str, seconds: float, adaptive: bool, settle: float) -> Round:
    page.keyboard.press("0")
    page.mouse.move(700, 400)
    if how == "pan":
        page.mouse.down()
    page.wait_for_timeout(1_000 * settle)
    before = gpu_seconds(page)
    found = page.evaluate(MOVE, [how, seconds, adaptive])
    gpu_ms = 1000 * (gpu_seconds(page) - before) / max(1, found["frames"])
    page.mouse.up()
    return Round(
        rate=found["frames"] / found["took_s"],
        median_ms=found["median_ms"],
        script_ms=found["script_ms"],
        gpu_ms=gpu_ms,
        level=found["level"],
        load=os.getloadavg()[0],
    )


def gpu_seconds(page: Any) -> float:
    """Processor time of Chromium's GPU process until now."""
    session = page.context.browser.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    return sum(process["cpuTime"] for process in processes if process["type"] == "GPU")


def tell(name: str, rounds: list[Round]) -> None:
    best = max(rounds, key=lambda one: one.rate)
    print(
        f"{name:33}  {best.rate:5.1f} frames/s  median {best.median_ms:4.0f} ms  "
        f"script {best.script_ms:4.1f} ms  GPU process {best.gpu_ms:5.1f} ms  "
        f"level {best.level}  load {best.load:.1f}"
    )


if __name__ == "__main__":
    main()
