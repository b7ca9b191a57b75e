// What the page knows of each verb: its fields, its request, its examples, how results are shown,
// and which columns of a table it reads. `cuts`: the service cuts a long text when asked to.
// `needs`: what a model's list of verbs names it, where that is another word. `layers`: what the
// tab Layers reads of the same fields.

import { splitLines, splitWords } from "./dom.js";
import { layers } from "./layers.js";
import * as render from "./render.js";

const MAX_COMPARED = 30;
const MASK = "[MASK]";

export class InputError extends Error {
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

function required(values, field, message) {
  if (values[field].trim() === "") throw new InputError(field, message);
  return values[field];
}

const text = { name: "text", label: "Text", rows: 4 };
const oneText = (model, values) => ({
  model,
  texts: [required(values, "text", "Write a text first.")],
});
const oneOrTwo = (model, values) => {
  const body = oneText(model, values);
  const second = values.second ?? "";
  return second.trim() === "" ? body : { model, pairs: [[values.text, second]] };
};
const textColumn = {
  name: "text",
  label: "Text",
  pattern: /^(text|sentence|content|review|body|comment|message|title)/iu,
};
const textFile = {
  columns: [textColumn],
  item: ({ text: cell }) => cell,
  body: (model, items) => ({ model, texts: items }),
};

export const VERBS = {
  fill: {
    title: "Fill",
    path: "v1/fill",
    cuts: true,
    fields: [
      text,
      { name: "top", label: "Guesses for each mask", number: { min: 1, max: 50, value: 5 } },
    ],
    inserts: MASK,
    examples: [
      { name: "Rivers", values: { text: "The river flows into the [MASK]." } },
      { name: "A city", values: { text: "Paris is the capital of [MASK]." } },
      { name: "Two masks", values: { text: "She wrote a [MASK] about the [MASK] war." } },
    ],
    toBody(model, values) {
      const body = oneText(model, values);
      if (!values.text.includes(MASK)) {
        throw new InputError("text", "Put [MASK] where a word is to be guessed.");
      }
      const top = Number(values.top);
      if (!Number.isInteger(top) || top < 1 || top > 50) {
        throw new InputError("top", "The number of guesses is a whole number from 1 to 50.");
      }
      return { ...body, top };
    },
    show: (data, _body, panel) => render.guesses(data.results[0], panel.insertGuess),
  },
  embed: {
    title: "Similarity",
    path: "v1/embeddings",
    cuts: true,
    fields: [{ name: "texts", label: "Texts, one a line", rows: 6 }],
    examples: [
      {
        name: "Weather and cooking",
        values: {
          texts: [
            "It rained all night and the streets are flooded.",
            "Heavy rain has left the roads under water.",
            "Fry the onions slowly until they are golden.",
            "Add the garlic once the onions have softened.",
            "The forecast says the storm will pass by noon.",
          ].join("\n"),
        },
      },
      {
        name: "One word, two senses",
        values: {
          texts: [
            "She sat on the bank of the river.",
            "The bank raised its interest rates.",
            "They fished from the muddy shore.",
            "The lender refused the loan.",
          ].join("\n"),
        },
      },
    ],
    toBody(model, values) {
      const texts = splitLines(values.texts);
      if (texts.length < 2) throw new InputError("texts", "Write two texts or more, one a line.");
      if (texts.length > MAX_COMPARED) {
        const message = `The page compares up to ${MAX_COMPARED} texts; these are ${texts.length}.`;
        throw new InputError("texts", message);
      }
      return { model, input: texts };
    },
    show(data, body) {
      const ordered = [...data.data].sort((a, b) => a.index - b.index);
      return render.heatMap(
        body.input,
        ordered.map(({ embedding }) => embedding),
      );
    },
  },
  classify: {
    title: "Classify",
    path: "v1/classify",
    cuts: true,
    fields: [text],
    examples: [
      { name: "Warm", values: { text: "A quiet, funny film that stays with you for days." } },
      { name: "Cold", values: { text: "The plot goes nowhere and takes two hours to get there." } },
      { name: "Mixed", values: { text: "Lovely to look at, but I forgot it on the way home." } },
    ],
    toBody: oneText,
    show: (data) => render.labels(data.results[0]),
    layers: (values) => ({ text: values.text, second: "" }),
    file: textFile,
  },
  pair: {
    title: "Pair",
    path: "v1/pair",
    cuts: true,
    fields: [
      { name: "first", label: "First text", rows: 3 },
      { name: "second", label: "Second text", rows: 3 },
    ],
    examples: [
      {
        name: "Paraphrase",
        values: {
          first: "The committee postponed the vote until Monday.",
          second: "The vote was put off to the beginning of the week.",
        },
      },
      {
        name: "Contradiction",
        values: {
          first: "A man is playing the violin in the street.",
          second: "Nobody in the street is making music.",
        },
      },
    ],
    toBody: (model, values) => ({
      model,
      pairs: [
        [
          required(values, "first", "Write the first text."),
          required(values, "second", "Write the second text."),
        ],
      ],
    }),
    show: (data) => render.labels(data.results[0]),
    layers: (values) => ({ text: values.first, second: values.second }),
    file: {
      columns: [
        {
          name: "first",
          label: "First text",
          pattern: /^(text|sentence|question|premise|first)_?(1|a)?$/iu,
        },
        { name: "second", label: "Second text", pattern: /(2|_b|hypothesis|second)$/iu },
      ],
      item: ({ first, second }) => [first, second],
      body: (model, items) => ({ model, pairs: items }),
    },
  },
  regress: {
    title: "Regress",
    path: "v1/regress",
    cuts: true,
    fields: [text, { name: "second", label: "Second text, if the model reads pairs", rows: 2 }],
    examples: [
      { name: "A review", values: { text: "The room was clean, the breakfast was not worth it." } },
    ],
    toBody: oneOrTwo,
    show: (data) => render.number(data.results[0]),
    layers: (values) => values,
    file: {
      columns: [
        {
          ...textColumn,
          pattern: /^(text|sentence|content|review|body|comment|message|title|first)/iu,
        },
        {
          name: "second",
          label: "Second text, if the model reads pairs",
          pattern: /(2|_b|second)$/iu,
          isOptional: true,
        },
      ],
      item: ({ text: first, second }) => (second === undefined ? first : [first, second]),
      body: (model, items) =>
        Array.isArray(items[0]) ? { model, pairs: items } : { model, texts: items },
    },
  },
  choose: {
    title: "Choose",
    path: "v1/choose",
    cuts: true,
    fields: [
      { name: "context", label: "Context", rows: 4 },
      { name: "question", label: "Question", rows: 1 },
      { name: "options", label: "Options, one a line", rows: 4 },
    ],
    examples: [
      {
        name: "A short story",
        values: {
          context:
            "Mara missed the last bus, so she walked home along the canal. It was past midnight.",
          question: "How did Mara get home?",
          options: "by bus\non foot\nby boat\nby taxi",
        },
      },
    ],
    toBody(model, values) {
      const options = splitLines(values.options);
      if (values.context.trim() === "" && values.question.trim() === "") {
        throw new InputError("question", "Write a context or a question.");
      }
      if (options.length < 2) {
        throw new InputError("options", "Write two options or more, one a line.");
      }
      return { model, items: [{ context: values.context, question: values.question, options }] };
    },
    show: (data, body) => render.choice(data.results[0], body.items[0].options),
  },
  answer: {
    title: "Answer",
    path: "v1/answer",
    fields: [
      { name: "question", label: "Question", rows: 1 },
      { name: "context", label: "Context", rows: 7 },
    ],
    examples: [
      {
        name: "A bridge",
        values: {
          question: "When was the bridge opened?",
          context:
            "The iron bridge over the gorge was designed by two brothers and built in four " +
            "years. It was opened in May 1884, carried trains until 1931, and has been a footpath since.",
        },
      },
    ],
    toBody: (model, values) => ({
      model,
      items: [
        {
          question: required(values, "question", "Write a question."),
          context: required(values, "context", "Write the text that holds the answer."),
        },
      ],
    }),
    show: (data, body) => render.answer(data.results[0], body.items[0].context),
    file: {
      columns: [
        { name: "question", label: "Question", pattern: /^question/iu },
        { name: "context", label: "Context", pattern: /^(context|passage|text|paragraph)/iu },
      ],
      item: (cells) => cells,
      body: (model, items) => ({ model, items }),
    },
  },
  tag: {
    title: "Tag",
    path: "v1/tag",
    fields: [text],
    examples: [
      {
        name: "Names",
        values: { text: "Ada Lovelace met Charles Babbage in London in June 1833 ." },
      },
    ],
    toBody(model, values) {
      const body = oneText(model, values);
      if (splitWords(values.text).length === 0) throw new InputError("text", "Write a text first.");
      return body;
    },
    show: (data, body) => render.tags(data.results[0], body.texts[0]),
    file: {
      ...textFile,
      columns: [{ ...textColumn, label: "Words", pattern: /^(words|tokens|text|sentence)/iu }],
    },
  },
  layers: {
    title: "Layers",
    path: "v1/layers",
    needs: "embed",
    cuts: true,
    fields: [
      { ...text, rows: 3 },
      {
        name: "second",
        label: "Second text, if the model reads pairs",
        rows: 1,
        when: ({ verbs }) => verbs.includes("pair") || verbs.includes("regress"),
      },
    ],
    examples: [
      { name: "Plain", values: { text: "A quiet, funny film that stays with you for days." } },
      {
        name: "Turning",
        values: { text: "I expected to hate every minute, and then I stayed for the credits." },
      },
      { name: "Ambiguous", values: { text: "It is certainly a film, and nobody can deny that." } },
    ],
    toBody: oneOrTwo,
    show: (data) => layers(data.results[0]),
  },
};
