"""Speed of making inputs of SQuAD and RACE against Hugging Face's way, and which gold answers
survive. Prints one JSON object.

    python -m bench.cpu.encode_tasks --squad dev-v1.1.json --race RACE --tokenizer DIR
    python -m bench.cpu.encode_tasks --squad dev-v2.0.json --tokenizer spiece.model \\
        --examples 2000 --repeats 5 --out encode.json

The peer is `tokenizers` in one thread, reading our tokenizer.json, called as the stock scripts
call it: SQuAD with overflowing windows and offsets and a search for each answer's tokens, RACE with
the context beside every option. Both ways take turns on the same examples; the ratio of CPU seconds
is the median. A gold answer survives when its tokens' text, cut from the context, is the answer
again; the others begin or end inside of a token ("gold" in "golden").
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.common.results import add_out, begin, publish
from bench.common.timing import in_turns, ratios
from litebert.tasks.encode.encode import encode, fill_in
from litebert.tasks.encode.inputs import Inputs
from litebert.tasks.examples import AnswerExample, ChoiceExample
from litebert.tasks.registry import open_task
from litebert.tasks.task import TaskCard, TaskData
from litebert.text.tokenizer import Tokenizer


def fast_peer(tokenizer: Tokenizer) -> Any:
    """Hugging Face's fast tokenizer with the same vocabulary."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from transformers import PreTrainedTokenizerFast

    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(folder)
        file = str(Path(folder) / "tokenizer.json")
        return PreTrainedTokenizerFast(
            tokenizer_file=file, pad_token="<pad>", cls_token="[CLS]", sep_token="[SEP]"
        )


def peer_answers(peer: Any, card: TaskCard, examples: Sequence[AnswerExample]) -> int:
    """Windows with the columns of their answers; how many there are."""
    peer_encoded = peer(
        [example.question for example in examples],
        [example.context for example in examples],
        truncation="only_second",
        max_length=card.max_length,
        stride=card.max_length
        - card.max_question
        - 3
        - card.stride,  # what windows have in common, there
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    columns = []
    for window, number in enumerate(peer_encoded["overflow_to_sample_mapping"]):
        offsets, owners = peer_encoded["offset_mapping"][window], peer_encoded.sequence_ids(window)
        answer = examples[number].answers[0] if examples[number].answers else None
        first, last = owners.index(1), len(owners) - 1 - owners[::-1].index(1)
        if (
            answer is None
            or offsets[first][0] > answer.start
            or offsets[last][1] < answer.start + len(answer.text)
        ):
            columns.append((0, 0))
            continue
        while first < last and offsets[first + 1][0] <= answer.start:
            first += 1
        while last > first and offsets[last - 1][1] >= answer.start + len(answer.text):
            last -= 1
        columns.append((first, last))
    return len(columns)


def peer_choices(peer: Any, card: TaskCard, examples: Sequence[ChoiceExample]) -> int:
    """A row for each option; how many there are."""
    contexts = [example.context for example in examples for _ in example.options]
    choices = [
        fill_in(example.question, option) for example in examples for option in example.options
    ]
    return len(
        peer(contexts, choices, truncation="only_first", max_length=card.max_length)["input_ids"]
    )


def surviving(inputs: Inputs, examples: Sequence[AnswerExample]) -> dict[str, int]:
    """How many answers some window holds, and how many of them read the same when cut by their
    tokens."""
    assert inputs.targets is not None
    assert inputs.offsets is not None
    same: dict[int, bool] = {}
    for unit in np.flatnonzero(inputs.targets[:, 0] > 0):
        number = int(inputs.examples[unit])
        shift = inputs.second[unit, 0] - (inputs.first[unit, 1] - inputs.first[unit, 0]) - 2
        first, last = inputs.targets[unit] + shift
        answers = examples[number].answers
        assert answers
        text = examples[number].context[inputs.offsets[first, 0] : inputs.offsets[last, 1]]
        same[number] = text == answers[0].text
    answerable = sum(bool(example.answers) for example in examples)
    return {"answerable": answerable, "in_a_window": len(same), "the_same_text": sum(same.values())}


def compare(
    data: TaskData, split: str, tokenizer: Tokenizer, count: int, repeats: int
) -> dict[str, Any]:
    """CPU seconds of both ways on the first `count` examples."""
    examples: Sequence[Any] = data.splits[split][:count]
    card = TaskCard(task=data.task, max_length=384 if data.task.name == "squad1" else 512)
    peer, theirs = (
        fast_peer(tokenizer),
        peer_answers if data.task.kind == "answer" else peer_choices,
    )
    inputs = encode(card, examples, tokenizer)
    ways: dict[str, Callable[[], Any]] = {
        "ours": lambda: encode(card, examples, tokenizer),
        "theirs": lambda: theirs(peer, card, examples),
    }
    times = in_turns(ways, repeats)
    arrays = (
        inputs.pool,
        inputs.first,
        inputs.second,
        inputs.examples,
        inputs.offsets,
        inputs.cores,
        inputs.targets,
    )
    result = {
        "examples": len(examples),
        "rows": len(inputs.row_lengths),
        "tokens_in_rows": int(inputs.row_lengths.sum()),
        "tokens_held": int(inputs.pool.size),
        "megabytes_held": sum(array.nbytes for array in arrays if array is not None) / 1e6,
        "seconds": {name: each.cpu_seconds for name, each in times.items()},
        "ratio": statistics.median(ratios(times["theirs"], times["ours"])),
    }
    return result | ({"gold": surviving(inputs, examples)} if data.task.kind == "answer" else {})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--squad",
        nargs="*",
        default=[],
        help="files in SQuAD's layout; named v2 where they are of SQuAD 2",
    )
    parser.add_argument("--race", help="folder that holds {train,dev}/{middle,high}/N.txt")
    parser.add_argument(
        "--tokenizer", required=True, help="folder of a tokenizer, or a SentencePiece model file"
    )
    parser.add_argument("--examples", type=int, default=4000, help="the first so many of each file")
    parser.add_argument("--repeats", type=int, default=5)
    add_out(parser)
    args = parser.parse_args()
    begin(args.out)
    tokenizer = Tokenizer.load(args.tokenizer)
    result = {}
    for path in args.squad:
        data = open_task("squad2" if "v2" in Path(path).name else "squad1", path, splits=["dev"])
        result[Path(path).name] = compare(data, "dev", tokenizer, args.examples, args.repeats)
    if args.race:
        result["race"] = compare(
            open_task("race", args.race, splits=["dev"]),
            "dev",
            tokenizer,
            args.examples,
            args.repeats,
        )
    publish(result, args.out)


if __name__ == "__main__":
    main()
