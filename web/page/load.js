"use strict";
{
  const { make, button } = deltadex;
  const PATIENCE_MS = 150;
  const running = new WeakMap();

  const waiting = (words, ...more) =>
    make("div", { class: "notice", role: "status" },
      make("span", { class: "spinner", "aria-hidden": "true" }), make("p", {}, words), more);

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
    const wait = (...shown) => { if (!control.signal.aborted) box.replaceChildren(waiting(...shown)); };
    const late = setTimeout(() => wait(words), PATIENCE_MS);
    const stop = async (job) => {
      control.abort();
      await deltadex.source.cancel(job);
      box.replaceChildren(empty("Stopped", "It is not computed any more.",
        button({ class: "quiet", onclick: () => load(box, ask, show, words) }, "Start again")));
    };
    try {
      const found = await ask({
        signal: control.signal,
        waiting: (job) => {
          clearTimeout(late);
          wait(`Computing this for the first time: ${deltadex.progress(job)}.`,
            job.job ? button({ class: "quiet", onclick: () => stop(job.job) }, "Stop") : []);
        },
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
