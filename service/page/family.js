"use strict";
{
  const { state } = deltadex;
  const SAMPLE = 500;

  // The plane: −1 … 1 along the longer side of the family, centred.
  function plane(xs, ys) {
    let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
    for (let i = 0; i < xs.length; i++) {
      left = Math.min(left, xs[i]); right = Math.max(right, xs[i]);
      low = Math.min(low, ys[i]); high = Math.max(high, ys[i]);
    }
    if (!xs.length) [left, right, low, high] = [-1, 1, -1, 1];
    const half = Math.max(right - left, high - low) / 2 || 1;
    const across = (x) => (x - (left + right) / 2) / half, up = (y) => (y - (low + high) / 2) / half;
    return {
      x: Float64Array.from(xs, across),
      y: Float64Array.from(ys, up),
      across, up,
      span: [Math.max(0.05, (right - left) / 2 / half), Math.max(0.05, (high - low) / 2 / half)],
    };
  }

  function distinct(names) {
    const seen = new Map();
    return names.map((name) => {
      const n = (seen.get(name) ?? 0) + 1;
      seen.set(name, n);
      return n === 1 ? name : `${name} (${n})`;
    });
  }

  // 0 … n − 1 in an order by dice that fall alike each time (the generator of Numerical Recipes).
  function shuffled(n) {
    const order = Uint32Array.from({ length: n }, (_, i) => i);
    let dice = 1;
    for (let i = n - 1; i > 0; i--) {
      dice = (Math.imul(dice, 1664525) + 1013904223) >>> 0;
      const j = Math.floor((dice / 2 ** 32) * (i + 1));
      [order[i], order[j]] = [order[j], order[i]];
    }
    return order;
  }

  // The models that have a place, as columns, with what the page asks of them.
  class Family {
    constructor(document) {
      this.document = document;
      this.count = document.models.length;
      this.place = new Map(document.models.map((id, i) => [id, i]));
      const { across, up, ...placed } = plane(document.x, document.y);
      Object.assign(this, placed);
      this.settled = [this.x.slice(), this.y.slice()]; // while models move, where to
      this.stars = (document.data ?? []).map((data) => ({
        ...data, x: across(data.x), y: up(data.y), standsOut: data.verdict !== "no model stands out",
        label: deltadex.words.clipped(data.name),
      }));
      this.grid = new deltadex.Grid(this.x, this.y);
      const full = document.kinds.indexOf("full");
      this.hollow = Uint8Array.from(document.kind, (kind) => (kind === full ? 0 : 1));
      this.prefix = deltadex.words.commonPrefix(document.models);
      this.stacks = this.copies();
      this.contours = deltadex.contours.of(this);
      this.rank = this.ranks();
      this.clusters = null;
      this.where = null; // a Uint8Array while a free condition is on
    }

    // What there is until the map comes.
    static none() {
      const columns = ["models", "x", "y", "downloads", ...["dataset", "author", "kind", "month"].flatMap((name) => [name, `${name}s`])];
      return new Family({ base: "", ...Object.fromEntries(columns.map((name) => [name, []])) });
    }

    // Where several models have one place, which they have as copies: the first of them, and all.
    copies() {
      const at = new Map(), stacks = new Map();
      for (let i = 0; i < this.count; i++) {
        const key = `${this.x[i]} ${this.y[i]}`;
        at.has(key) ? at.get(key).push(i) : at.set(key, [i]);
      }
      for (const models of at.values()) if (models.length > 1) for (const i of models) stacks.set(i, models);
      return stacks;
    }

    // Whether both have the same models, at other places perhaps.
    isOf(other) {
      return this.count > 0 && this.count === other.count && this.document.models.every((id, i) => id === other.id(i));
    }

    id(i) {
      return this.document.models[i];
    }

    name(column, i) {
      const at = this.document[column]?.[i] ?? null;
      return at === null ? null : this.document[`${column}s`][at];
    }

    // What a model was trained on: its data set, or words of it, or of its cluster.
    topic(i) {
      const words = this.name("dataset", i) === null && (this.name("word", i) ?? this.clusters?.clusters[this.clusterOf[i]]?.words.join(", "));
      return this.name("dataset", i) ?? (words ? `unlabelled: ${words}` : "unlabelled");
    }

    columns(name) {
      if (name === "cluster") return this.clusterColumns();
      const missing = { dataset: "unlabelled", author: "unknown author", kind: "unknown", month: "unknown date" }[name];
      return [this.document[name], this.document[`${name}s`], missing];
    }

    clusterColumns() {
      if (!this.clusters) return [new Array(this.count).fill(null), [], "not clustered yet"];
      return [this.clusterOf, this.clusterNames, "in no cluster"];
    }

    setClusters(document) {
      this.clusters = document;
      this.clusterNames = distinct(document.clusters.map((cluster) => cluster.name || `cluster ${cluster.cluster}`));
      this.clusterTitles = document.clusters.map((cluster, c) => {
        const [first] = cluster.datasets, share = first ? first.models / cluster.size : 0;
        return first && share < 1 ? `${this.clusterNames[c]} · ${Math.round(100 * share)} %` : this.clusterNames[c];
      });
      this.clusterOf = new Array(this.count).fill(null);
      document.clusters.forEach((cluster, c) => {
        for (const id of cluster.models) {
          const i = this.place.get(id);
          if (i !== undefined) this.clusterOf[i] = c;
        }
      });
    }

    // The order of drawing: what has no label lies beneath what has one, and the first of either
    // are a fair sample of them.
    ranks() {
      const { dataset } = this.document, rank = new Uint32Array(this.count), order = shuffled(this.count);
      this.sample = order.slice(0, SAMPLE);
      let next = 0;
      for (const labelled of [false, true]) {
        this.beneath = next;
        for (const i of order) if ((dataset[i] !== null) === labelled) rank[i] = next++;
      }
      return rank;
    }

    // Which models pass the filters that the address names.
    passing(asked) {
      const tests = ["dataset", "author", "kind"].filter((name) => asked[name])
        .map((name) => [this.document[name], this.document[`${name}s`].indexOf(asked[name])]);
      if (asked.cluster && this.clusters) {
        tests.push([this.clusterOf, this.clusterNames.indexOf(asked.cluster)]);
      }
      const months = this.document.months.map((month) => month.startsWith(asked.month));
      const { layout, corners } = asked.area ? deltadex.area.read(asked.area) : {}, [xs, ys] = this.settled;
      const within = layout && layout === this.document.layout ? (i) => deltadex.area.holds(corners, xs[i], ys[i]) : null;
      const least = asked.downloads === "" ? null : Number(asked.downloads);
      const none = asked.status && asked.status !== "indexed";
      return Uint8Array.from({ length: this.count }, (_, i) => (
        !none && tests.every(([column, wanted]) => column[i] === wanted)
          && (least === null || (this.document.downloads[i] ?? -1) >= least)
          && (!asked.month || months[this.document.month[i]])
          && (!this.where || this.where[i]) && (!within || within(i))) ? 1 : 0);
    }
  }

  const quoted = (text) => `'${text.replaceAll("'", "''")}'`;

  // The year or month behind one, as a date begins.
  const after = (month) => month.replace(/\d+$/, (n) => String(Number(n) + 1).padStart(n.length, "0"));

  // The filters as the service's parameters; what it has no parameter for becomes a condition.
  function asParameters(asked, { kind }) {
    const conditions = [];
    if (asked.kind && !kind) conditions.push(`kind = ${quoted(asked.kind)}`);
    if (asked.downloads) conditions.push(`downloads >= ${asked.downloads}`);
    if (asked.month) conditions.push(`created_at >= ${quoted(asked.month)}`, `created_at < ${quoted(after(asked.month))}`);
    if (asked.where) conditions.push(conditions.length ? `(${asked.where})` : asked.where);
    return {
      dataset: asked.dataset, author: asked.author, where: conditions.join(" AND "),
      ...(kind ? { kind: asked.kind, status: asked.status } : {}),
    };
  }

  deltadex.Family = Family;
  deltadex.asParameters = asParameters;
  deltadex.base = ""; // the family that is seen, also where the address names none
  deltadex.scope = () => ({ base: deltadex.base });
  deltadex.withRecipe = () => ({ base: deltadex.base, recipe: state.current.recipe });
}
