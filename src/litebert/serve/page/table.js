// Tables: the text of a CSV or TSV file in, rows of cells out; and back, with inert formulas.

const BYTE_ORDER_MARK = "\ufeff";

export function decode(bytes) {
  const isUtf16 =
    (bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff);
  const encoding = isUtf16 ? (bytes[0] === 0xff ? "utf-16le" : "utf-16be") : "utf-8";
  try {
    return new TextDecoder(encoding, { fatal: true }).decode(bytes);
  } catch {
    throw new Error("The file is not UTF-8. Save it as “CSV UTF-8”, then drop it again.");
  }
}

export function parseTable(text, name) {
  const content = text.startsWith(BYTE_ORDER_MARK) ? text.slice(1) : text;
  if (content.includes("\0")) throw new Error("The file is binary; expected a .csv or .tsv file.");
  const isTabbed = /\.(tsv|tab)$/iu.test(name);
  const rows = isTabbed ? parseTabbed(content) : parseQuoted(content, separatorOf(content));
  return rows.filter((row) => row.some((cell) => cell !== ""));
}

// A .tsv file has no quoting.
function parseTabbed(text) {
  return text.split(/\r\n|\n|\r/u).map((line) => line.split("\t"));
}

function separatorOf(text) {
  const counts = { ",": 0, ";": 0, "\t": 0 };
  let isQuoted = false;
  for (const character of text) {
    if (character === '"') isQuoted = !isQuoted;
    else if (isQuoted) continue;
    else if (character === "\n" || character === "\r") break;
    else if (character in counts) counts[character] += 1;
  }
  return Object.keys(counts).reduce((best, each) => (counts[each] > counts[best] ? each : best));
}

function parseQuoted(text, separator) {
  const rows = [];
  let row = [];
  let cell = "";
  let isQuoted = false;
  let isFresh = true; // at the beginning of a cell, where a quote opens
  for (let i = 0; i < text.length; i += 1) {
    const character = text[i];
    if (isQuoted) {
      if (character !== '"') cell += character;
      else if (text[i + 1] === '"') (cell += '"'), (i += 1);
      else isQuoted = false;
    } else if (character === '"' && isFresh) {
      isQuoted = true;
      isFresh = false;
    } else if (character === separator) {
      row.push(cell);
      cell = "";
      isFresh = true;
    } else if (character === "\n" || character === "\r") {
      if (character === "\r" && text[i + 1] === "\n") i += 1;
      rows.push([...row, cell]);
      row = [];
      cell = "";
      isFresh = true;
    } else {
      cell += character;
      isFresh = false;
    }
  }
  if (isQuoted) throw new Error("A quote in the file is never closed.");
  if (cell !== "" || row.length > 0) rows.push([...row, cell]);
  return rows;
}

// A cell that no spreadsheet runs: an apostrophe comes before what looks like a formula.
function inert(cell) {
  if (!/^[=+\-@\t\r]/u.test(cell)) return cell;
  return Number.isNaN(Number(cell)) ? "'" + cell : cell;
}

export function toCsv(rows) {
  const quote = (cell) => (/[",\r\n]/u.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  return rows.map((row) => row.map((cell) => quote(inert(cell))).join(",") + "\n").join("");
}

// Names of columns, none twice and none empty.
export function uniqueNames(names) {
  const taken = new Set();
  return names.map((name, i) => {
    const base = name.trim() || `column ${i + 1}`;
    let unique = base;
    for (let n = 2; taken.has(unique); n += 1) unique = `${base} (${n})`;
    taken.add(unique);
    return unique;
  });
}

// As the tables of `litebert predict`: the label and its probability, then that of each label.
function flatten(prediction) {
  const { probabilities } = prediction;
  if ("tags" in prediction) return { tags: prediction.tags.join(" ") };
  if ("labels" in prediction || "label" in prediction) {
    const names = Object.keys(probabilities);
    const each = names.map((name) => [`probability:${name}`, String(probabilities[name])]);
    const own =
      "labels" in prediction
        ? { labels: joinLabels(prediction.labels) }
        : { label: prediction.label, probability: String(probabilities[prediction.label]) };
    return { ...own, ...Object.fromEntries(each) };
  }
  if ("index" in prediction) {
    const { index } = prediction;
    return { index: String(index), probability: String(probabilities[index]) };
  }
  if ("value" in prediction) return { value: String(prediction.value) };
  const columns = ["text", "start", "end", "score", "null_score"];
  return Object.fromEntries(columns.map((name) => [name, cellOf(prediction[name])]));
}

function joinLabels(labels) {
  return labels.some((label) => label.includes(";")) ? JSON.stringify(labels) : labels.join(";");
}

function cellOf(value) {
  return value === null || value === undefined ? "" : String(value);
}

// The file's rows, and behind each what was predicted of it; null where nothing was, {error} where
// the service refused.
export function labeled(header, rows, results) {
  const columns = [];
  const known = new Set();
  const flat = results.map((result) => {
    if (result === null) return {};
    return "error" in result ? result : flatten(result);
  });
  for (const each of flat) {
    for (const name of Object.keys(each)) {
      if (!known.has(name)) known.add(name), columns.push(name);
    }
  }
  const inputs = header.map((name) => {
    let unique = name;
    while (known.has(unique)) unique = `input:${unique}`;
    known.add(unique);
    return unique;
  });
  const lines = rows.map((row, i) => [
    ...header.map((_, column) => row[column] ?? ""),
    ...columns.map((name) => flat[i][name] ?? ""),
  ]);
  return [[...inputs, ...columns], ...lines];
}
