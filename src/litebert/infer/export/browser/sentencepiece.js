// A SentencePiece unigram model in plain JavaScript: the bytes of spiece.model in; cleaned text in,
// token ids out. It follows SentencePiece's normalizer.cc and unigram_model.cc byte by byte, with
// scores in float32, so that ties are decided as there.

const NORMAL = 1;
const UNKNOWN = 2;
const USER_DEFINED = 4;
const UNUSED = 5;
const UNKNOWN_PENALTY = 10;
const LEAST_FLOAT = 1.1754943508222875e-38; // FLT_MIN, where SentencePiece's maximum starts
const SPACE = 32;
const SPACE_SYMBOL = [0xe2, 0x96, 0x81]; // ▁
const REPLACEMENT = [0xef, 0xbf, 0xbd]; // U+FFFD

export class SentencePiece {
  #normalizer;
  #types = [];
  #scores = [];
  #trie = new Trie();
  #leastScore = Infinity;
  #mostScore = LEAST_FLOAT;
  unknownId = -1;
  pieces = []; // text by id

  constructor(bytes) {
    const { pieces, trainer, normalizer } = readModel(bytes);
    const symbols = new Trie();
    for (const [id, { piece, score, type }] of pieces.entries()) {
      this.pieces.push(new TextDecoder().decode(piece));
      this.#types.push(type);
      this.#scores.push(score);
      if (type === NORMAL || type === USER_DEFINED || type === UNUSED) this.#trie.add(piece, id);
      if (type === USER_DEFINED) symbols.add(piece, id);
      if (type === UNKNOWN) this.unknownId = id;
      if (type === NORMAL) {
        this.#leastScore = Math.min(this.#leastScore, score);
        this.#mostScore = Math.max(this.#mostScore, score);
      }
    }
    this.#normalizer = new Normalizer(normalizer, trainer.suffix, symbols);
  }

  // [{id, end}]: `end` is the byte of the normalized text where the token ends.
  encode(text) {
    return this.#mergeUnknown(this.#bestPath(this.normalize(text)));
  }

  normalize(text) {
    return this.#normalizer.normalize(new TextEncoder().encode(text));
  }

  // How many bytes the normalizer puts before a text.
  get prefixLength() {
    return this.#normalizer.prefix.length;
  }

  #bestPath(bytes) {
    const size = bytes.length;
    const ids = new Int32Array(size + 1);
    const starts = new Int32Array(size + 1).fill(-1);
    const totals = new Float32Array(size + 1);
    const unknownScore = Math.fround(this.#leastScore - UNKNOWN_PENALTY);
    // a sum of two floats is compared as a float, except for symbols, whose scores are doubles
    const offer = (end, start, id, total) => {
      if (starts[end] !== -1 && !(total > totals[end])) return;
      ids[end] = id;
      starts[end] = start;
      totals[end] = total;
    };
    for (let start = 0, length; start < size; start += length) {
      const before = totals[start];
      length = Math.min(characterLength(bytes[start]), size - start);
      let isToken = false; // the character alone
      let node = 0;
      for (let end = start + 1; end <= size; end++) {
        node = this.#trie.step(node, bytes[end - 1]);
        if (node === undefined) break;
        const id = this.#trie.values[node];
        if (id === -1 || this.#types[id] === UNUSED) continue;
        if (this.#types[id] === USER_DEFINED) {
          const bonus = Math.fround((end - start) * this.#mostScore) - 0.1;
          offer(end, start, id, bonus + before);
        } else {
          offer(end, start, id, Math.fround(this.#scores[id] + before));
        }
        isToken ||= end - start === length;
      }
      if (!isToken) {
        offer(start + length, start, this.unknownId, Math.fround(unknownScore + before));
      }
    }
    const path = [];
    for (let end = size; end > 0; end = starts[end]) path.push({ id: ids[end], end });
    return path.reverse();
  }

  // A run of unknown characters is one token.
  #mergeUnknown(path) {
    const isUnknown = (token) => token?.id === this.unknownId;
    return path.filter((token, at) => !(isUnknown(token) && isUnknown(path[at + 1])));
  }
}

// SentencePiece's own normalization: rules for characters, then spaces.
class Normalizer {
  #spec;
  #symbols;
  #units; // a double array (darts-clone): the longest rule that a text begins with
  #replacements;
  #isSuffix;

  constructor(spec, isSuffix, symbols) {
    this.#spec = spec;
    this.#symbols = symbols;
    this.#isSuffix = isSuffix;
    const map = spec.charsmap;
    const size = map.length < 4 ? 0 : new DataView(map.buffer, map.byteOffset).getUint32(0, true);
    this.#units = new Uint32Array(map.slice(4, 4 + size).buffer);
    this.#replacements = map.subarray(4 + size);
  }

  get space() {
    return this.#spec.escapesSpaces ? SPACE_SYMBOL : [SPACE];
  }

  get prefix() {
    return this.#spec.addsPrefix && !this.#isSuffix ? this.space : [];
  }

  normalize(bytes) {
    const collapses = this.#spec.collapsesSpaces;
    let at = 0;
    if (collapses) {
      for (; at < bytes.length;) {
        const [piece, length] = this.#first(bytes, at);
        if (piece.length !== 1 || piece[0] !== SPACE) break;
        at += length;
      }
    }
    if (at >= bytes.length) return new Uint8Array();
    const result = [...this.prefix];
    let isAfterSpace = collapses;
    while (at < bytes.length) {
      const [piece, length] = this.#first(bytes, at);
      let from = 0;
      while (isAfterSpace && piece[from] === SPACE) from++;
      for (let i = from; i < piece.length; i++) {
        if (piece[i] === SPACE) result.push(...this.space);
        else result.push(piece[i]);
      }
      if (from < piece.length) isAfterSpace = piece[piece.length - 1] === SPACE;
      if (!collapses) isAfterSpace = false;
      at += length;
    }
    const space = this.space;
    while (
      collapses &&
      space.every((byte, i) => result[result.length - space.length + i] === byte)
    ) {
      result.length -= space.length;
    }
    if (this.#spec.addsPrefix && this.#isSuffix) result.push(...space);
    return Uint8Array.from(result);
  }

  // What the text at `at` begins with becomes, and how many bytes that is.
  #first(bytes, at) {
    const symbol = this.#symbols.longest(bytes, at);
    if (symbol > 0) return [bytes.subarray(at, at + symbol), symbol];
    let length = 0;
    let value = 0;
    const units = this.#units;
    for (let i = at, node = offset(units[0] ?? 0); i < bytes.length && units.length > 0; i++) {
      node ^= bytes[i];
      const unit = units[node] ?? 0;
      if ((unit & 0x800000ff) >>> 0 !== bytes[i]) break;
      node ^= offset(unit);
      if ((unit >>> 8) & 1) {
        length = i + 1 - at;
        value = units[node] & 0x7fffffff;
      }
    }
    if (length > 0) {
      const end = this.#replacements.indexOf(0, value);
      return [this.#replacements.subarray(value, end), length];
    }
    const size = characterLength(bytes[at]);
    return at + size <= bytes.length ? [bytes.subarray(at, at + size), size] : [REPLACEMENT, 1];
  }
}

function offset(unit) {
  return (unit >>> 10) << ((unit & (1 << 9)) >>> 6);
}

// Bytes of a character of UTF-8, by its first.
function characterLength(byte) {
  return byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

// Byte strings with a number each.
class Trie {
  #steps = new Map(); // node * 256 + byte -> node
  values = [-1];

  add(bytes, value) {
    let node = 0;
    for (const byte of bytes) {
      const key = node * 256 + byte;
      let next = this.#steps.get(key);
      if (next === undefined) {
        next = this.values.push(-1) - 1;
        this.#steps.set(key, next);
      }
      node = next;
    }
    this.values[node] = value;
  }

  step(node, byte) {
    return this.#steps.get(node * 256 + byte);
  }

  // Length of the longest string that `bytes` continues with; 0 for none.
  longest(bytes, at) {
    let length = 0;
    let node = 0;
    for (let i = at; i < bytes.length && this.values.length > 1; i++) {
      node = this.step(node, bytes[i]);
      if (node === undefined) break;
      if (this.values[node] !== -1) length = i + 1 - at;
    }
    return length;
  }
}

// ---- the file, a protobuf message (sentencepiece_model.proto)

function readModel(bytes) {
  const pieces = [];
  let trainer = {};
  let normalizer = {};
  for (const [number, value] of fields(bytes)) {
    if (number === 1) {
      const piece = Object.fromEntries(fields(value));
      pieces.push({ piece: piece[1], score: piece[2] ?? 0, type: piece[3] ?? NORMAL });
    }
    if (number === 2) trainer = Object.fromEntries(fields(value));
    if (number === 3) normalizer = Object.fromEntries(fields(value));
  }
  return {
    pieces,
    trainer: { suffix: Boolean(trainer[24] ?? 0) },
    normalizer: {
      charsmap: normalizer[2] ?? new Uint8Array(),
      addsPrefix: Boolean(normalizer[3] ?? 1),
      collapsesSpaces: Boolean(normalizer[4] ?? 1),
      escapesSpaces: Boolean(normalizer[5] ?? 1),
    },
  };
}

function* fields(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const varint = () => {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = view.getUint8(at++);
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
  };
  while (at < bytes.length) {
    const key = varint();
    const number = Math.floor(key / 8);
    const kind = key % 8;
    if (kind === 0) {
      yield [number, varint()];
    } else if (kind === 5) {
      yield [number, view.getFloat32(at, true)];
      at += 4;
    } else if (kind === 1) {
      at += 8;
    } else {
      const size = varint();
      yield [number, bytes.subarray(at, at + size)];
      at += size;
    }
  }
}
