"""A file of any size in, a file of predictions out: row by row in constant memory, in order, and
again from where it was stopped (litebert predict).
 Rows are asked in windows (ahead.py) whose bounds follow from the rows alone, and the file grows by
whole windows: what a process makes after another was killed is what that one would have made, byte
for byte. What was read before is read again, compared by its sum, and not asked again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.errors import ConfigError, DataError
from litebert.infer.ahead import windows
from litebert.infer.answers import DIGITS, as_answer, as_masks
from litebert.infer.lines import Lines
from litebert.infer.output import Output
from litebert.infer.predictor import Predictor
from litebert.infer.questions import SHAPES, PredictOptions, Questions, Unread
from litebert.infer.verbs import Verb, characters, check_verb
from litebert.tasks.examples import TaskExample, TextExample
from litebert.tasks.tables.bad_rows import BadRows


@dataclass(frozen=True, kw_only=True)
class PredictReport:
    """What was done."""

    out: str
    verb: Verb
    rows: int
    """Predictions in the file."""
    rows_before: int
    """Those of them that an earlier run had made."""
    bad_rows: int
    notes: tuple[str, ...]


def predict_file(
    predictor: Predictor,
    source: Path | str,
    out: Path | str,
    options: PredictOptions | None = None,
    *,
    watch: Callable[[int], None] = lambda rows: None,
    note: Callable[[str], None] = lambda text: None,
) -> PredictReport:
    """Predict for every row of `source`; `watch` hears how many rows are done, `note` what a user
    should know meanwhile."""
    options = options or PredictOptions()
    verb = find_verb(predictor, options.verb)
    if Path(source).resolve() == Path(out).resolve():
        raise ConfigError(f"--out is the input, {source}; choose another file for the predictions")
    make_folder(Path(out).parent)
    questions = Questions(
        predictor, source, verb, options, BadRows(options.table.bad_rows, f"{out}.quarantine.jsonl")
    )
    card = predictor.cards.get(verb)
    lines = Lines(out, verb, asked=questions.asked, labels=card.task.labels if card else ())
    ask = asker(predictor, verb, options)
    with questions.bad:
        # before the output is touched, so that a wrong input leaves nothing behind
        questions.begin()
        for told in questions.notes:
            note(told)
        with Output(
            out, made_from(predictor, verb, options), overwrite=options.overwrite
        ) as output:
            before = output.progress
            unread = Unread(questions, done=before.rows, digest=before.digest)
            if before.size == 0:
                output.append(lines.header(), rows=0, digest="")
            for window in windows(iter(unread), lambda question: characters(question.example)):
                if before.finished:
                    raise DataError(
                        f"{source} has grown since {out} was finished; choose another --out, or "
                        "add --overwrite"
                    )
                answers = ask([question.example for question in window])
                data = lines.rows((question.asked for question in window), answers)
                output.append(data, rows=unread.count, digest=unread.digest)
                watch(unread.count)
            output.finish()
    for told in questions.bad.notes:
        note(told)
    return PredictReport(
        out=str(out),
        verb=verb,
        rows=output.progress.rows,
        rows_before=before.rows,
        bad_rows=questions.bad.count,
        notes=(*questions.notes, *questions.bad.notes),
    )


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be made ({error.strerror}); choose another --out"
        ) from error


def find_verb(predictor: Predictor, verb: Verb | None) -> Verb:
    """What to do: what was asked for, or the one thing that the model was fine-tuned for."""
    if verb is not None:
        check_verb(verb, predictor.verbs, predictor.card)
        return verb
    tasks = list(predictor.cards)
    if len(tasks) == 1:
        return tasks[0]
    raise ConfigError(f"this model can {' and '.join(predictor.verbs)}; say which with --verb")


def made_from(predictor: Predictor, verb: Verb, options: PredictOptions) -> dict[str, Any]:
    """All that lines follow from, beside the rows. How bad rows are met may change while a file
    grows."""
    columns = {
        name: getattr(options.table, name)
        for name in ("text", "second", "context", "question", "options", "words")
    }
    own: dict[str, dict[str, Any]] = {
        "fill": {"top": options.top},
        "embed": {"pooling": options.pooling, "normalize": options.normalize},
    }
    fixed: dict[str, Any] = {
        "model": predictor.fingerprint,
        "verb": verb,
        "batch_tokens": predictor.batch_tokens,
        "keep": options.keep,
    }
    return fixed | own.get(verb, {}) | columns


def asker(
    predictor: Predictor, verb: Verb, options: PredictOptions
) -> Callable[[list[TaskExample]], list[dict[str, Any]]]:
    """What turns a window of examples into answers."""
    if verb == "fill":
        return lambda examples: [
            as_masks(said) for said in predictor.fill(_firsts(examples), top=options.top)
        ]
    if verb == "embed":
        return lambda examples: [
            {"vector": [round(number, DIGITS) for number in vector.tolist()]}
            for vector in predictor.embed(
                _firsts(examples), pooling=options.pooling, normalize=options.normalize
            )
        ]
    return lambda examples: [
        _without_spans(as_answer(said)) for said in predictor.predict(examples, kind=SHAPES[verb])
    ]


def _firsts(examples: list[TaskExample]) -> list[str]:
    return [example.first for example in examples if isinstance(example, TextExample)]


def _without_spans(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer's other candidates would make the file many times as long."""
    return {name: value for name, value in answer.items() if name != "spans"}
