"use strict";
{
  const LONGEST_WAIT_S = 10;
  const PAGE = 500;

  class Problem extends Error {
    constructor(status, document) {
      super(document.detail || document.title || `the service answered ${status}`);
      this.status = status;
      this.code = document.code ?? "";
    }
  }

  const PATIENCE = 30; // asks of a service that is busy

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

  // Asks again while the service computes; `waiting` hears of it.
  async function get(path, params = {}, { signal, waiting } = {}) {
    for (let busy = 0; ;) {
      let answer;
      try {
        answer = await fetch(address(path, params), { signal, headers: { Accept: "application/json" } });
      } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new Problem(0, { detail: "The service does not answer. Is it still running?" });
      }
      const document = await answer.json().catch(() => ({}));
      if (answer.status === 503 && answer.headers.has("Retry-After") && busy++ < PATIENCE) {
        await pause(Math.min(LONGEST_WAIT_S, Number(answer.headers.get("Retry-After")) || 1), signal);
        continue;
      }
      if (answer.status !== 202) {
        if (!answer.ok) throw new Problem(answer.status, document);
        return document;
      }
      waiting?.(document);
      await pause(Math.min(LONGEST_WAIT_S, Math.max(0.2, document.retry_after_s ?? 1)), signal);
    }
  }

  const kept = new Map();
  function once(path, params, how) {
    const key = address(path, params);
    if (!kept.has(key)) {
      const control = new AbortController(), one = { control, job: null };
      const waiting = (document) => { one.job = document.job; how?.waiting?.(document); };
      one.asked = get(path, params, { signal: control.signal, waiting });
      kept.set(key, one);
      one.asked.then((document) => document.computing && kept.delete(key), () => kept.delete(key));
    }
    return kept.get(key).asked;
  }

  // Nobody asks for it any more: asking would begin it again.
  function cancel(job) {
    for (const one of kept.values()) if (one.job === job) one.control.abort();
    return fetch(address(`jobs/${encodeURIComponent(job)}`, {}), { method: "DELETE" });
  }

  // Every model that passes, page by page; `some` hears of each page.
  async function ids(params, { signal, some }) {
    for (let offset = 0, total = 1; offset < total; offset += PAGE) {
      const page = await get("models", { ...params, limit: PAGE, offset }, { signal });
      total = page.total;
      some(page.models.map((model) => model.model), total);
    }
  }

  const modelPath = (id) => `models/${id.split("/").map(encodeURIComponent).join("/")}`;

  // How far a job is: `12 %, 34 s`, or `2 before it`.
  deltadex.progress = ({ percent, ahead, elapsed_s }) => [
    ahead ? `${ahead} before it` : percent ? `${percent}\u00a0%` : "", elapsed_s >= 1 ? `${Math.round(elapsed_s)}\u00a0s` : "",
  ].filter(Boolean).join(", ") || "at work";

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
    model: (id, params, how) => get(modelPath(id), params, how),
    cancel,
    similar: (params, how) => get("similar", params, how),
    nearestData: (params, how) => get("nearest-data", params, how),
    explain: (params, how) => get("explain", params, how),
    trace: (id, params, how) => get(`${modelPath(id)}/trace`, params, how),
    ids,
  });
}
