// The files of the folder, each compared with manifest.json: a browser's cache, or an upload that
// broke off, may hold a file of another export.

export class Folder {
  #url;
  #entries;
  #onProgress;
  #loaded = 0;
  #total = 0;

  // `onProgress(loadedBytes, totalBytes)`, of the files that were asked for so far.
  static async open(url, onProgress = () => {}) {
    const folder = new Folder();
    folder.#url = url;
    folder.#onProgress = onProgress;
    const manifest = await get(new URL("manifest.json", url));
    folder.#entries = JSON.parse(await manifest.text()).files;
    return folder;
  }

  async json(name) {
    return JSON.parse(new TextDecoder().decode(await this.bytes(name)));
  }

  async bytes(name) {
    const entry = this.#entries[name];
    if (entry === undefined)
      throw new Error(`manifest.json lists no ${name}; export the model again`);
    this.#total += entry.bytes;
    const response = await get(new URL(name, this.#url));
    const blocks = [];
    for (const reader = response.body.getReader(); ;) {
      const { done, value } = await reader.read();
      if (done) break;
      blocks.push(value);
      this.#loaded += value.length;
      this.#onProgress(this.#loaded, this.#total);
    }
    const bytes = new Uint8Array(await new Blob(blocks).arrayBuffer());
    const hash = await digest(bytes);
    if (bytes.length !== entry.bytes || (hash ?? entry.sha256) !== entry.sha256) {
      throw new Error(
        `${name} is not the file that manifest.json lists; reload without the browser's cache, ` +
          "or copy the folder again",
      );
    }
    return bytes;
  }
}

async function get(url) {
  let response;
  try {
    response = await fetch(url, { cache: "no-cache" }); // asks the server whether it has changed
  } catch {
    throw new Error(`${url} cannot be fetched; serve the folder over http`);
  }
  if (!response.ok) throw new Error(`${url} cannot be fetched (status ${response.status})`);
  return response;
}

// Browsers compute digests on https and localhost alone; elsewhere the length has to do.
async function digest(bytes) {
  if (globalThis.crypto?.subtle === undefined) return null;
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
