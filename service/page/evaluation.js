"use strict";
{
  const { byId, make, button, state, format, load, legend, map, colours, bars, empty } = deltadex;
  const CONFUSED = 30;
  const DATASETS = 60;

  function tiles(found) {
    const { tile } = deltadex.clusters;
    const [low, high] = found.ci95 ?? [null, null];
    const interval = low === null ? found.ci95_reason ?? "" : `95 % interval ${format.percent(low)} to ${format.percent(high)}`;
    const share = (value) => (value === null || value === undefined ? "–" : format.percent(value, 1));
    return make("dl", { class: "tiles" },
      tile(share(found.micro), "Purity", interval), tile(share(found.macro), "By dataset", "the mean of the datasets’ means"),
      tile(share(found.chance), "By chance", "what a random order would get"),
      tile(share(found.nn1), "Nearest one", "shares the dataset"), tile(share(found.map), "MAP", "mean average precision"));
  }

  function purity(found) {
    const list = Object.entries(found.by_dataset).sort(([, a], [, b]) => b.purity - a.purity || b.n - a.n);
    const chance = found.chance ?? 0;
    const row = ([name, { n, purity: value }]) => {
      const track = bars.bar(value, [0, 1], colours.css(colours.rgbOf(map.colours, legend.datasetItem(name))));
      track.append(make("span", { class: "chance", css: { left: `${100 * chance}%` } }));
      return make("tr", {}, make("th", { scope: "row" }, button({ class: "link", title: "Show on the map",
        onclick: () => state.change({ view: "map", dataset: name }) }, make("span", { class: "name" }, name))),
      make("td", { class: "number soft" }, format.whole(n)), make("td", { class: "track" }, track),
      make("td", { class: "number" }, format.percent(value)));
    };
    return make("section", { class: "block" }, make("h3", {}, "Purity by dataset"),
      make("p", { class: "soft" }, `Of a model’s nearest, as many as it has siblings: the share that has its dataset. The line is chance, ${format.percent(chance)}.`),
      make("table", { class: "bars wide" }, make("thead", {}, make("tr", {}, ["Dataset", "Models", "", "Purity"].map((text) =>
        (text ? make("th", { scope: "col" }, text) : make("td", {}))))),
      make("tbody", {}, list.slice(0, DATASETS).map(row)), axis()),
      list.length > DATASETS ? make("p", { class: "soft small" }, `The first ${DATASETS} of ${list.length}.`) : null);
  }

  const axis = () => make("tfoot", { "aria-hidden": "true" }, make("tr", {}, make("td", {}), make("td", {}),
    make("td", {}, make("div", { class: "axis soft small" }, [0, 0.5, 1].map((share) => make("span", {}, format.percent(share))))), make("td", {})));

  // The datasets with most models, as rows and columns, and a column for everything else.
  function smaller({ datasets, counts }) {
    const size = counts.map((row) => row.reduce((sum, n) => sum + n, 0));
    const kept = datasets.map((_, i) => i).sort((a, b) => size[b] - size[a]).slice(0, CONFUSED).sort((a, b) => a - b);
    const cut = kept.length < datasets.length;
    const rest = (row) => row.slice(0, datasets.length).reduce((sum, n, i) => sum + (kept.includes(i) ? 0 : n), 0);
    return { cut, names: kept.map((i) => datasets[i]), size: kept.map((i) => size[i]), rows: kept.map((i) => [
      ...kept.map((j) => counts[i][j]), ...(cut ? [rest(counts[i])] : []), counts[i][datasets.length] ?? 0]) };
  }

  function confusion(found) {
    if (!found.confusion?.datasets?.length) return null;
    const { names, rows, size, cut } = smaller(found.confusion);
    const strangers = rows.some((row) => row.at(-1));
    const columns = [...names, ...(cut ? ["other datasets"] : []), ...(strangers ? ["unlabelled"] : [])];
    const cell = (n, i, j) => make("td", { css: n ? colours.shade(map.colours, n / size[i]) : {}, class: n ? null : "nothing",
      title: `${names[i]}: ${n} of ${size[i]} nearest to ${columns[j]}` }, n ? format.whole(n) : "·");
    return make("section", { class: "block" }, make("h3", {}, "What is taken for what"),
      make("p", { class: "soft" }, `Rows: a model’s dataset. Columns: the dataset of its nearest model.${cut ? ` The ${CONFUSED} largest datasets.` : ""}`),
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Confusion of datasets" },
        make("table", { class: "heat confusion" },
          make("thead", {}, make("tr", {}, make("td", {}), columns.map((name) => make("th", { scope: "col" }, make("span", {}, name))))),
          make("tbody", {}, rows.map((row, i) => make("tr", {}, make("th", { scope: "row" }, names[i]), row.slice(0, columns.length).map((n, j) => cell(n, i, j))))))));
  }

  // Too few labels to score is no failure; where that is known, the service is not asked.
  async function scores(asked, how) {
    const { labelled, datasets } = deltadex.family() ?? {};
    if (labelled <= datasets) return {};
    try {
      return await deltadex.source.evaluation({ ...deltadex.withRecipe(), exclude: asked.exclude }, how);
    } catch (error) {
      if (error.status !== 422) throw error;
      return { told: error.message };
    }
  }

  let shown = null;

  function show(box, found) {
    shown = found;
    if (!Object.keys(found.by_dataset ?? {}).length) {
      box.replaceChildren(empty("Nothing to score", found.told ?? "Scores need two labelled models of one dataset. A labels file names datasets: deltadex index BASE FOLDER --labels labels.csv"));
      return;
    }
    const sampled = found.sampled_queries ? `, a sample of ${format.whole(found.labelled - found.singletons - found.dropped)}` : "";
    const chance = typeof found.p_value === "number" ? ` By chance as good or better: p = ${found.p_value.toFixed(3)}.` : "";
    box.replaceChildren(...[tiles(found),
      make("p", { class: "soft" }, `${format.count(found.queries ?? found.labelled, "query", "queries")}${sampled}, among ${format.count(found.models, "model")}, ${format.count(found.datasets, "dataset")}.${chance}`),
      purity(found), confusion(found)].filter(Boolean));
  }

  function update(asked) {
    const box = byId("evaluation-body");
    byId("exclude").value = asked.exclude;
    load(box, (how) => scores(asked, how), (found) => show(box, found),
      "Scoring each model’s neighbours…");
  }

  function start() {
    byId("exclude").onchange = (event) => state.change({ exclude: event.target.value });
  }

  const csv = () => ({ columns: ["dataset", "models", "purity"],
    rows: Object.entries(shown?.by_dataset ?? {}).map(([name, { n, purity: value }]) => [name, n, value]) });

  deltadex.evaluation = { start, update, csv };
}
