// Texts in, rows of token ids out: clean-up, SentencePiece and ALBERT's special tokens. Nothing else
// is needed, so that it runs in a page, a worker and Node alike.

import { Cleaner } from "./clean.js";
import { SentencePiece } from "./sentencepiece.js";

export const MASK = "[MASK]";
const WORD_START = "▁";

// `model`: the bytes of spiece.model. `settings`: the tokenizer's part of config.json. `tables`:
// cleanup.json.
export class Tokenizer {
  #cleaner;
  #model;
  #splits;
  #standIn;

  constructor(model, settings, tables) {
    this.#cleaner = new Cleaner(settings.rules, tables);
    this.#model = new SentencePiece(model);
    this.#splits = new Map(Object.entries(settings.splits).map(([id, ids]) => [Number(id), ids]));
    this.#standIn = settings.stand_in;
    this.special = settings.special; // ids of pad, unk, cls, sep, mask
  }

  get size() {
    return this.#model.pieces.length;
  }

  // A token's text, without the mark of a word start.
  text(id) {
    const piece = this.#model.pieces[id];
    return piece.startsWith(WORD_START) ? piece.slice(1) || piece : piece;
  }

  // The token ids of a text, without special tokens.
  encode(text) {
    return this.#ids(this.#model.encode(this.#cleaner.clean(text)));
  }

  // [CLS] a [SEP], or [CLS] a [SEP] b [SEP]; what is too long loses tokens from the end of the
  // longer text.
  row(first, second, maxLength) {
    const { cls, sep } = this.special;
    let a = this.encode(first);
    if (second === null) {
      a = a.slice(0, maxLength - 2);
      return { ids: [cls, ...a, sep], segments: new Array(a.length + 2).fill(0) };
    }
    let b = this.encode(second);
    const room = maxLength - 3;
    const half = Math.floor((room + 1) / 2);
    const size = Math.max(Math.min(a.length, room - b.length), Math.min(a.length, half));
    a = a.slice(0, size);
    b = b.slice(0, room - size);
    const segments = [...new Array(a.length + 2).fill(0), ...new Array(b.length + 1).fill(1)];
    return { ids: [cls, ...a, sep, ...b, sep], segments };
  }

  // [CLS] text [SEP] with the mask's id at every [MASK]. The text around a mask is read as if a word
  // stood there: after "[MASK]." the period continues a word, after "[MASK] ." it starts one.
  maskedRow(text, maxLength) {
    const [first, ...others] = text.split(MASK);
    if (others.length === 0) {
      throw new Error(`there is no ${MASK} in the text; write it where a word is to be found`);
    }
    const { cls, sep, mask } = this.special;
    let ids = this.encode(first);
    const behind = this.#model.prefixLength + new TextEncoder().encode(this.#standIn).length;
    for (const rest of others) {
      const tokens = this.#model.encode(this.#cleaner.clean(this.#standIn + rest));
      ids = ids.concat(mask, this.#ids(tokens.filter(({ end }) => end > behind)));
    }
    const room = maxLength - 2;
    const last = ids.lastIndexOf(mask);
    if (last + 1 > room) {
      throw new Error(
        `a ${MASK} is token ${last + 2} of the text, the model reads ${maxLength}; ` +
          "shorten what comes before it",
      );
    }
    return [cls, ...ids.slice(0, room), sep];
  }

  #ids(tokens) {
    return tokens.flatMap(({ id }) => this.#splits.get(id) ?? id);
  }
}
