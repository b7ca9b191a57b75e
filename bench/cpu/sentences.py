"""The sentence rules against libraries: how many of the golden paragraphs each splits as a person
would, and how fast.

    # pip install pysbd syntok blingfire
    python -m bench.cpu.sentences --data FILE --out sentences.json

The golden set is ours and so are the rules, so the second figure to look at is where the libraries
and we disagree on real text; `--show N` prints some such paragraphs.
"""

import argparse
import random
import sys
import time
import warnings
from collections.abc import Callable

from bench.common.results import add_out, begin, publish
from litebert.data.corpus import read_documents
from litebert.text.sentences import split_sentences

Split = Callable[[str], list[str]]


def splitters() -> dict[str, Split]:
    splitters: dict[str, Split] = {"litebert": split_sentences}
    warnings.simplefilter("ignore")  # invalid escapes in the libraries' own source
    try:
        import pysbd

        segmenter = pysbd.Segmenter(language="en", clean=False)
        splitters["pysbd"] = lambda text: [each.strip() for each in segmenter.segment(text)]
    except ImportError:
        pass
    try:
        from syntok import segmenter as syntok

        def by_syntok(text: str) -> list[str]:
            sentences = (sentence for paragraph in syntok.analyze(text) for sentence in paragraph)
            return [
                "".join(token.spacing + token.value for token in sentence).strip()
                for sentence in sentences
            ]

        splitters["syntok"] = by_syntok
    except ImportError:
        pass
    try:
        import blingfire

        splitters["blingfire"] = lambda text: blingfire.text_to_sentences(text).split("\n")
    except ImportError:
        pass
    return splitters


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="a corpus file")
    parser.add_argument("--megabytes", type=float, default=1.0, help="text that is timed")
    parser.add_argument("--show", type=int, default=0)
    add_out(parser)
    options = parser.parse_args()
    begin(options.out)
    from tests.text.test_sentences import GOLDEN

    golden = [(param.values[0], param.values[1], str(param.id).split(":")[0]) for param in GOLDEN]
    english = {
        "plain",
        "titles",
        "initials",
        "acronyms",
        "abbreviations",
        "numbers",
        "quotations",
        "ellipsis",
        "names",
    }
    texts: list[str] = []
    for document in read_documents([options.data]):
        texts += document.paragraphs
        if sum(map(len, texts)) > options.megabytes * 1e6:
            break
    size = sum(len(text.encode()) for text in texts) / 1e6
    figures: dict[str, dict[str, float]] = {}
    ours = [split_sentences(text) for text in texts]
    for name, split in splitters().items():
        right = [split(paragraph) == expected for paragraph, expected, _ in golden]
        began = time.process_time()
        theirs = [split(text) for text in texts]
        seconds = time.process_time() - began
        same = [a == b for a, b in zip(ours, theirs, strict=True)]
        figures[name] = {
            "golden": sum(right),
            "golden_english": sum(
                each for each, (_, _, kind) in zip(right, golden, strict=True) if kind in english
            ),
            "mb_per_cpu_second": size / seconds,
            "paragraphs_as_ours": sum(same) / len(same),
            "characters_kept": sum(
                "".join("".join(a).split()) == "".join(b.split())
                for a, b in zip(theirs, texts, strict=True)
            )
            / len(texts),
        }
        differing = [number for number, each in enumerate(same) if not each]
        for number in random.Random(0).sample(differing, min(options.show, len(differing))):
            print(f"{name}:\n  ours   {ours[number]}\n  theirs {theirs[number]}", file=sys.stderr)
    result = {
        "golden_set": len(golden),
        "golden_set_english": sum(kind in english for _, _, kind in golden),
        "megabytes": size,
        "splitters": figures,
    }
    publish(result, options.out)


if __name__ == "__main__":
    main()
