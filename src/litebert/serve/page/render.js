// Results as elements, one function for each form of result.

import { decimal, folded, make, percent, scrolling, slice, splitWords, table } from "./dom.js";

const MAX_BARS = 12;
const NUM_COLORS = 6;

// `bars`: [{name, probability, isChosen, onPick, label}], in the order to show.
function barList(bars) {
  return make("ol", { class: "bars" }, ...bars.map(bar));
}

function bar({ name, probability, isChosen = false, onPick = null, label = null }) {
  const text = make("span", { class: "bar-name" }, name);
  const number = make("span", { class: "bar-number" }, percent(probability));
  const track = make("span", { class: "track", share: probability, "aria-hidden": "true" });
  const attributes = { class: isChosen ? "bar chosen" : "bar" };
  if (onPick === null) return make("li", {}, make("div", attributes, text, number, track));
  const picking = { ...attributes, type: "button", "aria-label": label, on: { click: onPick } };
  return make("li", {}, make("button", picking, text, number, track));
}

// What fill guesses: a list of bars for each mask. `onPick(maskIndex, token)` inserts one.
export function guesses(result, onPick) {
  if (result.masks.length === 0) return make("p", {}, "There is no [MASK] in the text.");
  const columns = result.masks.map((mask, i) => {
    const title = result.masks.length === 1 ? "The mask" : `Mask ${i + 1}`;
    const bars = mask.map(({ token, probability }) => ({
      name: token,
      probability,
      onPick: () => onPick(i, token),
      label: `Insert ${token}, ${percent(probability)}`,
    }));
    return make("section", {}, make("h3", {}, title), barList(bars));
  });
  return make(
    "div",
    {},
    make("div", { class: "columns" }, ...columns),
    make("p", { class: "quiet" }, "Choose a guess to put it into the text."),
  );
}

// A label or a set of labels, with the probability of each.
export function labels(result) {
  const chosen = new Set("labels" in result ? result.labels : [result.label]);
  const bars = Object.entries(result.probabilities)
    .map(([name, probability]) => ({ name, probability, isChosen: chosen.has(name) }))
    .sort((a, b) => b.probability - a.probability);
  const answer = chosen.size === 0 ? "no label" : [...chosen].join(", ");
  const rest = bars.slice(MAX_BARS);
  return make(
    "div",
    {},
    make("p", { class: "answer" }, answer),
    barList(bars.slice(0, MAX_BARS)),
    rest.length === 0 ? null : folded(`${rest.length} more labels`, barList(rest)),
  );
}

export function number(result) {
  return make("p", { class: "answer" }, decimal(result.value, 3));
}

export function choice(result, options) {
  const bars = result.probabilities.map((probability, i) => ({
    name: options[i],
    probability,
    isChosen: i === result.index,
  }));
  return make("div", {}, make("p", { class: "answer" }, options[result.index]), barList(bars));
}

// The context with the answer marked in it, and the other candidates, each of which can be marked.
export function answer(result, context) {
  const passage = make("p", { class: "passage" });
  const mark = (span) => {
    passage.replaceChildren(
      ...(span === null
        ? [context]
        : [
            slice(context, 0, span.start),
            make("mark", {}, slice(context, span.start, span.end)),
            slice(context, span.end),
          ]),
    );
    for (const button of others.querySelectorAll("button")) {
      const isMarked = span !== null && button.dataset.bounds === `${span.start}:${span.end}`;
      button.setAttribute("aria-pressed", String(isMarked));
    }
  };
  const best = result.text === null ? null : result;
  const others = make(
    "ol",
    { class: "spans" },
    ...result.spans.map((span) => {
      const text = make("span", { class: "bar-name" }, span.text);
      const score = make("span", { class: "bar-number" }, decimal(span.score));
      const on = { click: () => mark(span) };
      const attributes = { type: "button", "data-bounds": `${span.start}:${span.end}`, on };
      return make("li", {}, make("button", { ...attributes, class: "bar" }, text, score));
    }),
  );
  mark(best);
  const headline = best === null ? "The text does not say." : best.text;
  const noAnswer = best === null ? `Score for no answer: ${decimal(result.null_score)}.` : null;
  return make(
    "div",
    {},
    make("p", { class: "answer" }, headline),
    noAnswer === null ? null : make("p", { class: "quiet" }, noAnswer),
    passage,
    result.spans.length < (best === null ? 1 : 2)
      ? null
      : folded("Candidates with their scores", others),
  );
}

// Words in runs of one tag: B-X begins a run of X, I-X continues it, O is none.
function runsOf(words, tags) {
  const runs = [];
  words.forEach((word, i) => {
    const tag = tags[i] ?? "O";
    const [, prefix, name] = /^(?:([BIES])[-_])?(.*)$/su.exec(tag);
    const last = runs.at(-1);
    const continues =
      last !== undefined && last.name === name && (prefix === "I" || prefix === "E" || tag === "O");
    if (continues) last.words.push(word);
    else runs.push({ name: tag === "O" ? "O" : name, words: [word] });
  });
  return runs;
}

export function tags(result, text) {
  const words = splitWords(text);
  const runs = runsOf(words, result.tags);
  const names = [...new Set(runs.map(({ name }) => name).filter((name) => name !== "O"))];
  const passage = make("p", { class: "passage tagged" });
  for (const { name, words: group } of runs) {
    if (passage.hasChildNodes()) passage.append(" ");
    if (name === "O") passage.append(group.join(" "));
    else {
      const color = `tag tag-${names.indexOf(name) % NUM_COLORS}`;
      passage.append(make("mark", { class: color }, group.join(" "), make("small", {}, name)));
    }
  }
  const rows = words.map((word, i) => [
    word,
    result.tags[i] ?? "",
    percent(result.probabilities[i] ?? 0),
  ]);
  return make(
    "div",
    {},
    names.length === 0 ? make("p", {}, "Every word is tagged O.") : null,
    passage,
    folded("Every word", table("plain", ["Word", "Tag", "Probability"], rows)),
  );
}

function cosine(a, b) {
  let dot = 0;
  let aa = 0;
  let bb = 0;
  for (let i = 0; i < a.length; i += 1) {
    dot += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  return aa === 0 || bb === 0 ? 0 : dot / Math.sqrt(aa * bb);
}

// Cosines of all pairs of texts as a table whose shades run from the lowest to the highest pair.
export function heatMap(texts, vectors) {
  const cosines = vectors.map((a) => vectors.map((b) => cosine(a, b)));
  const pairs = cosines.flatMap((row, i) =>
    row.slice(0, i).map((value, j) => ({ first: j, second: i, value })),
  );
  const values = pairs.map(({ value }) => value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const closest = pairs.reduce((best, pair) => (pair.value > best.value ? pair : best));
  const cell = (i, j) => {
    const value = cosines[i][j];
    const isSelf = i === j;
    const share = isSelf ? 0 : high === low ? 0.5 : (value - low) / (high - low);
    const name = isSelf ? "self" : share > 0.8 ? "strong" : null;
    return make("td", { class: name, share: share.toFixed(3) }, isSelf ? "·" : decimal(value));
  };
  const names = texts.map((_, i) => String(i + 1));
  const rows = texts.map((text, i) => [
    make("th", { scope: "row" }, make("b", {}, names[i]), make("span", {}, text)),
    ...texts.map((_, j) => cell(i, j)),
  ]);
  const note =
    texts.length === 2
      ? `Cosine similarity: ${decimal(high)}.`
      : `Closest: ${closest.first + 1} and ${closest.second + 1}. Shades run from the lowest ` +
        `cosine of a pair, ${decimal(low)}, to the highest, ${decimal(high)}.`;
  return make(
    "div",
    {},
    scrolling("Cosine similarities", table("heat", ["Text", ...names], rows)),
    make("p", { class: "quiet" }, note),
  );
}
