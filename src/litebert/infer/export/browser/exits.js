// When a row leaves: criteria of early exit, as litebert's Python has them. A criterion reads the
// logits after each layer; the row leaves at the first depth where it reaches the threshold.
//
// patience: how many times in a row the answer stayed as it was one depth before.
// confidence: the probability of the answer; of several labels the least certain one's.
// cumulative: 1 - Π (1 - confidence), where a guess among all labels counts as 0.

export const CRITERIA = ["patience", "confidence", "cumulative"];

// The rule for a task: its calibrated threshold, unless one is given.
export function makeRule(task, criterion, threshold = null) {
  if (!CRITERIA.includes(criterion)) {
    throw new Error(`exit is one of ${CRITERIA.join(", ")}; got ${criterion}`);
  }
  if (task.head === "regress" && criterion !== "patience") {
    throw new Error(`numbers have no probability, so regress leaves by patience; got ${criterion}`);
  }
  const stored = task.exits[criterion] ?? {};
  if (threshold === null && stored.threshold === undefined) {
    const names = Object.keys(task.exits).join(", ") || "none";
    throw new Error(`no threshold is stored for ${criterion} (there are: ${names}); give one`);
  }
  const rule = {
    criterion,
    threshold: threshold ?? stored.threshold,
    tolerance: stored.tolerance ?? task.exit_tolerance,
    labelThreshold: task.label_threshold,
    head: task.head,
  };
  const [low, high] = criterion === "patience" ? [1, 1e6] : [0, 1];
  if (!Number.isFinite(rule.threshold) || rule.threshold < low || rule.threshold > high) {
    const expected = criterion === "patience" ? "depths, at least 1" : "from 0 to 1";
    throw new Error(`the threshold of ${criterion} is ${expected}; got ${rule.threshold}`);
  }
  if (task.head === "regress" && !rule.tolerance) {
    throw new Error("the model has no tolerance within which numbers count as the same");
  }
  return rule;
}

// A function of the logits after each depth in turn: whether the row leaves now.
export function leaving(rule) {
  let before = null;
  let streak = 0;
  let doubt = 1;
  return (logits) => {
    if (rule.criterion === "confidence") return confidence(rule.head, logits) >= rule.threshold;
    if (rule.criterion === "cumulative") {
      doubt *= 1 - aboveChance(rule.head, logits);
      return 1 - doubt >= rule.threshold;
    }
    const answer = answerOf(rule, logits);
    const isSame = before?.every((number, i) => Math.abs(answer[i] - number) <= rule.tolerance);
    streak = isSame ? streak + 1 : 0;
    before = answer;
    return streak >= rule.threshold;
  };
}

function answerOf({ head, labelThreshold }, logits) {
  if (head === "classify") return [logits.indexOf(Math.max(...logits))];
  if (head === "multilabel") return Array.from(sigmoid(logits), (p) => Number(p >= labelThreshold));
  return Array.from(logits);
}

function confidence(head, logits) {
  if (head === "classify") return Math.max(...softmax(logits));
  return Math.min(...sigmoid(logits.map(Math.abs)));
}

function aboveChance(head, logits) {
  const chance = head === "classify" ? 1 / logits.length : 0.5;
  if (chance === 1) return 1;
  return Math.min(Math.max((confidence(head, logits) - chance) / (1 - chance), 0), 1);
}

export function softmax(logits) {
  let highest = -Infinity;
  for (const logit of logits) highest = Math.max(highest, logit);
  const powers = Float64Array.from(logits, (logit) => Math.exp(logit - highest));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
}

export function sigmoid(logits) {
  return Float64Array.from(logits, (logit) => {
    const power = Math.exp(-Math.abs(logit)); // never overflows
    return (logit >= 0 ? 1 : power) / (1 + power);
  });
}
