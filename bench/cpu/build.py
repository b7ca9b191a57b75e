"""What `litebert data build` costs against bare SentencePiece on the same text, and how much memory
it takes.

    python -m bench.cpu.build --data FILE... --tokenizer spiece.model --out build.json
    python -m bench.cpu.build --data FILE... --tokenizer spiece.model --out build.json \\
        --memory 0.5 4

Bare SentencePiece is `SentencePieceProcessor.Encode(paragraphs, out_type=int, num_threads=1)` on
paragraphs that are in memory already, without ALBERT's clean-up: less work than any build does.
Times are CPU seconds of all processes, so that "per core" means just that; the two are measured by
turns, and the ratio is the median over the turns. What a build of one sentence takes, to start
Python and to load and save the tokenizer, is told apart: it does not grow with the corpus.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import sentencepiece

from bench.common.results import add_out, begin, publish
from litebert.data.chunks import find_files
from litebert.data.corpus import CorpusOptions, read_documents
from litebert.data.encode import EncoderRecipe, ParcelEncoder, parcels
from litebert.text.tokenizer import Tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", required=True, help="corpus files")
    parser.add_argument(
        "--tokenizer", required=True, help="tokenizer folder or SentencePiece model"
    )
    add_out(parser)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=48, help="text of each file that is timed")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument(
        "--memory",
        type=float,
        nargs="*",
        default=[],
        help="sizes in GB of the builds whose memory is taken",
    )
    options = parser.parse_args()
    begin(options.out)
    figures: dict[str, Any] = {
        "data": [Path(name).name for name in options.data],
        "turns": options.turns,
    }
    with tempfile.TemporaryDirectory(prefix="litebert-bench-") as folder:
        if options.turns:
            figures["files"] = {}
            for name in options.data:
                figures["files"][Path(name).name] = speed(name, options, Path(folder))
                print(json.dumps(figures["files"][Path(name).name], indent=1), file=sys.stderr)
        if options.memory:
            figures["memory"] = [memory(size, options, Path(folder)) for size in options.memory]
            peaks = [each["peak_pss_mib"] for each in figures["memory"]]
            figures["memory_ratio"] = peaks[-1] / peaks[0]
    figures["load_average"] = os.getloadavg()
    publish(figures, options.out)


def speed(name: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """CPU and wall time of encoding alone and of whole builds, against SentencePiece, by turns."""
    plain = folder / "text.txt"
    size = write_plain(name, plain, options.megabytes * 1_000_000)
    figures: dict[str, Any] = {
        "text_bytes": size,
        "encode_ratio_by_parcel": encode_ratio(plain, options.tokenizer),
    }
    tiny = folder / "tiny.txt"
    tiny.write_text("One sentence.\n")
    turns: dict[str, list[dict[str, float]]] = {}
    for _ in range(options.turns):
        runs = {
            "sentencepiece": [
                sys.executable,
                "-m",
                "bench.cpu.build",
                "--bare",
                str(plain),
                options.tokenizer,
            ]
        }
        for workers in options.workers:
            runs[f"build, {workers} workers"] = build_command(
                [plain], options.tokenizer, folder / "shards", workers
            )
            runs[f"start, {workers} workers"] = build_command(
                [tiny], options.tokenizer, folder / "shards", workers
            )
        for label, command in runs.items():
            turns.setdefault(label, []).append(timed(command))
            shutil.rmtree(folder / "shards", ignore_errors=True)
    bare = [turn["encode_cpu_seconds"] for turn in turns["sentencepiece"]]
    figures["sentencepiece_mb_per_cpu_second"] = size / 1e6 / statistics.median(bare)
    for label, each in turns.items():
        if not label.startswith("build"):
            continue
        cpu = [turn["cpu_seconds"] for turn in each]
        start = [turn["cpu_seconds"] for turn in turns[label.replace("build", "start")]]
        figures[label] = {
            "mb_per_cpu_second": size / 1e6 / statistics.median(cpu),
            "mb_per_wall_second": size
            / 1e6
            / statistics.median(turn["wall_seconds"] for turn in each),
            "start_cpu_seconds": statistics.median(start),
            "ratio": statistics.median(
                theirs / ours for theirs, ours in zip(bare, cpu, strict=True)
            ),
            "ratio_without_start": statistics.median(
                theirs / (ours - before)
                for theirs, ours, before in zip(bare, cpu, start, strict=True)
            ),
        }
    return figures


def write_plain(name: str, target: Path, limit: int) -> int:
    """Unpack the first documents of a corpus file to plain text; its size."""
    size = 0
    with target.open("w", encoding="utf-8") as file:
        for document in read_documents([name]):
            size += file.write(
                ("" if document.joined or not size else "\n")
                + "\n".join(document.paragraphs)
                + "\n"
            )
            if size >= limit:
                break
    return target.stat().st_size


def encode_ratio(plain: Path, tokenizer: str) -> dict[str, float]:
    """SentencePiece's time over ours for one parcel after another: what noise there is hits both
    alike."""
    loaded = Tokenizer.load(tokenizer)
    processor = sentencepiece.SentencePieceProcessor(model_proto=loaded.model)
    options = CorpusOptions()
    encoder = ParcelEncoder(
        EncoderRecipe(model=loaded.model, rules=loaded.rules, options=options, split="rules")
    )
    ratios = []
    for number, parcel in enumerate(parcels(find_files([plain]), options)):
        documents, _ = options.read(parcel.chunks[0])
        paragraphs = [paragraph for document in documents for paragraph in document.paragraphs]
        times = {}
        for which in ("ours", "theirs") if number % 2 else ("theirs", "ours"):
            began = time.process_time()
            if which == "ours":
                encoder(parcel)
            else:
                processor.Encode(paragraphs, out_type=int, num_threads=1)
            times[which] = time.process_time() - began
        ratios.append(times["theirs"] / times["ours"])
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {"median": middle, "lower_quartile": low, "upper_quartile": high, "parcels": len(ratios)}


def build_command(files: list[Path], tokenizer: str, out: Path, workers: int) -> list[str]:
    code = "import sys; from litebert.cli import main; main(sys.argv[1:])"
    names = [str(file) for file in files]
    common = ["--tokenizer", tokenizer, "--out", str(out), "--workers", str(workers), "--json"]
    return [sys.executable, "-c", code, "data", "build", *names, *common]


def timed(command: list[str]) -> dict[str, float]:
    """Wall and CPU seconds of a command and of all that it started."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    printed = json.loads(done.stdout)
    return {
        "wall_seconds": wall,
        "cpu_seconds": cpu,
        "encode_cpu_seconds": printed.get("encode_cpu_seconds", cpu),
    }


def bare(name: str, model: str) -> None:
    """Encode a text by SentencePiece, a mebibyte at a time; print the CPU seconds of that alone."""
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    seconds = 0.0
    with open(name, encoding="utf-8") as file:
        while lines := file.readlines(2**20):
            paragraphs = [stripped for line in lines if (stripped := line.strip())]
            began = time.process_time()
            processor.Encode(paragraphs, out_type=int, num_threads=1)
            seconds += time.process_time() - began
    print(json.dumps({"encode_cpu_seconds": seconds}))


def memory(gigabytes: float, options: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Peak memory of all processes of a build, of links to the corpus files that make up so much
    text."""
    links: list[Path] = []
    size, sizes = 0.0, {name: text_bytes(name) for name in options.data}
    while size < gigabytes * 1e9:
        name = options.data[len(links) % len(options.data)]
        suffix = "".join(Path(name).suffixes[-2:])
        links.append(folder / f"{gigabytes}-{len(links):04d}{suffix}")
        links[-1].symlink_to(Path(name).resolve())
        size += sizes[name]
    out = folder / "memory"
    command = [
        "nice",
        "-n",
        "10",
        *build_command(links, options.tokenizer, out, max(options.workers)),
    ]
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(command, stdout=printed, stderr=subprocess.DEVNULL)
        peak = Peak(process.pid)
        began = time.monotonic()
        code = process.wait()
        peak.stop()
        printed.seek(0)
        report = json.loads(printed.read()) if code == 0 else {}
    shutil.rmtree(out, ignore_errors=True)
    return {
        "gigabytes": report["text_bytes"] / 1e9,
        "workers": max(options.workers),
        "peak_pss_mib": peak.pss / 2**20,
        "peak_rss_sum_mib": peak.rss / 2**20,
        "samples": peak.samples,
        "wall_seconds": time.monotonic() - began,
        "tokens": report["tokens"],
        "shards": report["shards"],
    }


def text_bytes(name: str) -> int:
    return sum(chunk.size for file in find_files([name]) for chunk in CorpusOptions().chunks(file))


class Peak:
    """The largest memory that a process and its descendants held together, looked at ten times a
    second.

    PSS counts a page that several processes share once; the sum of RSS counts it for each.
    """

    def __init__(self, pid: int) -> None:
        self.pss = self.rss = self.samples = 0
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.1):
            sizes = [self._sizes(pid) for pid in self._family()]
            self.pss = max(self.pss, sum(pss for pss, _ in sizes))
            self.rss = max(self.rss, sum(rss for _, rss in sizes))
            self.samples += 1

    def _family(self) -> list[int]:
        family, waiting = [], [self._pid]
        while waiting:
            pid = waiting.pop()
            family.append(pid)
            try:
                children = [
                    Path(f"/proc/{pid}/task/{task}/children")
                    for task in os.listdir(f"/proc/{pid}/task")
                ]
                waiting += [int(child) for path in children for child in path.read_text().split()]
            except OSError:
                continue
        return family

    def _sizes(self, pid: int) -> tuple[int, int]:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            return 0, 0
        fields = {line.split(":")[0]: line.split()[1] for line in lines[1:]}
        return int(fields["Pss"]) * 1024, int(fields["Rss"]) * 1024

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--bare"]:
        bare(*sys.argv[2:])
    else:
        main()
