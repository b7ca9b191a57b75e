// The rows of a table through the service, in batches; a row that is refused costs only itself.

import { ServiceError } from "./client.js";

const BATCH_ROWS = 64;
const BATCH_CHARACTERS = 100_000;
const MAX_WAITS = 20;
const MAX_REFUSED = 20; // before any row was accepted
const LONGEST_WAIT_SECONDS = 30;
const ABOUT_ROWS = new Set([400, 413, 422, 504]);
const PASSING = new Set([429, 503]);

function* batches(items) {
  let batch = [];
  let characters = 0;
  for (const [row, item] of items.entries()) {
    if (item === null) continue;
    const size = JSON.stringify(item).length;
    const isFull = batch.length >= BATCH_ROWS || characters + size > BATCH_CHARACTERS;
    if (isFull && batch.length > 0) {
      yield batch;
      batch = [];
      characters = 0;
    }
    batch.push({ row, item });
    characters += size;
  }
  if (batch.length > 0) yield batch;
}

// `items`: what each row asks, null for a row to leave out. `send(items)` resolves to results.
// Fills `results`, one for each row: a prediction, {error} where the service refused the row.
export async function scoreRows(items, results, { send, wait, onProgress }) {
  let waits = 0;
  let numRefused = 0;
  let isAccepted = false;
  const score = async (batch) => {
    try {
      const predictions = await send(batch.map(({ item }) => item));
      if (predictions.length !== batch.length) {
        throw new ServiceError(
          `The service answered ${predictions.length} of ${batch.length} rows.`,
          0,
        );
      }
      batch.forEach(({ row }, i) => (results[row] = predictions[i]));
      waits = 0;
      isAccepted = true;
    } catch (error) {
      if (PASSING.has(error.status) && waits < MAX_WAITS) {
        waits += 1;
        await wait(Math.min(error.waitSeconds ?? waits, LONGEST_WAIT_SECONDS));
        return score(batch);
      }
      if (!ABOUT_ROWS.has(error.status)) throw error;
      if (batch.length === 1) {
        numRefused += 1;
        if (!isAccepted && numRefused >= MAX_REFUSED) throw error;
        results[batch[0].row] = { error: error.message };
      } else {
        const middle = Math.ceil(batch.length / 2);
        await score(batch.slice(0, middle));
        return score(batch.slice(middle));
      }
    }
    onProgress(batch.length);
  };
  for (const batch of batches(items)) await score(batch);
}

export function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(new DOMException("cancelled", "AbortError"));
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", stop);
      resolve();
    }, 1000 * seconds);
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
  });
}
