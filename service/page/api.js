"use strict";
{
  const LONGEST_WAIT_S = 10;
  const AGAIN_S = 3;
  const MOST_BUSY = 6; // answers in a row that the service is busy
  const PAGE = 500;

  class Problem extends Error {
    constructor(status, document) {
      super(document.detail || document.title || `the service answered ${status}`);
      this.status = status;
      this.code = document.code ?? "";
    }
  }

  const pause = (seconds, signal) => new Promise((done, fail) => {
    const timer = setTimeout(done, seconds * 1000);
    signal?.addEventListener("abort", () => { clearTimeout(timer); fail(signal.reason); });
  });

  function address(path, params) {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(params)) {
      if (value !== "" && value !== undefined && value !== null) query.set(name, value);
    }
    return `api/v1/${path}${query.size ? `?${query}` : ""}`;
  }

  const stop = (job) => fetch(address(`jobs/${job}`, {}), { method: "DELETE" }).catch(() => null);

  // Asks again while the service computes; `waiting` hears how far it is, and how to stop it.
  async function get(path, params = {}, { signal, waiting } = {}, sent = {}) {
    let busy = 0, polled = false, at = address(path, params), stopped = null;
    const stopping = new Promise((done) => { stopped = done; });
    for (;;) {
      let answer, document = {};
      try {
        answer = await fetch(at, { signal, headers: { Accept: "application/json" }, ...sent });
        document = await answer.json().catch(() => ({}));
      } catch (error) {
        if (error.name === "AbortError") throw error;
        if (!polled) throw new Problem(0, { detail: "The service does not answer. Is it still running?" });
      }
      const again = answer === undefined || (answer.status === 503 && document.code === "busy" && ++busy < MOST_BUSY);
      if (!again && answer.status !== 202) {
        if (!answer.ok) throw new Problem(answer.status, document);
        return document;
      }
      const { job } = document;
      polled ||= answer?.status === 202;
      if (!again) busy = 0;
      waiting?.({ ...document, busy: again, stop: job ? () => stopped(true) : null });
      if (sent.method && job) [at, sent] = [address(`jobs/${job}`, {}), {}];
      const seconds = again ? Number(answer?.headers.get("Retry-After") ?? AGAIN_S) : document.retry_after_s ?? 1;
      if (await Promise.race([stopping, pause(Math.min(LONGEST_WAIT_S, Math.max(0.2, seconds)), signal)])) {
        const goesOn = (await stop(job))?.status === 409;
        throw new Problem(0, { code: "stopped", detail: goesOn
          ? "The service has begun it and goes on; the page no longer waits for the answer." : "The service no longer computes this." });
      }
    }
  }

  const kept = new Map();
  function once(path, params, how) {
    const key = address(path, params);
    if (!kept.has(key)) {
      const listeners = new Set();
      const answer = get(path, params, { waiting: (found) => { for (const listener of listeners) listener(found); } });
      kept.set(key, { answer, listeners });
      answer.then((document) => document.computing && kept.delete(key), () => kept.delete(key));
    }
    const { answer, listeners } = kept.get(key);
    if (how?.waiting) listeners.add(how.waiting);
    return answer;
  }

  // Every model that passes, page by page; `some` hears of each page.
  async function each(params, { signal, some }) {
    for (let offset = 0, total = 1; offset < total; offset += PAGE) {
      const page = await get("models", { ...params, limit: PAGE, offset }, { signal });
      total = page.total;
      some(page.models);
    }
  }

  // A file is asked about in the background, so that it says how far it is.
  const post = (body) => ({ method: "POST", body, headers: { Accept: "application/json", Prefer: "wait=1" } });

  const modelPath = (id) => `models/${id.split("/").map(encodeURIComponent).join("/").replace(/\/trace$/, "%2Ftrace")}`;

  deltadex.Problem = Problem;
  deltadex.service = () => ({
    can: { search: true, explain: true, details: true, evaluate: true, cluster: true, list: true, lineage: true },
    families: (how) => get("families", {}, how),
    map: (params, how) => once("map", params, how),
    clusters: (params, how) => once("clusters", params, how),
    evaluation: (params, how) => once("evaluation", params, how),
    lineage: (base, how) => once(`families/${base.split("/").map(encodeURIComponent).join("/")}/lineage`, {}, how),
    failures: (params, how) => get("failures", params, how),
    models: (params, how) => get("models", params, how),
    facets: (params, how) => get("facets", params, how),
    model: (id, params, how) => get(modelPath(id), params, how),
    search: (params, how) => get("search", params, how),
    similar: (params, how) => get("similar", params, how),
    nearestData: (params, how) => get("nearest-data", params, how),
    explain: (params, how) => get("explain", params, how),
    near: (form, how) => get("similar/adapter", {}, how, post(form)),
    trainedOn: (form, how) => get("trained-on", {}, how, post(form)),
    trace: (id, params, how) => get(`${modelPath(id)}/trace`, params, how),
    each,
  });
}
