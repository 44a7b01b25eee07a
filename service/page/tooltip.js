"use strict";
{
  const { byId, make, format } = deltadex;

  // A few words beside the model that the pointer or the keyboard is on.
  function show(family, i, [x, y], radius) {
    const box = byId("tooltip");
    if (i < 0) { box.hidden = true; return; }
    const facts = [family.name("author", i) && `by ${family.name("author", i)}`, deltadex.words.kind(family.name("kind", i)),
      family.document.downloads[i] !== null && `${format.short(family.document.downloads[i])} ${family.document.downloads[i] === 1 ? "download" : "downloads"}`];
    box.replaceChildren(
      make("strong", {}, family.id(i)),
      make("span", {}, family.topic(i)),
      make("span", { class: "soft" }, facts.filter(Boolean).join(" · ")));
    place(box, [x, y], radius);
  }

  // The same beside a kept data set.
  function showData(data, at, radius) {
    const box = byId("tooltip"), [nearest] = data.nearest;
    box.replaceChildren(
      make("strong", {}, `data set ${data.name}`),
      make("span", {}, `${format.count(data.examples, "example")} · ${data.loss}`),
      make("span", {}, data.standsOut ? `nearest model: ${nearest.model}, ${nearest.verdict}` : `no model stands out; nearest: ${nearest.model}`),
      make("span", { class: "soft" }, `z ${format.signed(nearest.z, 1)} · fdr ${format.rate(nearest.fdr)}`));
    place(box, at, radius);
  }

  function place(box, [x, y], radius) {
    box.hidden = false;
    const { clientWidth, clientHeight } = byId("stage");
    const { offsetWidth, offsetHeight } = box;
    const left = x + radius + 14 + offsetWidth > clientWidth ? x - radius - 14 - offsetWidth : x + radius + 14;
    box.style.setProperty("left", `${Math.max(8, Math.min(left, clientWidth - offsetWidth - 8))}px`);
    box.style.setProperty("top", `${Math.max(8, Math.min(y - offsetHeight / 2, clientHeight - offsetHeight - 8))}px`);
  }

  const spoken = (family, i) =>
    [family.id(i), family.topic(i), deltadex.words.kind(family.name("kind", i))].filter(Boolean).join(", ");

  const spokenData = ({ name, examples, nearest: [nearest] }) =>
    `data set ${name}, ${format.count(examples, "example")}, nearest model ${nearest.model}, ${nearest.verdict}`;

  deltadex.tooltip = { show, showData, spoken, spokenData };
}
