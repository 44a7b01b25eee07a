"use strict";
{
  const { make, button } = deltadex;
  const PATIENCE_MS = 150;
  const running = new WeakMap();

  const waiting = (words) =>
    make("div", { class: "notice", role: "status" },
      make("span", { class: "spinner", "aria-hidden": "true" }), make("p", {}, words));

  function failed(error, again) {
    return make("div", { class: "notice bad", role: "alert" },
      make("p", { class: "notice-title" }, error.status === 404 ? "Nothing here" : "That did not work"),
      make("p", {}, error.message),
      button({ class: "quiet", onclick: again }, "Try again"));
  }

  const empty = (title, words, ...more) =>
    make("div", { class: "notice" }, make("p", { class: "notice-title" }, title), make("p", {}, words), more);

  // Fills a box with what is asked for: waiting, failed and shown, whichever is the latest ask.
  async function load(box, ask, show, words = "Loading…") {
    running.get(box)?.abort();
    const control = new AbortController();
    running.set(box, control);
    box.setAttribute("aria-busy", "true");
    const wait = (text) => { if (!control.signal.aborted) box.replaceChildren(waiting(text)); };
    const late = setTimeout(() => wait(words), PATIENCE_MS);
    try {
      const found = await ask({
        signal: control.signal,
        waiting: () => { clearTimeout(late); wait("Computing this for the first time. It will be here shortly."); },
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

  const cancel = (box) => { running.get(box)?.abort(); running.delete(box); };

  Object.assign(deltadex, { load, cancel, empty, waiting, failed });
}
