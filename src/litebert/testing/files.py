"""Tiny data over one small vocabulary: a corpus made by a grammar, task files in the official
layouts, and tables such as users bring.

Documents are about four worlds, a hero in each. Labels follow from the words, so that a small model
learns them in seconds: who belongs to which world, who acts on what.
"""

import csv
import json
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

WORLDS = {
    "sea": (
        "sailor whale ship captain",
        "sails hunts follows",
        "the cold wave;the salt wind;a far island",
    ),
    "farm": (
        "farmer horse goat miller",
        "feeds carries watches",
        "the dry barley;a wooden cart;the old barn",
    ),
    "city": (
        "baker singer driver thief",
        "meets pays forgets",
        "a crowded street;the loud market;a narrow door",
    ),
    "sky": (
        "pilot eagle moon comet",
        "crosses circles leaves",
        "the thin cloud;a quiet night;the bright south",
    ),
}
"""Who does what to whom, by the world that a document is about."""
TINY_SPLITS = {"train": 48, "dev": 16, "test": 8}
"""Examples in each split of a tiny benchmark; one's own tables have them all in one file."""
_NLI = ("contradiction", "entailment", "neutral")
_BINARY, _ENTAILS = ("0", "1"), ("entailment", "not_entailment")
GLUE: dict[str, tuple[str, tuple[str, ...], str, str]] = {
    "cola": ("CoLA", _BINARY, "source label mark sentence", "index sentence"),
    "sst2": ("SST-2", _BINARY, "sentence label", "index sentence"),
    "mrpc": (
        "MRPC",
        _BINARY,
        "Quality #1_ID #2_ID #1_String #2_String",
        "index #1_ID #2_ID #1_String #2_String",
    ),
    "stsb": (
        "STS-B",
        ("0.500", "4.250", "2.000", "5.000"),
        "index genre filename year old_index source1 source2 sentence1 sentence2 score",
        "index genre filename year old_index source1 source2 sentence1 sentence2",
    ),
    "qqp": (
        "QQP",
        _BINARY,
        "id qid1 qid2 question1 question2 is_duplicate",
        "id question1 question2",
    ),
    "mnli": (
        "MNLI",
        _NLI,
        "index promptID pairID genre sentence1 sentence2 label1 gold_label",
        "index genre sentence1 sentence2",
    ),
    "qnli": ("QNLI", _ENTAILS, "index question sentence label", "index question sentence"),
    "rte": ("RTE", _ENTAILS, "index sentence1 sentence2 label", "index sentence1 sentence2"),
    "wnli": ("WNLI", _BINARY, "index sentence1 sentence2 label", "index sentence1 sentence2"),
    "diagnostic": ("diagnostic", _NLI, "", "index sentence1 sentence2"),
}
"""Folder, labels, columns of train and dev, columns of test ("_" stands for a blank)."""
_ROLES = {
    "number": ("index", "id"),
    "first": ("sentence1", "#1_String", "question1", "question"),
    "second": ("sentence2", "#2_String", "question2", "sentence"),
    "label": ("label", "Quality", "score", "is_duplicate", "gold_label"),
}
"""What GLUE's columns hold; the others stay empty."""


def tiny_documents(count: int = 60, *, seed: int = 0) -> Iterator[list[str]]:
    """Documents of a few sentences each; all sentences of one are about the same world, and are
    numbered in order."""
    draw = random.Random(seed)
    for _ in range(count):
        subjects, verbs, objects = (
            words.split(";" if ";" in words else None)
            for words in WORLDS[draw.choice(sorted(WORLDS))]
        )
        hero = draw.choice(subjects)
        times = ["first", *["then"] * draw.randint(2, 8), "finally"]
        yield [f"{time} the {hero} {draw.choice(verbs)} {draw.choice(objects)} ." for time in times]


def tiny_corpus(path: Path, *, documents: int = 60, seed: int = 0) -> Path:
    """A text file of documents with a blank line between, a sentence a line."""
    path.write_text(
        "\n\n".join("\n".join(sentences) for sentences in tiny_documents(documents, seed=seed))
        + "\n"
    )
    return path


def tiny_task(folder: Path, name: str, *, seed: int = 0, scale: int = 1) -> Path:
    """Write the files of the task `name`, TINY_SPLITS times `scale`; what comes back is the task's
    `data`.

    A benchmark's folder is filled in its official layout. Of one's own data the file itself comes
    back: classify is a CSV, pair a TSV, the others JSONL.
    """
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(f"{seed} {name}")
    if name in GLUE:
        _write_glue(folder, name, draw, scale)
    elif name in ("squad1", "squad2"):
        version = "1.1" if name == "squad1" else "2.0"
        for split in ("train", "dev"):
            articles = [
                article(draw, number, has_null=name == "squad2")
                for number in range(TINY_SPLITS[split] * scale // 4)
            ]
            _write_json(folder / f"{split}-v{version}.json", {"version": version, "data": articles})
    elif name == "race":
        for split, count in TINY_SPLITS.items():
            for number in range(count * scale // 4):
                level = ("high", "middle")[number % 2]
                _write_json(folder / split / level / f"{number}.txt", _passage(draw, number))
    else:
        count = sum(TINY_SPLITS.values()) * scale
        return _write_table(folder, name, [OWN[name](draw) for _ in range(count)])
    return folder


def _story(draw: random.Random, world: str | None = None) -> list[str]:
    """Three sentences about one hero."""
    subjects, verbs, objects = WORLDS[world or draw.choice(sorted(WORLDS))]
    hero, deeds, things = draw.choice(subjects.split()), verbs.split(), objects.split(";")
    return [
        f"{time} the {hero} {deed} {thing} ."
        for time, deed, thing in zip(("first", "then", "finally"), deeds, things, strict=True)
    ]


def _labeled(draw: random.Random, labels: Sequence[str]) -> tuple[str, str, str]:
    """A sentence of any world, one of a world that decides, and the label that it decides."""
    world = draw.choice(sorted(WORLDS))
    return (
        draw.choice(_story(draw)),
        draw.choice(_story(draw, world)),
        labels[sorted(WORLDS).index(world) % len(labels)],
    )


def article(draw: random.Random, number: int, *, has_null: bool) -> dict[str, Any]:
    """Of SQuAD: a context and four questions, who did it; where some have no answer, every other is
    about another world."""
    world, other = draw.sample(sorted(WORLDS), 2)
    sentences = _story(draw, world)
    context = " ".join(sentences)
    questions: list[dict[str, Any]] = []
    for index in range(4):
        null = has_null and index % 2 == 1
        _, _, hero, deed = draw.choice(_story(draw, other) if null else sentences).split(maxsplit=3)
        answers = [] if null else [{"text": hero, "answer_start": context.index(hero)}]
        question = {
            "id": f"{number}-{index}",
            "question": f"who {deed.removesuffix(' .')} ?",
            "answers": answers,
        }
        questions.append(question | ({"is_impossible": null} if has_null else {}))
    return {"title": f"{world} {number}", "paragraphs": [{"context": context, "qas": questions}]}


def _choice(draw: random.Random) -> dict[str, Any]:
    """Who is of the sea? One option of each world."""
    worlds = draw.sample(sorted(WORLDS), 4)
    options = [f"the {draw.choice(WORLDS[world][0].split())}" for world in worlds]
    question = draw.choice(["_ is of the sea .", "who is of the sea ?"])
    return {
        "article": " ".join(_story(draw)),
        "question": question,
        "options": options,
        "answer": "ABCD"[worlds.index("sea")],
    }


def _passage(draw: random.Random, number: int) -> dict[str, Any]:
    """Of RACE: an article and four questions."""
    choices = [_choice(draw) for _ in range(4)]
    names = {"question": "questions", "options": "options", "answer": "answers"}
    lists = {many: [each[one] for each in choices] for one, many in names.items()}
    return lists | {"article": choices[0]["article"], "id": f"{number}.txt"}


def _classified(draw: random.Random) -> dict[str, Any]:
    _, text, label = _labeled(draw, sorted(WORLDS))
    return {"text": text, "label": label}


def _pair(draw: random.Random, labels: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(("sentence1", "sentence2", "label"), _labeled(draw, labels), strict=True))


def _question(draw: random.Random) -> dict[str, Any]:
    paragraph = article(draw, 0, has_null=False)["paragraphs"][0]
    question = draw.choice(paragraph["qas"])
    return {
        "context": paragraph["context"],
        "question": question["question"],
        "answers": question["answers"],
    }


def _tagged(draw: random.Random) -> dict[str, Any]:
    words = draw.choice(_story(draw)).split()
    return {
        "words": words,
        "tags": ["O", "O", "B-hero", "O", "B-thing", *["I-thing"] * (len(words) - 6), "O"],
    }


OWN: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "classify": _classified,
    "pair": partial(_pair, labels=("same", "other")),
    "regress": partial(_pair, labels=(0.5, 4.25, 2.0, 5.0)),
    "choose": _choice,
    "answer": _question,
    "tag": _tagged,
}


def _write_glue(folder: Path, name: str, draw: random.Random, scale: int) -> None:
    subfolder, labels, columns, test_columns = GLUE[name]
    (folder / subfolder).mkdir(exist_ok=True)
    roles = {column: role for role, known in _ROLES.items() for column in known}
    for split, count in TINY_SPLITS.items():
        names = (test_columns if split == "test" else columns).split()
        head = "\t".join(names).replace("#1_", "#1 ").replace("#2_", "#2 ")
        lines = [] if name == "cola" and split != "test" else [head]
        for number in range(count * scale):
            first, second, label = _labeled(draw, labels)
            cells = {"number": str(number), "first": first, "second": second, "label": label}
            lines.append("\t".join(cells.get(roles.get(column, ""), "") for column in names))
        if names:
            file = "diagnostic" if name == "diagnostic" else split
            if name == "mnli" and split != "train":
                file += "_matched"
            # MRPC's files begin with a byte-order mark, in the wild as here
            encoding = "utf-8-sig" if name == "mrpc" else "utf-8"
            path = folder / subfolder / f"{file}.tsv"
            path.write_text("\n".join(lines) + "\n", encoding=encoding)


def _write_table(folder: Path, kind: str, rows: Sequence[dict[str, Any]]) -> Path:
    path = folder / f"{kind}.{({'classify': 'csv', 'pair': 'tsv'}).get(kind, 'jsonl')}"
    with path.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".jsonl":
            file.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            separator = "\t" if path.suffix == ".tsv" else ","
            table = csv.DictWriter(file, list(rows[0]), delimiter=separator)
            table.writeheader()
            table.writerows(rows)
    return path


def _write_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
