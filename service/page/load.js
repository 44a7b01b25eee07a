"use strict";
{
  const { make, button, format } = deltadex;
  const PATIENCE_MS = 80;
  const running = new WeakMap();

  // How far the service is: percent, place in the queue, seconds.
  function stage({ percent, ahead, elapsed_s: elapsed, busy }) {
    if (busy) return "The service is busy; asking again.";
    const words = ahead ? [`${format.count(ahead, "job")} before it`] : percent ? [`${percent} % done`] : [];
    if (elapsed >= 1) words.push(`${Math.round(elapsed)} s`);
    return words.join(" · ");
  }

  const stopper = (found) => (found.stop ? button({ class: "quiet", onclick: found.stop }, "Stop") : null);

  const waiting = (words, found = {}) =>
    make("div", { class: "notice", role: "status" },
      make("span", { class: "spinner", "aria-hidden": "true" }), make("p", {}, words),
      make("p", { class: "soft small number" }, stage(found)), stopper(found));

  function failed(error, again) {
    return make("div", { class: "notice bad", role: "alert" },
      make("p", { class: "notice-title" }, error.code === "stopped" ? "Stopped" : error.status === 404 ? "Nothing here" : "That did not work"),
      make("p", {}, error.message),
      button({ class: "quiet", onclick: again }, error.code === "stopped" ? "Start again" : "Try again"));
  }

  const empty = (title, words, ...more) =>
    make("div", { class: "notice" }, make("p", { class: "notice-title" }, title), make("p", {}, words), more);

  // Fills a box with what is asked for: waiting, failed and shown, whichever is the latest ask. What
  // is shown stays, paler, until there is something newer.
  async function load(box, ask, show, words = "Loading…") {
    running.get(box)?.abort();
    const control = new AbortController();
    running.set(box, control);
    box.setAttribute("aria-busy", "true");
    const wait = (found) => { if (!control.signal.aborted) box.replaceChildren(waiting(words, found)); };
    const late = box.querySelector(":scope > :not(.notice)") ? 0 : setTimeout(wait, PATIENCE_MS);
    try {
      const found = await ask({
        signal: control.signal,
        waiting: (found) => { clearTimeout(late); wait(found); },
      });
      clearTimeout(late);
      if (!control.signal.aborted) show(found);
    } catch (error) {
      clearTimeout(late);
      if (control.signal.aborted) return;
      if (!(error instanceof deltadex.Problem)) throw error;
      box.replaceChildren(failed(error, () => load(box, ask, show, words)));
    } finally {
      clearTimeout(late);
      if (running.get(box) === control) box.removeAttribute("aria-busy");
    }
  }

  const cancel = (box) => { running.get(box)?.abort(); running.delete(box); box.removeAttribute("aria-busy"); };

  Object.assign(deltadex, { load, cancel, empty, failed, stage, stopper });
}
