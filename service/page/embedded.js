"use strict";
{
  const { Problem } = deltadex;

  // The same answers as the service's, from the document inside a map file.
  deltadex.embedded = (data) => {
    const { map, neighbours = [], verdicts = [], calibration = null, clusters = null, nearest_data = [] } = data;
    const place = new Map(map.models.map((id, i) => [id, i]));
    const named = (column, i) => {
      const at = map[column]?.[i] ?? null;
      return at === null ? null : map[`${column}s`][at];
    };
    const row = (i) => ({
      model: map.models[i], status: "indexed", dataset: named("dataset", i),
      author: named("author", i), kind: named("kind", i), downloads: map.downloads[i],
    });
    const rows = map.models.map((_, i) => i);

    const passes = (asked) => (i) => {
      const model = row(i);
      const text = asked.q?.toLowerCase();
      return (!asked.dataset || model.dataset === asked.dataset)
        && (!asked.author || model.author === asked.author)
        && (!asked.kind || model.kind === asked.kind)
        && (!asked.status || model.status === asked.status)
        && (!asked.min || (model.downloads ?? -1) >= Number(asked.min))
        && (!text || [model.model, model.dataset, model.author]
          .some((name) => name?.toLowerCase().includes(text)));
    };

    function models({ sort = "model", order = "asc", limit = 50, offset = 0, ...asked }) {
      const turn = order === "desc" ? -1 : 1;
      const found = rows.filter(passes(asked)).map(row).sort((a, b) => {
        const [x, y] = [a[sort] ?? null, b[sort] ?? null];
        if (x === null || y === null) return (x === null) - (y === null);
        return x < y ? -turn : x > y ? turn : 0;
      });
      return { models: found.slice(offset, offset + limit), total: found.length, limit, offset };
    }

    function found(id) {
      if (!place.has(id)) throw new Problem(404, { detail: `no model ${id} on this map` });
      return place.get(id);
    }

    function similar({ model, k = 10 }) {
      const near = (neighbours[found(model)] ?? []).slice(0, k);
      return {
        compared: map.models.length - 1, calibration,
        neighbours: near.map(([i, z, probability, fdr, cosine, verdict], n) =>
          ({ rank: n + 1, z, probability, fdr, cosine, verdict: verdicts[verdict], ...row(i) })),
      };
    }

    const nearestData = ({ model }) => ({ data: (nearest_data[found(model)] ?? []).map(
      ([name, z, fdr, verdict], n) => ({ rank: n + 1, data: name, z, fdr, verdict: verdicts[verdict] })) });

    return {
      can: { explain: false, details: false, evaluate: false, list: true,
        search: neighbours.length > 0, cluster: clusters !== null },
      title: data.title, subtitle: data.subtitle,
      families: async () => ({ families: [{ base: map.base, models: map.models.length,
        indexed: map.models.length, recipes: [] }], umap: false }),
      map: async () => map,
      clusters: async () => clusters,
      failures: async () => ({ failures: [] }),
      models: async (asked) => models(asked),
      each: async (asked, { some }) => some(models({ ...asked, limit: Infinity }).models),
      model: async (id) => ({ ...row(found(id)), words: named("word", found(id))?.split(", ") ?? [] }),
      similar: async (asked) => similar(asked),
      nearestData: async (asked) => nearestData(asked),
    };
  };
}
