// Requests to the service, and what went wrong as a sentence.

export class ServiceError extends Error {
  constructor(message, status, { waitSeconds = null, code = null } = {}) {
    super(message);
    this.status = status;
    this.waitSeconds = waitSeconds;
    this.code = code; // OpenAI's name of the mistake, such as context_length_exceeded
  }
}

const NO_ANSWER = "The service does not answer. Is litebert serve still running?";
const SENTENCES = {
  401: "The service did not accept the key.",
  404: "The service does not know this model or address.",
  413: "The request is larger than the service accepts.",
  429: "The service is busy.",
  503: "The service is not ready.",
  504: "The service did not finish in time.",
};

function sentence(text) {
  const trimmed = text.trim();
  if (trimmed === "") return "";
  const begun = trimmed[0].toUpperCase() + trimmed.slice(1);
  return /[.!?…]$/u.test(begun) ? begun : begun + ".";
}

function explain(status, detail, waitSeconds) {
  const known = SENTENCES[status] ?? (status >= 500 ? "The service failed." : "");
  const parts = [known, sentence(detail)];
  if (waitSeconds !== null) parts.push(`Try again in ${waitSeconds} s.`);
  const text = parts.filter(Boolean).join(" ");
  return text || `The service answered with status ${status}.`;
}

// Why a request gave nothing to show; a TypeError is data of another form.
export function reason(error) {
  const isForm = error instanceof TypeError;
  return isForm ? "The service answered in a form that this page does not know." : error.message;
}

export class Client {
  #key = ""; // in memory alone
  #askKey;
  #asking = null;

  // `askKey(isRejected)` resolves to a key, or to null where the person gives none.
  constructor(askKey) {
    this.#askKey = askKey;
  }

  get hasKey() {
    return this.#key !== "";
  }

  models(signal) {
    return this.#request("v1/models", { signal });
  }

  post(path, body, signal) {
    return this.#request(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal,
    });
  }

  // Resolves to {data, milliseconds}; a request that needs a key is sent again with the new one.
  async #request(path, options) {
    for (;;) {
      const usedKey = this.#key;
      try {
        return await this.#send(path, options, usedKey);
      } catch (error) {
        if (!(error instanceof ServiceError) || error.status !== 401) throw error;
        if (usedKey === this.#key && !(await this.#renewKey(usedKey !== ""))) throw error;
      }
    }
  }

  async #renewKey(isRejected) {
    this.#asking ??= this.#askKey(isRejected).finally(() => (this.#asking = null));
    const key = await this.#asking;
    if (key === null) return false;
    this.#key = key;
    return true;
  }

  async #send(path, options, key) {
    const headers = { ...options.headers };
    if (key !== "") headers.Authorization = `Bearer ${key}`;
    const start = performance.now();
    let response, text;
    try {
      response = await fetch(path, { ...options, headers, cache: "no-store" });
      text = await response.text();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ServiceError(NO_ANSWER, 0);
    }
    const milliseconds = performance.now() - start;
    let data = null;
    try {
      data = JSON.parse(text);
    } catch {
      if (response.ok) throw new ServiceError("The service answered with what is not JSON.", 0);
    }
    if (!response.ok) {
      const detail = typeof data?.error?.message === "string" ? data.error.message : "";
      const wait = Number.parseInt(response.headers.get("Retry-After") ?? "", 10);
      const waitSeconds = Number.isFinite(wait) ? wait : null;
      const message = explain(response.status, detail, waitSeconds);
      throw new ServiceError(message, response.status, { waitSeconds, code: data?.error?.code });
    }
    return { data, milliseconds };
  }
}
