// A model of litebert in a browser: texts in, predictions out.
//
//   import { load } from "./litebert.js";
//   const model = await load(".");
//   await model.fill("the [MASK] sails", { top: 3 }); // one list for each mask
//   await model.classify(["a great story", "dull"]); // one result for each text
//
// A verb takes one text and gives one result, or takes a list and gives a list. The import map of
// the page says where onnxruntime-web is (README.md).

import { words } from "./clean.js";
import { leaving, makeRule, sigmoid, softmax } from "./exits.js";
import { Folder } from "./files.js";
import { Network } from "./network.js";
import { Tokenizer } from "./tokenizer.js";

export { Tokenizer };

const FORMAT = "litebert-web";
const VERSION = 1;

// `folder`: the address of the exported folder, relative to the page. Options: `exit` lets rows leave
// early, by patience, confidence or cumulative, from `threshold` on (by default the calibrated one);
// `onProgress(loadedBytes, totalBytes)`; `ort`, onnxruntime-web where the page has imported it;
// `providers`, its execution providers.
export async function load(folder = ".", options = {}) {
  const { exit = null, threshold = null, onProgress, providers = ["wasm"] } = options;
  if (exit === null && threshold !== null) {
    throw new Error(`a threshold is of an exit, and none is given; got ${threshold}`);
  }
  const base = globalThis.document?.baseURI ?? import.meta.url;
  const url = new URL(String(folder).replace(/\/?$/u, "/"), base);
  const files = await Folder.open(url, onProgress);
  const config = await files.json("config.json");
  if (config.format !== FORMAT || config.version !== VERSION) {
    throw new Error(`${url} is no model that this litebert.js reads; export the model again`);
  }
  const rules = exit === null ? {} : exitRules(config, exit, threshold);
  const ort = options.ort ?? (await importRuntime());
  const [model, tables, network] = await Promise.all([
    files.bytes("spiece.model"),
    files.json("cleanup.json"),
    Network.load(ort, config, files, { withExits: exit !== null, providers }),
  ]);
  return new Model(config, new Tokenizer(model, config.tokenizer, tables), network, rules);
}

export class Model {
  #config;
  #network;
  #rules; // of early exit, by verb
  #queue = Promise.resolve();
  #isReleased = false;

  constructor(config, tokenizer, network, rules) {
    this.#config = config;
    this.#network = network;
    this.#rules = rules;
    this.tokenizer = tokenizer;
  }

  // What this model can do.
  get verbs() {
    return this.#config.verbs;
  }

  // Of classify and pair; null where the model has none.
  get labels() {
    return Object.values(this.#config.tasks).find((task) => task.labels.length > 0)?.labels ?? null;
  }

  // Applications of a layer.
  get depth() {
    return this.#network.depth;
  }

  // float32 or int8.
  get precision() {
    return this.#config.precision;
  }

  // Criteria of early exit that have a calibrated threshold.
  get exits() {
    return Object.keys(Object.values(this.#config.tasks)[0]?.exits ?? {});
  }

  // For each [MASK] of a text the `top` likeliest tokens: [{token, probability}].
  async fill(texts, { top = 5 } = {}) {
    if (!Number.isInteger(top) || top < 1)
      throw new Error(`top is a whole number from 1; got ${top}`);
    return this.#each("fill", [texts], (text) => this.#fill(text, top));
  }

  // A Float32Array for each text; by default as the model was tuned, else the mean of its states.
  // `dimensions` keeps the first so many numbers, a size that the model was trained for.
  async embed(texts, options = {}) {
    const { embed: tuned, hidden_size: size } = this.#config;
    const { pooling = tuned.pooling, normalize = tuned.normalize, dimensions = size } = options;
    if (!["mean", "cls"].includes(pooling)) {
      throw new Error(`pooling is one of mean, cls; got ${pooling}`);
    }
    const sizes = [...tuned.dimensions, size];
    if (!sizes.includes(dimensions)) {
      const trained = sizes.join(", ");
      throw new Error(
        `this model was not trained for vectors of ${dimensions}; it has: ${trained}`,
      );
    }
    return this.#each("embed", [texts], async (text) => {
      const vector = (await this.#pool(text, pooling)).slice(0, dimensions);
      const length = normalize ? Math.max(norm(vector), 1e-12) : 1;
      return vector.map((number) => number / length);
    });
  }

  // {label, probabilities}; of a model with several labels a text {labels, probabilities}. With an
  // exit also the depth at which the row left.
  async classify(texts) {
    return this.#each("classify", [texts], (text) => this.#label("classify", text, null));
  }

  async pair(first, second) {
    return this.#each("pair", [first, second], (a, b) => this.#label("pair", a, b));
  }

  // A number for a text, or for a pair of texts.
  async regress(first, second = null) {
    const fields = second === null ? [first] : [first, second];
    return this.#each("regress", fields, async (a, b = null) => {
      const { logits } = await this.#logits("regress", a, b);
      return logits[0];
    });
  }

  // Gives the model's memory back, when what runs is done. No verb works afterwards.
  async release() {
    this.#isReleased = true;
    await this.#queue;
    await this.#network.release();
  }

  async #fill(text, top) {
    const ids = this.tokenizer.maskedRow(text, this.#config.max_positions);
    const columns = ids.flatMap((id, at) => (id === this.tokenizer.special.mask ? [at] : []));
    const row = { ids, segments: new Array(ids.length).fill(0) };
    const logits = await this.#network.masked(row, columns, this.tokenizer.size);
    return logits.map((each) => {
      const probabilities = softmax(each);
      const order = Array.from(probabilities, (_, id) => id);
      order.sort((a, b) => probabilities[b] - probabilities[a]);
      return order
        .slice(0, top)
        .map((id) => ({ token: this.tokenizer.text(id), probability: probabilities[id] }));
    });
  }

  async #pool(text, pooling) {
    const row = this.tokenizer.row(text, null, this.#config.max_positions);
    const { data, size } = await this.#network.run(row, pooling === "cls" ? [0] : null);
    const sums = new Float64Array(size);
    for (const [i, number] of data.entries()) sums[i % size] += number;
    return Float32Array.from(sums, (sum) => (sum * size) / data.length);
  }

  async #label(verb, first, second) {
    const { labels, head, label_threshold: threshold, temperature } = this.#config.tasks[verb];
    const { logits, ...depth } = await this.#logits(verb, first, second);
    const scaled = Float64Array.from(logits, (logit) => logit / temperature);
    const numbers = head === "multilabel" ? sigmoid(logits) : softmax(scaled);
    const probabilities = Object.fromEntries(labels.map((label, i) => [label, numbers[i]]));
    if (head === "multilabel") {
      return { labels: labels.filter((_, i) => numbers[i] >= threshold), probabilities, ...depth };
    }
    const label = labels[numbers.indexOf(Math.max(...numbers))];
    return { label, probabilities, ...depth };
  }

  async #logits(verb, first, second) {
    const { head, max_length: maxLength } = this.#config.tasks[verb];
    const row = this.tokenizer.row(first, second, maxLength);
    const rule = this.#rules[verb];
    if (rule === undefined) return { logits: await this.#network.pooled(row, head) };
    return this.#network.pooledEarly(row, head, leaving(rule));
  }

  // `predict` of each text, or of each pair, one after another: a session runs one call at a time.
  async #each(verb, fields, predict) {
    if (!this.verbs.includes(verb)) {
      throw new Error(`this model cannot ${verb}; it can ${this.verbs.join(" and ")}`);
    }
    if (this.#isReleased) throw new Error("this model was released; load it again");
    const isList = Array.isArray(fields[0]);
    const lists = isList ? fields : fields.map((field) => [field]);
    if (lists.some((list) => !Array.isArray(list) || list.length !== lists[0].length)) {
      throw new Error("both are texts, or lists of as many texts");
    }
    for (const text of lists.flat()) checkText(verb, text);
    const result = this.#queue.then(async () => {
      const results = [];
      for (let i = 0; i < lists[0].length; i++) {
        results.push(await predict(...lists.map((list) => list[i])));
      }
      return isList ? results : results[0];
    });
    this.#queue = result.catch(() => {});
    return result;
  }
}

function exitRules(config, exit, threshold) {
  if (!config.has_exits) {
    throw new Error("this model has no exits, so every text takes all its layers");
  }
  const entries = Object.entries(config.tasks);
  return Object.fromEntries(entries.map(([verb, task]) => [verb, makeRule(task, exit, threshold)]));
}

async function importRuntime() {
  try {
    return await import("onnxruntime-web");
  } catch (error) {
    throw new Error(
      "onnxruntime-web cannot be imported: run npm install in the exported folder, and name it in " +
        `the page's import map (README.md). ${error.message}`,
    );
  }
}

function checkText(verb, text) {
  if (typeof text !== "string") throw new Error(`expected a text for ${verb}; got ${typeof text}`);
  if (words(text).length === 0)
    throw new Error(`the text for ${verb} is empty; write what is to be read`);
}

function norm(vector) {
  return Math.sqrt(vector.reduce((sum, number) => sum + number * number, 0));
}
