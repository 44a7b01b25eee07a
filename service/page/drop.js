"use strict";
{
  const { byId, make, button, format, load } = deltadex;
  const DATA = /\.(csv|tsv|jsonl|json|txt)$/i, CONFIG = "adapter_config.json";
  const DEEPEST = 3, MOST_FILES = 300, MOST_HEADER = 1 << 24, NEAREST = 100;
  const TAKES = "An adapter (adapter_config.json and adapter_model.safetensors, or the folder of both), a safetensors file, or a data set (.csv, .tsv, .jsonl, .json, .txt)";
  const box = byId("dropping"), hint = byId("drop-hint");
  let over = 0;

  class Refused extends Error {}

  // What was dropped

  const once = (read) => new Promise(read);

  async function entriesOf(folder) {
    const reader = folder.createReader(), all = [];
    for (;;) {
      const some = await once((done, fail) => reader.readEntries(done, fail));
      if (!some.length || all.length > MOST_FILES) return all;
      all.push(...some);
    }
  }

  // The files of folders and of what lies beside them, each with its folder's path.
  async function walk(entries, depth = 0) {
    const files = [];
    for (const entry of entries.slice(0, MOST_FILES)) {
      if (entry instanceof File) files.push({ file: entry, folder: "" });
      else if (entry.isFile) files.push({ file: await once((done, fail) => entry.file(done, fail)), folder: entry.fullPath.split("/").slice(0, -1).join("/") });
      else if (depth < DEEPEST) files.push(...await walk(await entriesOf(entry), depth + 1));
    }
    return files;
  }

  const named = (files, name) => files.find(({ file }) => file.name === name)?.file;
  const nameOf = ({ name }) => (name === "adapter_model.safetensors" ? "Your adapter" : name.replace(/\.\w+$/, ""));

  // The adapter that lies uppermost.
  function adapterIn(files) {
    const folders = [...new Set(files.map(({ folder }) => folder))].sort((a, b) => a.split("/").length - b.split("/").length || (a < b ? -1 : 1));
    for (const folder of folders) {
      const own = files.filter((one) => one.folder === folder), config = named(own, CONFIG);
      const weights = own.map(({ file }) => file).filter(({ name }) => name.endsWith(".safetensors"));
      if (config && weights.length === 1) return { config, weights: weights[0], name: folder.split("/").at(-1) || nameOf(weights[0]) };
      if (config && weights.length > 1) throw new Refused(`${format.count(weights.length, "safetensors file")} beside ${CONFIG}: drop one of them with it.`);
      if (config) throw new Refused(`${CONFIG} came without adapter_model.safetensors; a file adapter_model.bin has to be saved as safetensors first.`);
    }
    return null;
  }

  // The names and shapes of a safetensors file: eight bytes that say how long the JSON behind is.
  async function headerOf(file) {
    const length = Number(new DataView(await file.slice(0, 8).arrayBuffer()).getBigUint64(0, true));
    if (length > MOST_HEADER) throw new RangeError("a long header");
    return JSON.parse(await file.slice(8, 8 + length).text());
  }

  // A configuration for factors that came alone: their scale is unknown, and a cosine has none.
  async function configOf(weights) {
    let header;
    try {
      header = await headerOf(weights);
    } catch {
      throw new Refused(`${weights.name}: its header cannot be read; it is no safetensors file, or was cut off.`);
    }
    const factors = Object.entries(header).filter(([name]) => /\.lora_A(\.\w+)?\.weight$/.test(name));
    if (!factors.length) throw new Refused(`${weights.name} has no LoRA factors. A full fine-tune is indexed from its folder, by: deltadex add FOLDER`);
    const rank = factors[0][1].shape[0], modules = [...new Set(factors.map(([name]) => name.split(".lora_A")[0].split(".").at(-1)))];
    return new Blob([JSON.stringify({ peft_type: "LORA", r: rank, lora_alpha: rank, target_modules: modules, base_model_name_or_path: deltadex.base })]);
  }

  function limited(file, most, what) {
    if (file.size > most) throw new Refused(`${file.name} has ${format.bytes(file.size)}; this service takes ${what} of up to ${format.bytes(most)}.`);
  }

  const form = (fields) => {
    const made = new FormData();
    for (const [name, value] of Object.entries(fields)) if (value) made.append(name, ...[value].flat());
    return made;
  };
  const asked = () => ({ ...deltadex.withRecipe(), k: String(NEAREST) });

  async function adapterQuestion({ config, weights, name }) {
    limited(weights, deltadex.takes.adapter, "adapters");
    const facts = config ? [] : [`It came without ${CONFIG}: taken as LoRA, its scale left open, which no cosine depends on.`];
    const body = form({ ...asked(), config: [config ?? await configOf(weights), CONFIG], weights: [weights, "adapter_model.safetensors"] });
    return { name, ask: (how) => deltadex.source.near(body, how), told: () => facts };
  }

  function dataQuestion(file) {
    if (!deltadex.takes.data) throw new Refused("This service runs no models, which a data set needs: pip install 'deltadex[studies]' and start it again.");
    limited(file, deltadex.takes.data, "data sets");
    const told = ({ query }) => [`${format.count(query.n_texts, "text")} run through the base, none of them stored. Near models were trained on this data, or on data like it.`];
    return { name: file.name, ask: (how) => deltadex.source.trainedOn(form({ ...asked(), data: [file, file.name] }), how), told };
  }

  // Which question the files are; else why none.
  async function question(files) {
    const adapter = adapterIn(files);
    if (adapter) return adapterQuestion(adapter);
    const own = files.map(({ file }) => file), weights = own.filter(({ name }) => name.endsWith(".safetensors"));
    if (weights.length === 1) return adapterQuestion({ weights: weights[0], name: nameOf(weights[0]) });
    if (weights.length) throw new Refused(`${format.count(weights.length, "safetensors file")} without ${CONFIG}: drop one at a time, or the folder of one adapter.`);
    const data = own.filter(({ name }) => DATA.test(name));
    if (data.length === 1) return dataQuestion(data[0]);
    if (data.length) throw new Refused(`${format.count(data.length, "data set")}: drop one at a time.`);
    throw new Refused(`${own.length ? `${own[0].name} is none of these` : "Nothing readable was dropped"}. ${TAKES} can be dropped.`);
  }

  // Asking

  const closer = () => button({ class: "quiet", onclick: close }, "Close");

  function close() {
    deltadex.cancel(box);
    box.replaceChildren();
    box.hidden = true;
  }

  function refuse(words) {
    deltadex.cancel(box);
    box.hidden = false;
    box.replaceChildren(make("div", { class: "notice bad", role: "alert" }, make("p", { class: "notice-title" }, "Not taken"), make("p", {}, words), closer()));
  }

  async function send(files) {
    if (!deltadex.map.family.count) { refuse("The map is not there yet: drop it again in a moment."); return; }
    let found;
    try {
      found = await question(files);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      refuse(error.message);
      return;
    }
    box.hidden = false;
    await load(box, found.ask, (answer) => {
      close();
      deltadex.visitor.arrive({ name: found.name, answer, facts: found.told(answer) });
    }, `Comparing ${found.name}…`);
    if (box.querySelector(".bad")) box.append(closer());
  }

  const carriesFiles = (event) => Boolean(deltadex.source.trainedOn) && [...event.dataTransfer?.types ?? []].includes("Files");

  function start() {
    const input = byId("file");
    byId("sending").hidden = byId("lead").firstElementChild.hidden = !deltadex.source.trainedOn;
    byId("choose").onclick = () => input.click();
    input.onchange = () => { send([...input.files].map((file) => ({ file, folder: "" }))); input.value = ""; };
    hint.querySelector("p").textContent = `${TAKES}. Nothing is stored.`;
    const show = (by) => { over = Math.max(0, over + by); hint.hidden = over === 0; };
    addEventListener("dragenter", (event) => { if (carriesFiles(event)) { event.preventDefault(); show(1); } });
    addEventListener("dragleave", (event) => { if (carriesFiles(event)) show(-1); });
    addEventListener("dragover", (event) => { if (carriesFiles(event)) event.preventDefault(); });
    addEventListener("drop", async (event) => {
      if (!carriesFiles(event)) return;
      event.preventDefault();
      show(-over);
      send(await walk([...event.dataTransfer.items].map((item) => item.webkitGetAsEntry() ?? item.getAsFile()).filter(Boolean)));
    });
  }

  deltadex.drop = { start, send };
}
