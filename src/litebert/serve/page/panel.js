// The panel of one verb: its fields, examples, request, result, and the table that it scores.

import { reason } from "./client.js";
import { button, duration, make } from "./dom.js";
import { filePanel } from "./file_panel.js";
import { asCurl, asPython } from "./snippets.js";
import { InputError, VERBS } from "./verbs.js";

let numIds = 0;

export class Panel {
  #verb;
  #spec;
  #client;
  #models;
  #inputs = {};
  #model;
  #facts = make("span", { class: "quiet facts" });
  #send;
  #result;
  #status;
  #openLayers;
  #running = null; // AbortController of the request that is out

  // `openLayers(model, values)` shows the tab Layers with these values.
  constructor(verb, models, client, openLayers) {
    this.#openLayers = openLayers;
    this.#verb = verb;
    this.#spec = VERBS[verb];
    this.#client = client;
    this.#models = models;
    this.element = this.#build();
  }

  #build() {
    const spec = this.#spec;
    this.#model = make(
      "select",
      { "aria-label": "Model", on: { change: () => this.#describe() } },
      ...this.#models.map(({ id }) => make("option", { value: id }, id)),
    );
    this.#describe();
    this.#send = make("button", { type: "submit", class: "primary" }, "Send");
    this.#status = make("p", { class: "status", role: "status" });
    const result = { class: "result", role: "region", "aria-label": "Result", hidden: true };
    this.#result = make("div", result);
    const examples = spec.examples.map((example) =>
      button(example.name, () => this.#useExample(example), { class: "link" }),
    );
    const canSome = ({ when }) => when === undefined || this.#models.some(when);
    const fields = spec.fields.filter(canSome).map((field) => this.#field(field));
    const on = {
      submit: (event) => this.#submit(event),
      keydown: (event) => this.#key(event),
    };
    const form = make(
      "form",
      { novalidate: true, on },
      make("p", { class: "examples" }, make("span", { class: "quiet" }, "Examples"), ...examples),
      ...fields,
      make(
        "div",
        { class: "actions" },
        this.#send,
        make("label", { class: "model" }, make("span", { class: "quiet" }, "with"), this.#model),
        this.#facts,
        make("span", { class: "grow" }),
        this.#copyButton("Copy as curl", asCurl),
        this.#copyButton("Copy as Python", asPython),
      ),
    );
    const children = [form, this.#status, this.#result];
    if (spec.file) {
      this.file = filePanel(spec, this.#client, () => this.#model.value);
      children.push(this.file.element);
    }
    const attributes = {
      id: `panel-${this.#verb}`,
      role: "tabpanel",
      "aria-labelledby": `tab-${this.#verb}`,
      hidden: true,
    };
    return make("section", attributes, ...children);
  }

  // What the chosen model is: engine, precision, longest input, labels.
  #describe() {
    const { engine, int8, max_length: length, labels, exits } = this.#models.find(
      ({ id }) => id === this.#model.value,
    );
    const numLabels = labels?.length ?? 0;
    const facts = [engine, int8 ? "int8" : "", length ? `${length} tokens` : ""];
    if (numLabels > 4) facts.push(`${numLabels} labels`);
    if (exits) facts.push("exits");
    this.#facts.textContent = facts.filter(Boolean).join(", ");
  }

  #field({ name, label, rows, number }) {
    const id = `field-${(numIds += 1)}`;
    const input = number
      ? make("input", { id, type: "number", inputmode: "numeric", ...number })
      : make("textarea", { id, rows, spellcheck: "false" });
    this.#inputs[name] = input;
    const { inserts } = this.#spec;
    const insert =
      inserts && name === "text"
        ? button(`Insert ${inserts}`, () => this.#insert(inserts), { class: "link" })
        : null;
    return make(
      "div",
      { class: number ? "field short" : "field" },
      make("div", { class: "field-head" }, make("label", { for: id }, label), insert),
      input,
    );
  }

  #copyButton(title, write) {
    const copy = async () => {
      const body = this.#body();
      if (body === null) return;
      const url = new URL(this.#spec.path, document.baseURI).href;
      const written = write(url, body, this.#client.hasKey);
      try {
        await navigator.clipboard.writeText(written);
        this.#say("Copied.");
      } catch {
        // without HTTPS browsers lend no clipboard, so that the text is shown to be copied by hand
        this.#say("The browser does not allow copying here; select the text below.");
        this.#show(make("pre", { tabindex: "0" }, written));
      }
    };
    return button(title, copy, { class: "link" });
  }

  #values() {
    const entries = Object.entries(this.#inputs);
    return Object.fromEntries(entries.map(([name, input]) => [name, input.value]));
  }

  // The request's body; null where a field is missing, which is then said and focused.
  #body() {
    try {
      return this.#spec.toBody(this.#model.value, this.#values());
    } catch (error) {
      if (!(error instanceof InputError)) throw error;
      this.#fail(error.message);
      this.#inputs[error.field].focus();
      return null;
    }
  }

  #say(text, isError = false) {
    this.#status.classList.toggle("error", isError);
    this.#status.textContent = text;
  }

  #fail(message) {
    this.#say(message, true);
    this.#result.hidden = true;
  }

  #show(element) {
    this.#result.replaceChildren(element);
    this.#result.hidden = false;
  }

  #key(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.#submit(event);
    if (event.key === "Escape") this.#running?.abort();
  }

  #offerToCut(error) {
    if (error.code !== "context_length_exceeded" || !this.#spec.cuts) return;
    const again = () => this.#submit(null, { truncate: true });
    this.#status.append(" ", button("Cut it and send again", again));
  }

  #offerLayers(model) {
    if (!this.#spec.layers) return;
    const values = this.#spec.layers(this.#values());
    const open = () => this.#openLayers(model, values);
    this.#result.append(button("Layer by layer", open, { class: "link" }));
  }

  // Fills the fields in and sends them to a model.
  ask(model, values) {
    if (this.#models.some(({ id }) => id === model)) this.#model.value = model;
    this.#describe();
    this.#useExample({ values });
  }

  async #submit(event, more = {}) {
    event?.preventDefault();
    const isCancel = event?.type === "submit" && this.#running !== null;
    this.#running?.abort();
    if (isCancel) return;
    const plain = this.#body();
    if (plain === null) return;
    const body = { ...plain, ...more };
    const request = new AbortController();
    this.#running = request;
    this.#send.textContent = "Cancel";
    this.#say("");
    this.#result.setAttribute("aria-busy", "true");
    try {
      const { data, milliseconds } = await this.#client.post(this.#spec.path, body, request.signal);
      if (this.#running !== request) return;
      this.#show(this.#spec.show(data, body, this));
      this.#offerLayers(data.model ?? body.model);
      const depth = data.results?.[0]?.depth;
      const left = depth === undefined ? "" : ` · left after layer ${depth}`;
      this.#say(`${data.model ?? body.model} · ${duration(milliseconds)}${left}`);
    } catch (error) {
      if (this.#running !== request) return;
      if (error.name === "AbortError") this.#say("Cancelled.");
      else this.#fail(reason(error));
      this.#offerToCut(error);
    } finally {
      if (this.#running === request) {
        this.#running = null;
        this.#send.textContent = "Send";
        this.#result.removeAttribute("aria-busy");
      }
    }
  }

  #useExample({ values }) {
    for (const [name, input] of Object.entries(this.#inputs)) {
      if (input.type !== "number") input.value = values[name] ?? "";
    }
    this.#submit(null);
  }

  #insert(text) {
    const input = this.#inputs.text;
    input.setRangeText(text, input.selectionStart, input.selectionEnd, "end");
    input.focus();
  }

  // Puts a guess where a mask is; while masks are left, they are filled again.
  insertGuess = (maskIndex, token) => {
    const input = this.#inputs.text;
    const mask = this.#spec.inserts;
    let start = -1;
    for (let i = 0; i <= maskIndex; i += 1) start = input.value.indexOf(mask, start + 1);
    if (start < 0) {
      this.#say("The text has changed; send it again.", true);
      return;
    }
    input.setRangeText(token, start, start + mask.length, "end");
    if (input.value.includes(mask)) {
      this.#submit(null);
      return;
    }
    const putBack = () => {
      input.setRangeText(mask, start, start + token.length, "end");
      this.#submit(null);
      input.focus();
    };
    const text = make(
      "p",
      { class: "passage" },
      input.value.slice(0, start),
      make("mark", {}, token),
      input.value.slice(start + token.length),
    );
    const back = button("Put the mask back", putBack);
    this.#say("No mask is left.");
    this.#show(make("div", {}, text, back));
    back.focus();
  };
}
