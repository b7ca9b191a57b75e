// Elements from plain data. Text is only ever put in as text.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) {
        element.addEventListener(event, handler);
      }
    } else if (name === "share") {
      element.style.setProperty("--share", String(value));
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function button(text, click, attributes = {}) {
  return make("button", { type: "button", ...attributes, on: { click } }, text);
}

// Column names are texts; rows are lists of cells: texts, or elements.
export function table(kind, names, rows) {
  const head = names.map((name) => make("th", { scope: "col" }, name));
  const cell = (each) => (typeof each === "string" ? make("td", {}, each) : each);
  const body = rows.map((cells) => make("tr", {}, ...cells.map(cell)));
  return make(
    "table",
    { class: kind },
    make("thead", {}, make("tr", {}, ...head)),
    make("tbody", {}, ...body),
  );
}

export function scrolling(label, element) {
  const attributes = { class: "scroll", tabindex: "0", role: "region", "aria-label": label };
  return make("div", attributes, element);
}

export function folded(summary, element) {
  return make("details", {}, make("summary", {}, summary), element);
}

export function makeSvg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

export function percent(probability) {
  if (probability > 0 && probability < 0.001) return "< 0.1 %";
  if (probability < 1 && probability > 0.999) return "> 99.9 %";
  return `${(100 * probability).toFixed(1)} %`;
}

export function decimal(number, digits = 2) {
  return number.toFixed(digits).replace("-", "−");
}

export function count(number) {
  return number.toLocaleString("en-US");
}

export function duration(milliseconds) {
  if (milliseconds < 10) return `${milliseconds.toFixed(1)} ms`;
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < 60_000) return `${(milliseconds / 1000).toFixed(1)} s`;
  const seconds = Math.round(milliseconds / 1000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

// Offsets of the service count characters; those of JavaScript count UTF-16 units.
export function slice(text, start, end) {
  return Array.from(text).slice(start, end).join("");
}

// As Python's str.split() does.
export function splitWords(text) {
  const space = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/u;
  return text.split(space).filter(Boolean);
}

export function splitLines(text) {
  return text
    .split(/\r?\n/u)
    .map((line) => line.trim())
    .filter(Boolean);
}
