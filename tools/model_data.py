"""Training data of the embedded models: a folder of public data sets in; the tables that each model
is tuned on, with their sources and licenses, out.

    python -m tools.model_data DATA OUT [--part nli similarity …] [--limit N]

DATA has the folders nli, pairs, squad, tagging, glue and corpus (docs/making_models.md describes
their files). Only sources whose license allows weights to be shipped are read: SOURCES names them
and says why. No text of STS-B, which only scores, gets into `similarity`. OUT/NAME holds train.*
and dev.* and OUT/sources.json the sources with their rows, which cards repeat. `nli-all` has every
source: what it teaches is scored (RTE, MRPC and STS-B begin there) and never shipped.
"""

import argparse
import csv
import hashlib
import itertools
import json
import lzma
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

Row = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data set that may be trained on."""

    name: str
    license: str
    part: str
    """The model that it is for."""
    note: str = ""


SOURCES = (
    Source(name="SNLI", license="CC BY-SA 4.0", part="nli", note="a tenth of train"),
    Source(name="MultiNLI", license="OANC and others", part="nli", note="a part of train"),
    Source(name="Textual Entailment, new protocols", license="CC BY-SA 3.0", part="nli"),
    Source(name="semi-automatic NLI, its Wikipedia half", license="CC BY-SA", part="nli"),
    Source(name="ConjNLI", license="MIT", part="nli", note="labels made by rule"),
    Source(name="counterfactually revised SNLI", license="Apache-2.0", part="nli"),
    Source(name="SQuAD 1.1", license="CC BY-SA 4.0", part="answer", note="a part of train"),
    Source(name="FairytaleQA", license="Apache-2.0", part="answer", note="spans of a section"),
    Source(name="PolicyQA", license="MIT", part="answer", note="its dev set"),
    Source(name="UD English EWT", license="CC BY-SA 4.0", part="tag"),
    Source(name="BANKING77", license="CC BY 4.0", part="similarity", note="pairs of one intent"),
    Source(
        name="Wikipedia",
        license="CC BY-SA 3.0",
        part="similarity",
        note="a sentence and the rest of its paragraph",
    ),
    Source(
        name="SST-2",
        license="none stated",
        part="sentiment",
        note="the one exception; long texts are phrases of one label, joined",
    ),
)
"""What ships. Left out for their license: Quora, SICK, CoNLL-2003, RACE, and sets that state none
(LingNLI, MPE, PAN, medical questions, SQuAD-shifts, IMDB)."""
NLI = {
    "snli": "SNLI",
    "mnli": "MultiNLI",
    "newprotocols": "Textual Entailment, new protocols",
    "semiauto-wiki": "semi-automatic NLI, its Wikipedia half",
    "conjnli": "ConjNLI",
    "cad": "counterfactually revised SNLI",
}
"""Sources of nli/mixed.*.tsv.xz by the name in their fourth column."""
QUESTIONS = {
    "squad-train.part": "SQuAD 1.1",
    "squad-train.part2": "SQuAD 1.1",
    "fairytaleqa.train": "FairytaleQA",
    "policyqa.dev": "PolicyQA",
}
PARTS = ("nli", "nli-all", "answer", "tag", "sentiment", "similarity", "retrieval")
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


class Writer:
    """Tables in a folder, and how many rows of each source they have."""

    def __init__(self, out: Path, limit: int | None) -> None:
        self.out, self.limit = out, limit
        self.counts: Counter[str] = Counter()

    def few(self, rows: Iterable[Any]) -> Iterable[Any]:
        """All rows; where a limit is given as many, evenly spaced, since sets stand in order."""
        if self.limit is None:
            return rows
        every = list(rows)
        return every[:: max(len(every) // self.limit, 1)][: self.limit]

    def table(self, path: str, header: Row, rows: Iterable[Row]) -> None:
        target = self.out / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *rows])

    def lines(self, path: str, rows: Iterable[Any]) -> None:
        target = self.out / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("w", encoding="utf-8") as file:
            for row in rows:
                text = row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)
                file.write(text + "\n")


def open_text(path: Path) -> Iterator[str]:
    opened = lzma.open if path.suffix == ".xz" else open
    with opened(path, "rt", encoding="utf-8-sig") as file:
        for line in file:
            yield line.rstrip("\n")


def tsv(path: Path) -> Iterator[dict[str, str]]:
    """Rows of a table without quoting."""
    lines = open_text(path)
    names = next(lines).split("\t")
    for line in lines:
        yield dict(zip(names, line.split("\t"), strict=False))


def nli_rows(data: Path, split: str, *, every: bool = False) -> Iterator[tuple[str, str, str, str]]:
    """(premise, hypothesis, label, source) of what may ship, or of every source."""
    for row in tsv(data / "nli" / f"mixed.{split}.tsv.xz"):
        if every or row["source"] in NLI:
            source = NLI.get(row["source"], row["source"])
            yield unquoted(row["premise"]), unquoted(row["hypothesis"]), row["label"], source


def unquoted(text: str) -> str:
    """A field that was copied out of a CSV file with its quotes."""
    is_quoted = len(text) > 1 and text[0] == text[-1] == '"' and '""' in text[1:-1]
    return text[1:-1].replace('""', '"') if is_quoted else text


def write_nli(data: Path, writer: Writer, *, name: str = "nli") -> None:
    for split in ("train", "dev"):
        rows = list(writer.few(nli_rows(data, split, every=name != "nli")))
        if split == "train" and name == "nli":
            writer.counts.update(row[3] for row in rows)
        names = ("premise", "hypothesis", "label")
        writer.table(f"{name}/{split}.csv", names, (row[:3] for row in rows))


def questions(data: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(source, paragraph) in SQuAD's layout."""
    for stem, source in QUESTIONS.items():
        path = data / "squad" / f"{stem}.json.xz"
        with lzma.open(path, "rt", encoding="utf-8") as file:
            articles = json.load(file)["data"]
        for article in articles:
            for paragraph in article["paragraphs"]:
                yield source, {"context": paragraph["context"], "qas": paragraph["qas"]}


def write_answer(data: Path, writer: Writer) -> None:
    """Every twentieth paragraph is dev."""
    splits: dict[str, list[Any]] = {"train": [], "dev": []}
    for number, (source, paragraph) in enumerate(writer.few(questions(data))):
        split = "dev" if number % 20 == 0 else "train"
        splits[split].append(paragraph)
        writer.counts[source] += len(paragraph["qas"]) * (split == "train")
    for split, paragraphs in splits.items():
        articles = [{"title": f"{split} {n}", "paragraphs": [p]} for n, p in enumerate(paragraphs)]
        writer.lines(f"answer/{split}.json", [{"version": "1.1", "data": articles}])


def tagged(path: Path) -> Iterator[dict[str, list[str]]]:
    """Words and parts of speech of a CoNLL-U file, a sentence each."""
    words: list[str] = []
    tags: list[str] = []
    for line in (*open_text(path), ""):
        fields = line.split("\t")
        if not line.strip() and words:
            yield {"words": words, "tags": tags}
            words, tags = [], []
        elif len(fields) > 3 and fields[0].isdecimal():  # not 8-9 and 8.1: they have no word
            words.append(fields[1])
            tags.append(fields[3])


def write_tag(data: Path, writer: Writer) -> None:
    for split in ("train", "dev"):
        rows = list(writer.few(tagged(data / "tagging/ud_ewt" / f"en_ewt-ud-{split}.conllu.xz")))
        writer.lines(f"tag/{split}.jsonl", rows)
        writer.counts["UD English EWT"] += len(rows) * (split == "train")


def write_sentiment(data: Path, writer: Writer) -> None:
    """SST-2's phrases, and texts of 60 to 400 words that join whole phrases of one label: reviews
    have many sentences, SST-2's phrases few words."""
    draw = random.Random(0)
    rows = [(row["sentence"].strip(), row["label"]) for row in tsv(data / "glue/SST-2/train.tsv")]
    rows = list(writer.few(rows))
    by_label = {
        label: [text for text, own in rows if own == label and len(text.split()) >= 8]
        for label in ("0", "1")
    }
    joined = []
    for _ in range(len(rows) // 8):
        label = draw.choice(("0", "1"))
        words, phrases = 0, []
        wanted = draw.randint(60, 400)
        while words < wanted and by_label[label]:
            phrase = draw.choice(by_label[label])
            phrases.append(phrase if phrase[-1] in ".!?" else f"{phrase} .")
            words += len(phrase.split())
        if phrases:
            joined.append((" ".join(phrases), label))
    names = {"0": "negative", "1": "positive"}
    writer.counts["SST-2"] += len(rows)
    every = [(text, names[label]) for text, label in (*rows, *joined)]
    draw.shuffle(every)
    writer.table("sentiment/train.csv", ("text", "label"), every)
    dev = [
        (row["sentence"].strip(), names[row["label"]]) for row in tsv(data / "glue/SST-2/dev.tsv")
    ]
    writer.table("sentiment/dev.csv", ("text", "label"), writer.few(dev))


def essence(text: str) -> str:
    """What is left of a text where case, punctuation and spaces do not count."""
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()


def scored_texts(data: Path) -> frozenset[str]:
    """The texts of STS-B, all splits: none is trained on."""
    return frozenset(
        essence(row[name])
        for split in ("train", "dev", "test")
        for row in tsv(data / "glue/STS-B" / f"{split}.tsv")
        for name in ("sentence1", "sentence2")
    )


def paragraphs(path: Path) -> Iterator[str]:
    return (line for line in open_text(path) if len(line) > 200)


def unlabeled_pairs(data: Path, most: int) -> Iterator[Row]:
    """(a sentence, the rest of its paragraph): the inverse cloze task."""
    draw = random.Random(0)
    for number, paragraph in enumerate(paragraphs(data / "corpus/wikipedia-recent.txt.xz")):
        if number == most:
            return
        sentences = SENTENCE.split(paragraph)
        if len(sentences) < 3:
            continue
        own = draw.randrange(len(sentences))
        rest = " ".join(each for n, each in enumerate(sentences) if n != own)
        yield sentences[own], rest[:1000], "", "Wikipedia"


def contrastive(data: Path, most: int) -> Iterator[Row]:
    """(anchor, positive, negative or nothing, source)."""
    against: dict[str, list[str]] = {}
    entailed: list[tuple[str, str, str]] = []
    for premise, hypothesis, label, source in nli_rows(data, "train"):
        if label == "contradiction":
            against.setdefault(premise, []).append(hypothesis)
        elif label == "entailment":
            entailed.append((premise, hypothesis, source))
    for number, (premise, hypothesis, source) in enumerate(entailed):
        hard = against.get(premise, [""])
        yield premise, hypothesis, hard[number % len(hard)], source
    for source, paragraph in questions(data):
        for asked in paragraph["qas"]:
            yield asked["question"], paragraph["context"][:1000], "", source
    intents: dict[str, list[str]] = {}
    for row in tsv(data / "pairs/banking77.train.tsv.xz"):
        intents.setdefault(row["label"], []).append(row["text"])
    for texts in intents.values():
        yield from ((one, two, "", "BANKING77") for one, two in itertools.pairwise(texts))
    yield from unlabeled_pairs(data, most)


def write_similarity(data: Path, writer: Writer, most: int = 60_000) -> None:
    """pairs/train.csv; texts.txt, the texts that a teacher embeds; dev.csv, STS-B dev."""
    scored = scored_texts(data)
    rows = [
        row
        for row in writer.few(contrastive(data, most))
        if not any(essence(text) in scored for text in row[:3] if text)
    ]
    writer.counts.update(row[3] for row in rows)
    rows.sort(key=lambda row: hashlib.sha256(row[0].encode()).digest())
    names = ("anchor", "positive", "negative")
    writer.table("similarity/train.csv", names, (row[:3] for row in rows))
    texts = dict.fromkeys(" ".join(text.split()) for row in rows for text in row[:3] if text)
    writer.lines("similarity/texts.txt", texts)
    dev = ((r["sentence1"], r["sentence2"], r["score"]) for r in tsv(data / "glue/STS-B/dev.tsv"))
    writer.table("similarity/dev.csv", ("text_a", "text_b", "score"), dev)


def write_retrieval(data: Path, writer: Writer) -> None:
    """SQuAD's dev questions and paragraphs in BEIR's layout, for scoring only."""
    articles = json.loads((data / "squad/dev-v1.1.json").read_text(encoding="utf-8"))["data"]
    documents: list[dict[str, str]] = []
    asked: list[dict[str, str]] = []
    judged: list[str] = ["query-id\tcorpus-id\tscore"]
    for paragraph in writer.few(p for article in articles for p in article["paragraphs"]):
        documents.append({"_id": f"d{len(documents)}", "text": paragraph["context"]})
        for question in paragraph["qas"]:
            asked.append({"_id": question["id"], "text": question["question"]})
            judged.append(f"{question['id']}\t{documents[-1]['_id']}\t1")
    writer.lines("retrieval/squad/corpus.jsonl", documents)
    writer.lines("retrieval/squad/queries.jsonl", asked)
    writer.lines("retrieval/squad/qrels/test.tsv", judged)


WRITERS: dict[str, Callable[[Path, Writer], None]] = {
    "nli": write_nli,
    "nli-all": partial(write_nli, name="nli-all"),
    "answer": write_answer,
    "tag": write_tag,
    "sentiment": write_sentiment,
    "similarity": write_similarity,
    "retrieval": write_retrieval,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--limit", type=int, help="rows of each table, for a trial")
    args = parser.parse_args()
    sources = args.out / "sources.json"
    record: dict[str, Any] = json.loads(sources.read_text()) if sources.exists() else {}
    for part in args.part:
        writer = Writer(args.out, args.limit)
        WRITERS[part](args.data, writer)
        known = {source.name: source for source in SOURCES}
        record[part] = [
            asdict(known[name]) | {"rows": count} for name, count in sorted(writer.counts.items())
        ]
    args.out.mkdir(parents=True, exist_ok=True)
    sources.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps({part: {s["name"]: s["rows"] for s in rows} for part, rows in record.items()}))


if __name__ == "__main__":
    main()
