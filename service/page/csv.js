"use strict";
{
  const { byId, make, state } = deltadex;
  const FORMULA = /^[=+@\t\r-]/; // what a table of numbers would compute: names are strangers' words

  function cell(value) {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return String(value);
    const text = FORMULA.test(value) ? `'${value}` : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  const lines = (columns, rows) => [columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n");

  function save(name, columns, rows) {
    const href = URL.createObjectURL(new Blob([`${lines(columns, rows)}\r\n`], { type: "text/csv" }));
    make("a", { href, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(href), 10_000);
  }

  // The table of the view that is open.
  async function download() {
    const { view } = state.current;
    byId("csv").disabled = true;
    try {
      const { columns, rows } = await deltadex[view].csv(state.current);
      const base = deltadex.base.split("/").at(-1) || "models";
      save(`${base}-${view}.csv`, columns, rows);
      deltadex.toast(rows.length ? "Table downloaded" : "The table is empty");
    } catch (error) {
      if (!(error instanceof deltadex.Problem)) throw error;
      deltadex.toast(error.message);
    } finally {
      byId("csv").disabled = false;
    }
  }

  deltadex.csv = { lines, download, start: () => { byId("csv").onclick = download; } };
}
