"use strict";
{
  const { byId, make, button, icon, say } = deltadex;
  const GAP_PX = 6, EDGE_PX = 12, LONGEST = 30, BRIEF = 40;

  const MEANINGS = {
    probability: "How likely both were trained on the same data, by models of this family, or of families like it, whose data is known.",
    z: "How much more alike the two are than models with different data, in standard deviations. Above 5 is rare by chance.",
    fdr: "False discovery rate: of all answers with at least this evidence, the share that is expected to be wrong.",
    ARI: "Adjusted Rand index: how well the clusters agree with the labels. 0 is chance, 1 the same groups.",
    NMI: "Normalised mutual information: how much a cluster says about a label. 0 is nothing, 1 everything.",
    Silhouette: "How much nearer models are to their own cluster than to the next one. 1 is far apart, below 0 mixed.",
    Purity: "Of a model’s nearest, as many as it has siblings: the share that was trained on its dataset.",
    MAP: "Mean average precision: how far at the top of each model’s list its siblings stand. 1 is all of them first.",
  };

  // A "?" that says what the word beside it means.
  function help(name) {
    const ask = button({ class: "help", "aria-label": `What is ${name}?`, onclick: () => {
      const box = byId("meaning");
      box.replaceChildren(make("b", {}, name), ` ${MEANINGS[name]}`);
      box.showPopover();
      const { left, bottom, top } = ask.getBoundingClientRect(), { offsetWidth, offsetHeight } = box;
      const below = bottom + GAP_PX + offsetHeight < innerHeight;
      box.style.setProperty("left", `${Math.max(EDGE_PX, Math.min(left, innerWidth - offsetWidth - EDGE_PX))}px`);
      box.style.setProperty("top", `${below ? bottom + GAP_PX : top - GAP_PX - offsetHeight}px`);
      say(`${name}: ${MEANINGS[name]}`);
    } }, "?");
    return ask;
  }

  // What all names share at their beginning, up to a sign behind which each still says what it is: more than a
  // number, and no half of an author.
  function commonPrefix(names) {
    if (names.length < 2) return "";
    let prefix = names[0];
    for (const name of names) while (!name.startsWith(prefix)) prefix = prefix.slice(0, -1);
    const ends = [...prefix.matchAll(/[/_.-]+/g)].map(({ index, 0: signs }) => index + signs.length).reverse();
    return prefix.slice(0, ends.find((end) => /(\/|__)$/.test(prefix.slice(0, end)) || !names.some((name) => /^\d|^$|\/|__/.test(name.slice(end)))) ?? 0);
  }

  const parted = (name) => name.split(/(?<=[/_. -])(?![/_. -])/);

  // The first and last parts of a long name that there is room for; within a word only where one part is too long.
  function clipped(name, most = LONGEST) {
    if (name.length <= most) return name;
    const parts = parted(name);
    let head = "", tail = "";
    for (;;) {
      const first = head.length <= tail.length;
      if (head.length + tail.length + parts.at(first ? 0 : -1).length >= most) break;
      first ? head += parts.shift() : tail = parts.pop() + tail;
    }
    return tail ? `${head}…${tail}` : `${name.slice(0, most / 2)}…${name.slice(1 - most / 2)}`;
  }

  // A model's name without what all of its family share.
  const short = (id) => (id.startsWith(deltadex.map.family.prefix) ? id.slice(deltadex.map.family.prefix.length) : id);

  // The same, clipped where no other model's name begins and ends so.
  function brief(id) {
    const { prefix, document: { models } } = deltadex.map.family, whole = short(id), [head, tail] = clipped(whole, BRIEF).split("…");
    return tail === undefined || models.some((other) => other !== id && other.startsWith(prefix + head) && other.endsWith(tail)) ? whole : `${head}…${tail}`;
  }

  // A name that a line breaks behind its signs, and not within a word.
  const breakable = (id) => parted(id).flatMap((part, n) => (n ? [make("wbr"), part] : [part]));

  // A value of a column as it is shown.
  const called = (column, value) => (column === "kind" && value === "full" ? "full fine-tune" : value);
  const kind = (value) => called("kind", value);

  const copier = (id) => button({ class: "round copy", "aria-label": `Copy the name ${id}`, title: "Copy the whole name",
    onclick: () => deltadex.copied(id, "Name copied") }, icon("copy"));

  Object.assign(deltadex, { words: { help, short, brief, breakable, clipped, called, kind, commonPrefix, copier } });
}
