// Raw text in, the text that SentencePiece sees out: litebert's clean-up.
//
// What becomes of a character is read from tables (cleanup.json), so that ids do not depend on
// the browser's version of Unicode.

// As Python's str.split() does; \s is another set.
const SPACES = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/u;
const HANGUL = /[\uac00-\ud7a3]/u;
const SIGMA = "Σ";

// `rules`: lowercase, keep_accents, dotless_i.
export class Cleaner {
  #rules;
  #decomposed;
  #lowered;
  #cased;
  #ignorable;

  constructor(rules, tables) {
    this.#rules = rules;
    this.#decomposed = new Map(Object.entries(tables.decomposed));
    this.#lowered = new Map(Object.entries(tables.lowered));
    this.#cased = characterClass(tables.cased);
    this.#ignorable = characterClass(tables.ignorable);
  }

  clean(text) {
    let cleaned = words(text).join(" ");
    if (this.#rules.lowercase && this.#rules.dotless_i) {
      cleaned = cleaned.replaceAll("I\u0307", "i").replaceAll("İ", "i").replaceAll("I", "ı");
    }
    if (!this.#rules.keep_accents) cleaned = this.#decompose(cleaned);
    return this.#rules.lowercase ? this.#lower(cleaned) : cleaned;
  }

  #decompose(text) {
    let result = "";
    for (const char of text) {
      if (char < "\x80") result += char;
      else if (HANGUL.test(char)) result += char.normalize("NFKD");
      else result += this.#decomposed.get(char) ?? char;
    }
    return result;
  }

  #lower(text) {
    if (text.includes(SIGMA)) {
      const chars = [...text];
      return chars.map((char, at) => this.#lowerAt(chars, at)).join("");
    }
    let result = "";
    for (const char of text) result += this.#lowered.get(char) ?? char;
    return result;
  }

  #lowerAt(chars, at) {
    if (chars[at] !== SIGMA) return this.#lowered.get(chars[at]) ?? chars[at];
    const endsWord = this.#seesLetter(chars, at, -1) && !this.#seesLetter(chars, at, 1);
    return endsWord ? "ς" : "σ";
  }

  #seesLetter(chars, at, step) {
    do at += step;
    while (at >= 0 && at < chars.length && this.#ignorable.test(chars[at]));
    return at >= 0 && at < chars.length && (chars[at] === SIGMA || this.#cased.test(chars[at]));
  }
}

export function words(text) {
  return text.split(SPACES).filter(Boolean);
}

function characterClass(inside) {
  return inside === "" ? /(?!)/u : new RegExp(`^[${inside}]$`, "u");
}
