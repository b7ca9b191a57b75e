// A CSV or TSV file: which columns are read, its rows scored with progress, the labeled file.

import { reason } from "./client.js";
import { button, count, duration, make, scrolling, table as makeTable } from "./dom.js";
import { pause, scoreRows } from "./scoring.js";
import { decode, labeled, parseTable, toCsv, uniqueNames } from "./table.js";

const MAX_BYTES = 100_000_000;
const NUM_SHOWN = 5;
const MAX_CELL = 80;
const NONE = ""; // of an optional column

export function filePanel(spec, client, modelOf) {
  let table = null; // {name, rows}
  let selects = [];
  let running = null;
  let href = null;

  const input = make("input", {
    type: "file",
    accept: ".csv,.tsv,.tab,.txt,text/csv,text/tab-separated-values",
    "aria-label": "CSV or TSV file",
    on: { change: () => input.files.length > 0 && open(input.files[0]) },
  });
  const hasHeader = make("input", { type: "checkbox", checked: true, on: { change: choose } });
  const isCut = make("input", { type: "checkbox" });
  const columns = make("div", { class: "choices" });
  const start = button("Score the rows", () => run(), { class: "primary" });
  const cancel = button("Cancel", () => running?.abort(), { hidden: true });
  const bar = make("progress", { "aria-label": "Rows scored", max: 1, value: 0, hidden: true });
  const status = make("p", { class: "status", role: "status" });
  const output = make("div");
  const settings = make(
    "div",
    { hidden: true },
    columns,
    make("label", { class: "check" }, hasHeader, "The first row has the columns’ names"),
    spec.cuts
      ? make("label", { class: "check" }, isCut, "Cut texts that are longer than the model reads")
      : null,
    make("div", { class: "actions" }, start, cancel),
  );
  const element = make(
    "section",
    { class: "file" },
    make("h2", {}, "A table of texts"),
    make(
      "p",
      { class: "quiet" },
      "The rows of a CSV or TSV file go to the service in batches; you download the table with the " +
        "results in new columns.",
    ),
    make("label", { class: "drop" }, input, make("span", {}, "or drop it anywhere on the page")),
    settings,
    bar,
    status,
    output,
  );

  function say(text, isError = false) {
    status.classList.toggle("error", isError);
    status.textContent = text;
  }

  async function open(file) {
    running?.abort();
    clear();
    table = null;
    settings.hidden = true;
    if (file.size > MAX_BYTES) {
      say(`${file.name} is larger than 100 MB; use litebert predict for it.`, true);
      return;
    }
    try {
      const rows = parseTable(decode(new Uint8Array(await file.arrayBuffer())), file.name);
      if (rows.length === 0) throw new Error("The file has no rows.");
      table = { name: file.name, rows };
      choose();
      settings.hidden = false;
    } catch (error) {
      say(`${file.name}: ${error.message}`, true);
    }
  }

  function clear() {
    if (href !== null) URL.revokeObjectURL(href);
    href = null;
    output.replaceChildren();
    start.classList.add("primary");
    bar.hidden = true;
  }

  function split() {
    const width = Math.max(...table.rows.slice(0, 1000).map((row) => row.length));
    if (hasHeader.checked) {
      const [first, ...rows] = table.rows;
      const padded = [...first, ...Array(Math.max(0, width - first.length)).fill("")];
      return { header: uniqueNames(padded), rows };
    }
    return { header: uniqueNames(Array(width).fill("")), rows: table.rows };
  }

  function choose() {
    const { header, rows } = split();
    const taken = new Set();
    selects = spec.file.columns.map(({ name, label, pattern, isOptional }) => {
      let guess = header.findIndex((column, i) => !taken.has(i) && pattern.test(column));
      if (guess < 0 && !isOptional) guess = Math.max(0, header.findIndex((_, i) => !taken.has(i)));
      taken.add(guess);
      const options = header.map((column, i) =>
        make("option", { value: i, selected: i === guess }, column),
      );
      if (isOptional) options.unshift(make("option", { value: NONE, selected: guess < 0 }, "none"));
      return { name, label, select: make("select", {}, ...options) };
    });
    columns.replaceChildren(
      ...selects.map(({ label, select }) => make("label", {}, make("span", {}, label), select)),
    );
    say(`${table.name}: ${numRows(rows.length)}.`);
  }

  async function run() {
    const { header, rows } = split();
    const chosen = selects.filter(({ select }) => select.value !== NONE);
    const items = rows.map((row) => {
      const cells = chosen.map(({ name, select }) => [name, row[Number(select.value)] ?? ""]);
      const isEmpty = cells.some(([, cell]) => cell.trim() === "");
      return isEmpty ? null : spec.file.item(Object.fromEntries(cells));
    });
    const total = items.filter((item) => item !== null).length;
    if (total === 0) {
      say("No row has a text in this column.", true);
      return;
    }
    clear();
    const request = new AbortController();
    running = request;
    start.disabled = true;
    cancel.hidden = false;
    bar.hidden = false;
    bar.max = total;
    bar.value = 0;
    const model = modelOf();
    const results = Array(rows.length).fill(null);
    const began = performance.now();
    const progress = (numNew) => {
      bar.value += numNew;
      const seconds = (performance.now() - began) / 1000;
      const left = ((total - bar.value) * seconds) / bar.value;
      const speed = count(Math.round(bar.value / seconds));
      const rest = bar.value < total ? ` · ${duration(1000 * left)} left` : "";
      say(`${count(bar.value)} of ${count(total)} rows · ${speed} rows/s${rest}`);
    };
    let end = "";
    try {
      await scoreRows(items, results, {
        send: async (batch) => {
          const more = isCut.checked ? { truncate: true } : {};
          const body = { ...spec.file.body(model, batch), ...more };
          const { data } = await client.post(spec.path, body, request.signal);
          return data.results;
        },
        wait: (seconds) => pause(seconds, request.signal),
        onProgress: progress,
      });
    } catch (error) {
      end = error.name === "AbortError" ? "Cancelled." : reason(error);
    }
    cancel.hidden = true;
    start.disabled = false;
    running = null;
    if (table !== null) finish(header, rows, items, results, end, performance.now() - began);
  }

  function finish(header, rows, items, results, end, milliseconds) {
    const numScored = results.filter((result) => result !== null && !("error" in result)).length;
    const numRefused = results.filter((result) => result !== null && "error" in result).length;
    const numEmpty = items.filter((item) => item === null).length;
    const parts = [end, `Scored ${numRows(numScored)} in ${duration(milliseconds)}.`];
    if (numRefused > 0) {
      parts.push(`Refused: ${numRows(numRefused)}; the column “error” says why.`);
    }
    if (numEmpty > 0) parts.push(`Left out: ${numRows(numEmpty)} with an empty text.`);
    say(parts.filter(Boolean).join(" "), end !== "" && end !== "Cancelled.");
    if (numScored + numRefused === 0) return;
    const lines = labeled(header, rows, results);
    href = URL.createObjectURL(new Blob([toCsv(lines)], { type: "text/csv;charset=utf-8" }));
    const name = table.name.replace(/\.[^.]*$/u, "") + ".labeled.csv";
    const link = make("a", { href, download: name, class: "button primary" }, `Download ${name}`);
    start.classList.remove("primary"); // the next step is the download
    output.replaceChildren(make("p", {}, link), summary(results), preview(lines));
  }

  return { element, open };
}

function numRows(number) {
  return `${count(number)} ${number === 1 ? "row" : "rows"}`;
}

// How often each label is predicted, the most frequent first.
function summary(results) {
  const counts = new Map();
  for (const result of results) {
    const names = result?.labels ?? (result?.label === undefined ? [] : [result.label]);
    for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const ordered = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 12);
  const text = ordered.map(([name, n]) => `${name} ${count(n)}`).join(" · ");
  return make("p", { class: "quiet" }, text);
}

function preview([header, ...rows]) {
  const shorten = (cell) => (cell.length > MAX_CELL ? cell.slice(0, MAX_CELL - 1) + "…" : cell);
  const cell = (text) => make("td", { class: text.length > 20 ? "long" : null }, shorten(text));
  const body = rows.slice(0, NUM_SHOWN).map((row) => row.map(cell));
  return scrolling("First rows", makeTable("plain", header, body));
}
