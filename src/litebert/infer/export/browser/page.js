// The page that tries the model: a tab for each verb, its texts and its result.

import { load } from "./litebert.js";

const VERBS = {
  fill: {
    title: "Fill",
    label: "Text with [MASK]",
    text: "She opened the [MASK] and walked into the room.",
  },
  classify: { title: "Classify", label: "Text", text: "a warm and funny story" },
  pair: {
    title: "Pair",
    label: "First text",
    text: "A man is playing a guitar.",
    second: "Someone plays an instrument.",
  },
  regress: {
    title: "Regress",
    label: "First text",
    text: "A man is playing a guitar.",
    second: "Someone plays an instrument.",
  },
  embed: {
    title: "Similarity",
    label: "Texts, one a line",
    text: "A man is playing a guitar.\nSomeone plays an instrument.\nShares lost a tenth of their value.",
  },
};
const MAX_BARS = 10;
const $ = (id) => document.getElementById(id);
let model;
let exitInUse = "";
let verb;

async function start(exit = "") {
  $("progress").hidden = false;
  try {
    const next = await load(".", {
      exit: exit || null,
      onProgress: (loaded, total) => ($("progress").value = loaded / total),
    });
    await model?.release(); // where the load fails, the page goes on with what it has
    [model, exitInUse] = [next, exit];
  } finally {
    $("progress").hidden = true;
    $("exit").value = exitInUse;
  }
  $("facts").textContent = `${model.depth} layers, ${model.precision}, in this page`;
}

function showVerb(chosen) {
  verb = chosen;
  const { label, text, second } = VERBS[verb];
  for (const tab of $("tabs").children) tab.ariaSelected = String(tab.id === `tab-${verb}`);
  $("first-label").textContent = label;
  $("first").value = text;
  $("second").value = second ?? "";
  $("second").hidden = $("second-label").hidden = second === undefined;
  $("exit-field").hidden = model.exits.length === 0 || ["fill", "embed"].includes(verb);
  $("result").replaceChildren();
  $("status").textContent = "";
}

async function run() {
  const first = $("first").value;
  const second = $("second").value.trim() === "" ? null : $("second").value;
  const begin = performance.now();
  const content = await SHOWN[verb](first, second);
  $("result").replaceChildren(...content);
  $("status").textContent = `${Math.round(performance.now() - begin)} ms`;
}

const SHOWN = {
  async fill(text) {
    const masks = await model.fill(text);
    const columns = masks.map((guesses, at) => {
      const title = masks.length === 1 ? "Guesses" : `Mask ${at + 1}`;
      return make(
        "section",
        {},
        make("h2", {}, title),
        bars(guesses.map(({ token, probability }) => [token, probability])),
      );
    });
    return [make("div", { class: "columns" }, ...columns)];
  },
  classify: async (text) => labels(await model.classify(text)),
  pair: async (first, second) => labels(await model.pair(first, second ?? "")),
  regress: async (first, second) => [
    make("p", { class: "answer" }, (await model.regress(first, second)).toFixed(3)),
  ],
  async embed(text) {
    const texts = text.split("\n").filter((line) => line.trim() !== "");
    const vectors = await model.embed(texts, { normalize: true });
    return texts.map((line, i) => {
      const others = texts
        .map((other, j) => [other, dot(vectors[i], vectors[j])])
        .filter((_, j) => j !== i);
      others.sort((a, b) => b[1] - a[1]);
      return make(
        "section",
        {},
        make("p", { class: "answer" }, line),
        bars(others, (cosine) => cosine.toFixed(2)),
      );
    });
  },
};

function labels(result) {
  const chosen = "labels" in result ? result.labels : [result.label];
  const sorted = Object.entries(result.probabilities).sort((a, b) => b[1] - a[1]);
  const parts = [make("p", { class: "answer" }, chosen.join(", ") || "no label"), bars(sorted)];
  if (result.depth !== undefined) {
    parts.push(
      make("p", { class: "quiet" }, `answered after ${result.depth} of ${model.depth} layers`),
    );
  }
  return parts;
}

function bars(rows, format = (share) => `${(100 * share).toFixed(1)} %`) {
  const items = rows.slice(0, MAX_BARS).map(([name, share]) => {
    const bar = make("i", {});
    bar.style.setProperty("--share", String(Math.min(Math.max(share, 0), 1)));
    return make("li", {}, make("span", {}, name), make("b", {}, format(share)), bar);
  });
  return make("ol", { class: "bars" }, ...items);
}

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function dot(a, b) {
  return a.reduce((sum, number, i) => sum + number * b[i], 0);
}

// One thing at a time; what goes wrong is a sentence above the form.
async function doing(work) {
  $("notice").hidden = true;
  $("result").ariaBusy = "true";
  for (const button of document.querySelectorAll("button, select")) button.disabled = true;
  try {
    await work();
  } catch (error) {
    $("notice").textContent = error.message;
    $("notice").hidden = false;
  }
  for (const button of document.querySelectorAll("button, select")) button.disabled = false;
  $("result").ariaBusy = null;
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  doing(run);
});
$("form").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("form").requestSubmit();
});
$("tabs").addEventListener("keydown", (event) => {
  const tabs = [...$("tabs").children];
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? 0;
  const next = tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length];
  next.focus();
  if (step !== 0) next.click();
});
$("exit").addEventListener("change", () => doing(() => start($("exit").value)));

doing(async () => {
  await start();
  const verbs = Object.keys(VERBS).filter((name) => model.verbs.includes(name));
  const tabs = verbs.map((name) => {
    const tab = make(
      "button",
      { role: "tab", type: "button", id: `tab-${name}` },
      VERBS[name].title,
    );
    tab.addEventListener("click", () => showVerb(name));
    return tab;
  });
  $("tabs").replaceChildren(...tabs);
  const choices = ["", ...model.exits].map((name) =>
    make("option", { value: name }, name || "off"),
  );
  $("exit").replaceChildren(...choices);
  $("tabs").hidden = $("form").hidden = false;
  showVerb(verbs[0]);
});
