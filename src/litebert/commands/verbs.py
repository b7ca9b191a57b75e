"""The verbs on the command line: fill, embed, classify, pair, regress, choose, answer, tag. Texts
in, from the command line or standard input; predictions out, for a person or as JSON.
"""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from litebert.checks import shorten
from litebert.commands.marks import POSITIONAL, Arg, ExitLoading, Json, Loading, note
from litebert.config import Pooling
from litebert.errors import ConfigError, DataError
from litebert.files import open_atomic, to_json
from litebert.infer.formats import guesses_to_dict, with_input
from litebert.infer.verbs import (
    MASK,
    Verb,
    answer_example,
    choice_example,
    num_characters,
    tag_example,
    text_example,
)
from litebert.models.index import default_model
from litebert.packing import num_special
from litebert.tasks.examples import (
    AnswerExample,
    ChoiceExample,
    Kind,
    TagExample,
    TaskExample,
    TextExample,
)
from litebert.terminal import write_line, write_stderr
from litebert.text.vocabulary import SPACE

if TYPE_CHECKING:
    from litebert.infer.predictor import Predictor

_Row = dict[str, Any]
"""One prediction with its input, as in the JSON output."""

ModelName = Annotated[
    str | None,
    Arg(
        help="Folder of a checkpoint, a run or a Hugging Face model, or a name that `litebert "
        "models` lists; by default the first of those that has this verb."
    ),
]
_Texts = Annotated[
    tuple[str, ...],
    POSITIONAL,
    Arg(metavar="TEXT…", help='Texts; without any, or with "-", the lines of standard input.'),
]

_FEW = 500
"""Characters, of all texts, that one thread computes."""
_CUT = ("fill", "embed", "classify", "pair", "regress")
"""Verbs that cut what is too long at its end; answer and tag read all of it in windows."""
_MOST_CHECKED = 1000
"""Texts up to which the command looks whether the model could read them."""
_MAX_COMPARED = 100
"""Texts up to which embed prints the nearest of each; more are for --out and a search library."""


def fill(
    texts: _Texts = (),
    /,
    *,
    model: ModelName = None,
    top: int = 5,
    loading: Loading,
    json: Json = False,
) -> None:
    """Predict the tokens behind [MASK]: litebert fill "The capital of [MASK] is Paris."

    Args:
        top: Predictions per mask.
    """
    inputs = _read_texts(texts)
    predictor = _load("fill", model, loading, sum(map(len, inputs)))
    predictions = predictor.fill(inputs, top=top)
    _note_unread(predictor, "fill", [(text,) for text in inputs])
    rows = [
        {"text": text} | guesses_to_dict(guesses)
        for text, guesses in zip(inputs, predictions, strict=True)
    ]

    def line(row: _Row) -> str:
        masks = [
            "   ".join(f"{guess['token']} {_percent(guess['probability'])}" for guess in mask)
            for mask in row["masks"]
        ]
        return "\n  ".join([row["text"], *masks])

    _print(rows, line, json=json)


def embed(
    texts: _Texts = (),
    /,
    *,
    model: ModelName = None,
    pooling: Pooling | None = None,
    normalize: bool | None = None,
    dimensions: int | None = None,
    out: str | None = None,
    overwrite: bool = False,
    loading: Loading,
    json: Json = False,
) -> None:
    """Turn texts into vectors: litebert embed "a sentence" "another".

    Args:
        pooling: The mean of all tokens' states, or the state of [CLS]; by default as the model was
            trained, else the mean.
        normalize: Scale every vector to length 1; by default as the model was trained, else not.
        dimensions: Keep the first so many numbers of each vector: a size that the model was trained
            for (finetune embed --matryoshka).
        out: A .npy file to write the vectors to, one row per text.
        overwrite: Replace an existing --out.
    """
    if out is not None and not out.endswith(".npy"):
        raise ConfigError(f"--out is a .npy file; got {out}")
    if out is not None and Path(out).exists() and not overwrite:
        raise ConfigError(f"{out} exists; add --overwrite, or choose another --out")
    inputs = _read_texts(texts)
    predictor = _load("embed", model, loading, sum(map(len, inputs)))
    vectors = predictor.embed(inputs, pooling=pooling, normalize=normalize, dimensions=dimensions)
    _note_unread(predictor, "embed", [(text,) for text in inputs])
    if out is not None:
        try:
            with open_atomic(out) as file:
                np.save(file, vectors)
        except OSError as error:
            raise DataError(
                f"{out} cannot be written ({error.strerror}); choose another --out"
            ) from error
        write_stderr(f"{out}: {vectors.shape[0]} vectors of {vectors.shape[1]}")
        if not json:
            return
    rows: list[_Row] = [
        {"text": text, "vector": vector.tolist()}
        for text, vector in zip(inputs, vectors, strict=True)
    ]
    if not json and 1 < len(inputs) <= _MAX_COMPARED:
        rows = [row | near for row, near in zip(rows, _nearest(inputs, vectors), strict=True)]

    def line(row: _Row) -> str:
        vector = row["vector"]
        first = " ".join(f"{number:.4f}" for number in vector[:6])
        length = float(np.linalg.norm(vector))
        text = f"{row['text']}\n  [{first} …] ({len(vector)} numbers, length {length:.4f})"
        if "nearest" not in row:
            return text
        return f"{text}\n  nearest: {row['nearest']} (cosine {row['cosine']:.2f})"

    _print(rows, line, json=json)


def classify(
    texts: _Texts = (),
    /,
    *,
    model: ModelName = None,
    loading: ExitLoading,
    json: Json = False,
) -> None:
    """Label texts with a fine-tuned model: litebert classify --model DIR "great film"."""
    examples = [text_example(text) for text in _read_texts(texts)]
    _predict(
        "classify", examples, lambda row: f"{row['text']}\n  {_best(row)}", model, loading, json
    )


def pair(
    first: Annotated[str, POSITIONAL, Arg(metavar="FIRST")],
    second: Annotated[str, POSITIONAL, Arg(metavar="SECOND")],
    /,
    *,
    model: ModelName = None,
    loading: ExitLoading,
    json: Json = False,
) -> None:
    """Label a pair of texts with a fine-tuned model: litebert pair --model DIR "A man sleeps."
    "Somebody is awake."

    Args:
        first: The first text: a premise, a sentence.
        second: The second text: a hypothesis, another sentence.
    """
    _predict("pair", [text_example(first, second)], _best, model, loading, json)


def regress(
    first: Annotated[str, POSITIONAL, Arg(metavar="FIRST")],
    second: Annotated[str | None, POSITIONAL, Arg(metavar="[SECOND]")] = None,
    /,
    *,
    model: ModelName = None,
    loading: ExitLoading,
    json: Json = False,
) -> None:
    """Score a text, or a pair of texts, with a fine-tuned model: litebert regress --model DIR "A
    man sings." "He sings."

    Args:
        first: The text, or the first of two.
        second: The second of two.
    """
    examples = [text_example(first, second)]
    _predict("regress", examples, lambda row: f"{row['value']:.4f}", model, loading, json)


def choose(
    options: Annotated[tuple[str, ...], POSITIONAL, Arg(metavar="OPTION OPTION…")],
    /,
    *,
    context: str,
    question: str,
    model: ModelName = None,
    loading: Loading,
    json: Json = False,
) -> None:
    """Choose among options: litebert choose --model DIR --context "…" --question "Who?" "the baker"
    "the thief"

    Args:
        options: Two or more answers to choose from.
        context: The text that the question is about.
        question: The question; an option replaces a "_" in it.
    """

    def lines(row: _Row) -> str:
        scored = zip(row["options"], row["probabilities"], strict=True)
        return "\n".join(
            f"{'→' if index == row['index'] else ' '} {_percent(probability):>7}  {option}"
            for index, (option, probability) in enumerate(scored)
        )

    examples = [choice_example(context, question, options)]
    _predict("choose", examples, lines, model, loading, json)


def answer(
    question: Annotated[str, POSITIONAL, Arg(metavar="QUESTION")],
    /,
    *,
    context: str,
    model: ModelName = None,
    loading: Loading,
    json: Json = False,
) -> None:
    """Answer from a text: litebert answer --model DIR "Who sings?" --context "The baker sings."

    Args:
        question: The question.
        context: The text that holds the answer, of any length; "-" reads it from standard input.
        json: Print one JSON object, with the other candidates.
    """
    text = _read_input() if context == "-" else context

    def line(row: _Row) -> str:
        if row["text"] is None:
            return f"no answer (null score {row['null_score']:.2f})"
        span = f"characters {row['start']} to {row['end']}, score {row['score']:.2f}"
        return f"{row['text']}   ({span})"

    _predict("answer", [answer_example(question, text)], line, model, loading, json)


def tag(
    texts: _Texts = (),
    /,
    *,
    model: ModelName = None,
    loading: Loading,
    json: Json = False,
) -> None:
    """Tag the words of texts with a fine-tuned model: litebert tag --model DIR "Ada lives in
    London"

    Args:
        texts: Texts, with white space between words; without any, or with "-", the lines of
            standard input.
    """

    def line(row: _Row) -> str:
        tagged = zip(row["words"], row["tags"], strict=True)
        return "   ".join(f"{word} {label}" for word, label in tagged)

    examples = [tag_example(text) for text in _read_texts(texts)]
    _predict("tag", examples, line, model, loading, json)


def _predict(
    verb: Kind,
    examples: Sequence[TaskExample],
    line: Callable[[_Row], str],
    model: str | None,
    loading: Loading | ExitLoading,
    json: bool,
) -> None:
    """Print the predictions of a verb of a task, for a person by `line`."""
    predictor = _load(verb, model, loading, sum(map(num_characters, examples)))
    predictions = predictor.predict(examples, kind=verb)
    rows = [with_input(verb, *each) for each in zip(examples, predictions, strict=True)]
    _note_unread(predictor, verb, [_texts_of(example) for example in examples])
    _print(rows, line, json=json)


def _load(
    verb: Verb, model: str | None, loading: Loading | ExitLoading, num_characters: int
) -> "Predictor":
    """The model, by default the package's own for this verb; its notes go to stderr."""
    folder = default_model(verb).folder if model is None else model
    options = loading._asdict()
    if loading.threads is None and "OMP_NUM_THREADS" not in os.environ and num_characters <= _FEW:
        options = options | {"threads": 1}  # trying out how many cores are free takes longer
    from litebert.infer.predictor import load

    predictor = load(folder, **options)
    note(*predictor.notes)
    return predictor


def _texts_of(example: TaskExample) -> list[str]:
    """What the model reads of an example."""
    match example:
        case ChoiceExample():
            return [example.context, example.question, *example.options]
        case AnswerExample():
            return [example.question, example.context]
        case TagExample():
            return [" ".join(example.words)]
        case TextExample():
            return [example.first] if example.second is None else [example.first, example.second]


def _note_unread(predictor: "Predictor", verb: Verb, rows: Sequence[Sequence[str]]) -> None:
    """Say which texts the model could not read: those of unknown characters alone, and rows with
    more tokens than it takes. Of many, the first that was."""
    tokenizer = predictor.tokenizer
    limit = predictor.engine.config.encoder.max_positions
    if verb in predictor.cards:
        limit = predictor.cards[verb].max_length
    noted = set()
    for texts in rows[:_MOST_CHECKED]:
        count = num_special(len(texts) > 1)
        for text in texts:
            masks = text.count(MASK) if verb == "fill" else 0
            seen = text.replace(MASK, " ") if masks else text
            ids = tokenizer.encode(seen)
            count += len(ids) + masks
            known = {tokenizer.tokens[id] for id in ids if id != tokenizer.unk_id} - {SPACE}
            if "unknown" not in noted and seen.strip() and not known:
                noted.add("unknown")
                note(
                    f"the model knows no character of the text {shorten(text)}, so that its answer "
                    "says nothing about it"
                )
        if verb in _CUT and "long" not in noted and count > limit:
            noted.add("long")
            longest = shorten(max(texts, key=len))
            shown = f"the text {longest} has {count:,}: its end was not read"
            if len(texts) > 1:
                shown = f"the pair with {longest} has {count:,}: the longer text's end was not read"
            note(f"the model reads {limit} tokens, and {shown}")


def _read_texts(texts: Sequence[str]) -> list[str]:
    """The texts of the command line; without any, or with `-`, the lines of standard input."""
    if texts and tuple(texts) != ("-",):
        return list(texts)
    if not texts and sys.stdin.isatty():
        raise ConfigError(
            "no text was given; write it behind the command, or send lines to standard input"
        )
    # Only a line feed ends a line, as in files (tasks/tables/rows.py): other line separators are
    # part of texts.
    lines = [line.removesuffix("\r") for line in _read_input().split("\n") if line.strip()]
    if not lines:
        raise DataError("standard input holds no text; expected one a line")
    return lines


def _read_input() -> str:
    """All of standard input, as UTF-8 whatever the locale."""
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"standard input is not UTF-8 (byte {error.start + 1}: {error.reason}); convert it "
            "first"
        ) from error


def _print(rows: Sequence[_Row], line: Callable[[_Row], str], *, json: bool) -> None:
    if json:
        write_line(to_json({"answers": list(rows)}, ensure_ascii=False))
        return
    for row in rows:
        write_line(line(row))


def _percent(probability: float) -> str:
    return f"{100 * probability:.1f} %"


def _best(row: _Row, count: int = 5) -> str:
    """The likeliest labels with their probabilities; of a multi-label model, first the predicted
    labels."""
    best = sorted(row["probabilities"].items(), key=lambda each: -each[1])[:count]
    shares = "   ".join(f"{label} {_percent(probability)}" for label, probability in best)
    if "depth" in row:
        shares += f"   after {row['depth']} layers"
    if "labels" not in row:
        return shares
    return f"{', '.join(row['labels']) or '(no label)'}   ({shares})"


def _nearest(texts: Sequence[str], vectors: np.ndarray) -> list[_Row]:
    """For each text, the other one with the highest cosine."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = vectors / np.maximum(lengths, 1e-12)
    cosines = units @ units.T
    np.fill_diagonal(cosines, -2)
    return [{"nearest": texts[row.argmax()], "cosine": float(row.max())} for row in cosines]
