// What each layer does to a text, drawn: two curves over the layers, and with exits the answer
// after each layer with a mark where the text leaves.

import { decimal, folded, make, makeSvg, percent, table } from "./dom.js";

const [WIDTH, HEIGHT] = [360, 190];
const [LEFT, RIGHT, TOP, BOTTOM] = [38, 10, 10, 26];
const STEPS = [1, 2, 2.5, 5, 10];
const MAX_TICKS = 5;

// Round numbers from `low` to at least `high`, at most five of them.
export function ticks(low, high) {
  const span = high > low ? high - low : 1;
  const power = 10 ** Math.floor(Math.log10(span / (MAX_TICKS - 1)));
  for (const factor of [...STEPS, ...STEPS.map((step) => 10 * step)]) {
    const step = factor * power;
    const first = Math.floor(low / step);
    const last = Math.ceil((low + span) / step - 1e-9);
    if (last - first < MAX_TICKS) {
      const numbers = Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
      return numbers.map((number) => Number(number.toPrecision(12)));
    }
  }
  return [low, high];
}

// The numbers of layers that are written below a chart: the first, the last and some between.
export function layerTicks(count) {
  const step = count > 16 ? Math.ceil(count / 8) : count > 9 ? 2 : 1;
  const numbers = Array.from({ length: count }, (_, i) => i + 1);
  return numbers.filter((n) => n === 1 || n === count || (n % step === 0 && count - n >= step));
}

function curve(title, values, leaving) {
  const x = (layer) =>
    values.length === 1
      ? (LEFT + WIDTH - RIGHT) / 2
      : LEFT + ((layer - 1) / (values.length - 1)) * (WIDTH - LEFT - RIGHT);
  const marks = ticks(Math.min(0, ...values), Math.max(...values));
  const [low, high] = [marks[0], marks.at(-1)];
  const y = (value) => TOP + ((high - value) / (high - low)) * (HEIGHT - TOP - BOTTOM);
  const digits = Math.max(0, ...marks.map((mark) => (String(mark).split(".")[1] ?? "").length));
  const grid = marks.flatMap((mark) => [
    makeSvg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(mark), y2: y(mark) }),
    makeSvg("text", { class: "tick end", x: LEFT - 6, y: y(mark) + 4 }, decimal(mark, digits)),
  ]);
  const below = layerTicks(values.length).map((layer) =>
    makeSvg("text", { class: "tick middle", x: x(layer), y: HEIGHT - 8 }, String(layer)),
  );
  const leaves = leaving.map((layer) =>
    makeSvg("line", { class: "leave", x1: x(layer), x2: x(layer), y1: TOP, y2: HEIGHT - BOTTOM }),
  );
  const points = values.map((value, i) => `${x(i + 1).toFixed(1)},${y(value).toFixed(1)}`);
  const dots = values.map((value, i) => {
    const label = `Layer ${i + 1}: ${decimal(value, 3)}`;
    const attributes = { class: "dot", cx: x(i + 1), cy: y(value), r: 3.5 };
    return makeSvg("circle", attributes, makeSvg("title", {}, label));
  });
  const name = `${title} by layer, from ${decimal(values[0], 2)} to ${decimal(values.at(-1), 2)}`;
  return make(
    "figure",
    { class: "chart" },
    make("figcaption", {}, title),
    makeSvg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": name },
      ...grid,
      ...leaves,
      ...below,
      makeSvg("polyline", { class: "line", points: points.join(" ") }),
      ...dots,
    ),
  );
}

// What one depth answers: its words, and how sure it is from 0 to 1; null for a number.
function spoken(answer) {
  if ("value" in answer) return { name: decimal(answer.value, 3), share: null };
  const shares = Object.values(answer.probabilities);
  if ("labels" in answer) {
    const certain = Math.min(...shares.map((p) => Math.max(p, 1 - p)));
    return { name: answer.labels.join(", ") || "no label", share: certain };
  }
  return { name: answer.label, share: Math.max(...shares) };
}

function depthRow(answer, i, reached, criteria) {
  const { name, share } = spoken(answer);
  const depth = i + 1;
  const badges = criteria.map((criterion) =>
    make("span", { class: "badge" }, `leaves by ${criterion}`),
  );
  const track =
    share === null ? null : make("span", { class: "track", share, "aria-hidden": "true" });
  const mark = badges.length > 0 ? " chosen" : depth > reached ? " beyond" : "";
  return make(
    "li",
    { class: `depth${mark}` },
    make("span", { class: "depth-number" }, String(depth)),
    make("span", { class: "depth-name" }, name, ...badges),
    make("span", { class: "bar-number" }, share === null ? "" : percent(share)),
    track,
  );
}

function exitList(exits) {
  const leaves = Object.entries(exits.leaves);
  const total = exits.answers.length;
  const reached = leaves.length === 0 ? total : Math.max(...leaves.map(([, { depth }]) => depth));
  const first = leaves.length === 0 ? total : leaves[0][1].depth;
  const sentences = leaves.map(
    ([criterion, { threshold, depth }]) =>
      `By ${criterion} (threshold ${Number(threshold.toPrecision(4))}) the text leaves after ` +
      `layer ${depth} of ${total}.`,
  );
  if (leaves.length === 0) sentences.push("No threshold is calibrated, so that no depth is marked.");
  const rows = exits.answers.map((answer, i) => {
    const here = leaves.filter(([, { depth }]) => depth === i + 1).map(([criterion]) => criterion);
    return depthRow(answer, i, reached, here);
  });
  return [
    make("p", { class: "answer" }, spoken(exits.answers[first - 1]).name),
    make("p", { class: "quiet" }, sentences.join(" ")),
    make("h3", {}, "The answer after each layer"),
    make("ol", { class: "depths" }, ...rows),
  ];
}

export function layers(result) {
  const { tokens, l2, cosine, exits } = result;
  const leaving = exits === null ? [] : Object.values(exits.leaves).map(({ depth }) => depth);
  const rows = l2.map((distance, i) => [
    String(i + 1),
    decimal(distance, 3),
    decimal(cosine[i], 4),
  ]);
  return make(
    "div",
    {},
    ...(exits === null ? [] : exitList(exits)),
    make(
      "div",
      { class: "columns" },
      curve("L2 distance", l2, leaving),
      curve("Cosine", cosine, leaving),
    ),
    make(
      "p",
      { class: "quiet" },
      `How far each layer moves the states of the text: between a token’s states before and after ` +
        `the layer, the mean of ${tokens} tokens. As in Figure 1 of the ALBERT paper.`,
    ),
    folded("Every layer in numbers", table("plain", ["Layer", "L2 distance", "Cosine"], rows)),
  );
}
