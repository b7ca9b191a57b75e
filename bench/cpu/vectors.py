"""Texts a second and STS-B of litebert's models in int8 beside a sentence-transformers model's int8
graph, such as all-MiniLM-L6-v2's. Prints one JSON object.

    python -m bench.cpu.vectors --peer FOLDER --data STS-B/dev.csv --models runs/similarity
    python -m bench.cpu.vectors --peer FOLDER --data dev.csv --models base --pairs runs/stsb

FOLDER is a peer in the Hub's layout; of its onnx/ the graph for this processor is taken, run by
plain onnxruntime: longest texts first, --batch-size at a time, mean over the mask. --models embed;
--pairs are models fine-tuned with exits to score a pair (`litebert finetune stsb --exits each`),
with all layers and by patience, calibrated or --threshold. Everybody reads the same texts, from
strings to vectors or scores, in turns; a time is the least of the rounds. Scores are correlations
with the pairs' own, over all pairs.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from bench.common.results import add_out, begin, publish
from bench.common.timing import in_turns
from litebert.infer.cpu import processor
from litebert.infer.export.folder import ExportOptions, export_model
from litebert.infer.predictor import Predictor, load
from litebert.tasks.examples import TextExample
from litebert.tasks.predictions import NumberPrediction
from litebert.tasks.scores.score import score
from litebert.tasks.scores.vectors import SIMILARITY, cosines
from litebert.tasks.tables.pairs import open_scored_pairs

GRAPHS = {
    "vnni": "model_qint8_avx512_vnni.onnx",
    "avx2": "model_quint8_avx2.onnx",
    "arm64": "model_qint8_arm64.onnx",
}
LONGEST = 256
"""Tokens that the peer reads where its folder does not say."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", type=Path, required=True)
    parser.add_argument("--graph", help="of the peer's onnx/; by default this processor's int8")
    parser.add_argument("--data", required=True, help="scored pairs")
    parser.add_argument("--models", nargs="*", default=[], help="that embed")
    parser.add_argument("--pairs", nargs="*", default=[], help="fine-tuned with exits")
    parser.add_argument("--threshold", type=float, help="of patience, where none is calibrated")
    parser.add_argument("--engine", choices=("onnx", "openvino"), default="onnx")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=32, help="of the peer")
    parser.add_argument("--rounds", type=int, default=5)
    add_out(parser)
    options = parser.parse_args()
    begin(options.out)
    os.environ["RAYON_NUM_THREADS"] = str(options.threads)  # of tokenizers
    examples, _ = open_scored_pairs(options.data)
    graph = options.graph or GRAPHS[processor()]
    peer = Peer(options.peer, graph, options.threads, options.batch_size)
    calls = {f"{options.peer.name} {graph}": lambda: by_vectors(peer, examples)}
    with tempfile.TemporaryDirectory(prefix="litebert-bench-") as folder:
        for number, name in enumerate([*options.models, *options.pairs]):
            out = Path(folder) / str(number)
            exporting = ExportOptions(runtime=options.engine, precision="int8", force=True)
            export_model(name, out, exporting)
            if number < len(options.models):
                model = load(out, threads=options.threads)
                calls[name] = lambda model=model: by_vectors(model.embed, examples)
                continue
            for rule in (None, "patience"):
                threshold = None if rule is None else options.threshold
                model = load(out, threads=options.threads, exit=rule, threshold=threshold)
                title = f"{name}, {'all layers' if rule is None else rule}"
                calls[title] = lambda model=model: by_pairs(model, examples)
        for call in calls.values():
            call()
        times = in_turns(calls, options.rounds)
    first = next(iter(times))
    least = {name: min(each.clock) for name, each in times.items()}
    figures = {
        name: {
            "texts_per_second": 2 * len(examples) / least[name],
            "times_as_fast_as_the_peer": least[first] / least[name],
            **score(SIMILARITY, examples, [NumberPrediction(value=x) for x in each.last or []]),
        }
        for name, each in times.items()
    }
    about = {"processor": processor(), "threads": options.threads, "pairs": len(examples)}
    publish(about | {"models": figures}, options.out)


def by_vectors(
    embed: Callable[[list[str]], np.ndarray], examples: Sequence[TextExample]
) -> list[float]:
    texts = [each.first for each in examples] + [str(each.second) for each in examples]
    vectors = embed(texts)
    numbers: list[float] = cosines(vectors[: len(examples)], vectors[len(examples) :]).tolist()
    return numbers


def by_pairs(model: Predictor, examples: Sequence[TextExample]) -> list[float]:
    numbers: list[float] = model.regress(
        [each.first for each in examples], [str(each.second) for each in examples]
    )
    return numbers


class Peer:
    """What SentenceTransformer.encode does with a graph that gives last_hidden_state."""

    def __init__(self, folder: Path, graph: str, threads: int, batch_size: int) -> None:
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(
            str(folder / "onnx" / graph), options, providers=["CPUExecutionProvider"]
        )
        self._inputs = {each.name for each in self._session.get_inputs()}
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        settings = folder / "sentence_bert_config.json"
        known = json.loads(settings.read_text()) if settings.exists() else {}
        config = json.loads((folder / "config.json").read_text())
        longest = min(LONGEST, config.get("max_position_embeddings", LONGEST))
        self._tokenizer.enable_truncation(known.get("max_seq_length", longest))
        self._tokenizer.enable_padding()
        self._batch_size = batch_size

    def __call__(self, texts: list[str]) -> np.ndarray:
        order = np.argsort([-len(text) for text in texts], kind="stable")
        found = []
        for start in range(0, len(texts), self._batch_size):
            few = [texts[number] for number in order[start : start + self._batch_size]]
            rows = self._tokenizer.encode_batch(few)
            ids, mask = (
                np.array([getattr(row, name) for row in rows], np.int64)
                for name in ("ids", "attention_mask")
            )
            arrays: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
            arrays["token_type_ids"] = np.zeros_like(ids)
            inputs = {name: each for name, each in arrays.items() if name in self._inputs}
            (states,) = self._session.run(["last_hidden_state"], inputs)
            weights = mask[:, None].astype(np.float32)
            found.append((weights @ states)[:, 0] / weights.sum(2))
        vectors = np.concatenate(found)
        back = np.empty_like(vectors)
        back[order] = vectors
        return back


if __name__ == "__main__":
    main()
