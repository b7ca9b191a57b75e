// The model between token ids and logits: one row in, states and logits out. The graph of a layer
// is called once for each application, so that a shared layer is loaded once.

export class Network {
  #ort;
  #config;
  #tensors = {}; // typed arrays by name
  #sessions = {};

  // `withExits`: also load the graphs that let a row leave early.
  static async load(ort, config, folder, { withExits, providers }) {
    const network = new Network();
    network.#ort = ort;
    network.#config = config;
    const graphs = config.graphs.filter((name) => withExits || !name.startsWith("exit-"));
    const tensors = Object.keys(config.tensors);
    const files = [
      ...graphs.map((name) => `${name}.onnx`),
      ...tensors.map((name) => `${name}.bin`),
    ];
    const contents = await Promise.all(files.map((name) => folder.bytes(name)));
    for (const [i, name] of graphs.entries()) {
      const options = { executionProviders: providers };
      network.#sessions[name] = await ort.InferenceSession.create(contents[i], options);
    }
    for (const [i, name] of tensors.entries()) {
      const bytes = contents[graphs.length + i];
      const kind = config.tensors[name].type === "int8" ? Int8Array : Float32Array;
      network.#tensors[name] = new kind(bytes.buffer);
    }
    return network;
  }

  get depth() {
    return this.#config.plan.length;
  }

  // The last states of the columns `needed`, by default all, as {data, size}: `size` numbers each.
  async run(row, needed = null) {
    let states = await this.embed(row);
    for (let number = 0; number < this.depth; number++) {
      const isLast = number === this.depth - 1;
      states = await this.layer(number, states, isLast ? needed : null);
    }
    const last = await this.#finish(states);
    return { data: last.data, size: last.dims[2] };
  }

  // Logits of a head that reads [CLS], by the head's name.
  async pooled(row, head) {
    const { data, size } = await this.run(row, [0]);
    return this.#head("pooled", data.subarray(0, size), head);
  }

  // The same after every layer, until `leaves(logits)` is true: {logits, depth}.
  async pooledEarly(row, head, leaves) {
    let states = await this.embed(row);
    for (let depth = 1; ; depth++) {
      const isLast = depth === this.depth;
      states = await this.layer(depth - 1, states, isLast ? [0] : null);
      const size = states.dims[2];
      const first = new this.#ort.Tensor("float32", states.data.slice(0, size), [1, 1, size]);
      const { data } = await this.#finish(first);
      const own = `exit-${depth}`;
      const graph = !isLast && own in this.#sessions ? own : "pooled";
      const logits = await this.#head(graph, data, head);
      if (isLast || leaves(logits)) return { logits, depth };
    }
  }

  // For each of the columns, the logits of the first `size` tokens of the vocabulary.
  async masked(row, columns, size) {
    const { data, size: width } = await this.run(row, columns);
    const states = new this.#ort.Tensor("float32", data, [columns.length, width]);
    const { query } = await this.#sessions.masked.run({ states });
    const { token_table: table, token_scales: scales, masked_bias: bias } = this.#tensors;
    const length = query.dims[1];
    return columns.map((_, at) => {
      const vector = query.data.subarray(at * length, (at + 1) * length);
      return Float64Array.from({ length: size }, (_, id) => {
        let sum = 0;
        for (let i = 0, start = id * length; i < length; i++) sum += vector[i] * table[start + i];
        return sum * (scales?.[id] ?? 1) + bias[id];
      });
    });
  }

  // Gives the memory of the graphs back.
  async release() {
    for (const session of Object.values(this.#sessions)) await session.release();
    this.#sessions = {};
  }

  async embed({ ids, segments }) {
    const { token_table: table, token_scales: scales } = this.#tensors;
    const length = this.#config.tensors.token_table.shape[1];
    const rows = new Float32Array(ids.length * length);
    for (const [at, id] of ids.entries()) {
      const scale = scales?.[id] ?? 1;
      for (let i = 0; i < length; i++) rows[at * length + i] = table[id * length + i] * scale;
    }
    const { out } = await this.#sessions.embedding.run({
      tokens: new this.#ort.Tensor("float32", rows, [1, ids.length, length]),
      segment_ids: this.#integers(segments),
    });
    return out;
  }

  // States after an application of a layer, of the columns `needed` or of all.
  async layer(number, states, needed = null) {
    const length = states.dims[1];
    for (const { graph, attends, adapters } of this.#config.plan[number]) {
      const inputs = { states };
      if (attends) {
        const bias = new Float32Array(length); // a row alone has no padding
        inputs.bias = new this.#ort.Tensor("float32", bias, [1, 1, 1, length]);
        inputs.needed = this.#integers(needed ?? Array.from(bias, (_, column) => column));
        for (const name of ["cos", "sin"]) {
          if (name in this.#tensors) inputs[name] = this.#part(name, 0, length);
        }
      }
      for (const name of adapters) inputs[name] = this.#part(name, number);
      states = (await this.#sessions[graph].run(inputs)).out;
    }
    return states;
  }

  async #finish(states) {
    return this.#config.has_final ? (await this.#sessions.final.run({ states })).out : states;
  }

  async #head(graph, first, head) {
    const states = new this.#ort.Tensor("float32", first.slice(), [1, first.length]);
    return (await this.#sessions[graph].run({ states }))[head].data;
  }

  // Of a tensor, matrix `number`; or, where `rows` are given, that many rows.
  #part(name, number, rows = null) {
    const { shape } = this.#config.tensors[name];
    const dims = rows === null ? shape.slice(1) : [rows, ...shape.slice(1)];
    const size = dims.reduce((product, length) => product * length, 1);
    const data = this.#tensors[name].subarray(number * size, (number + 1) * size);
    return new this.#ort.Tensor("float32", data, dims);
  }

  #integers(numbers) {
    const data = BigInt64Array.from(numbers, BigInt);
    return new this.#ort.Tensor("int64", data, [1, numbers.length]);
  }
}
