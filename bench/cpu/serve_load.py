"""Load on the service: latency against offered load, beside static batching and beside FastAPI
around a Hugging Face pipeline. Prints one JSON object.

    python -m bench.cpu.serve_load --out results/STUDY/serve_load.json
    python -m bench.cpu.serve_load --quick

One model with random weights, an ALBERT in the sizes of --shape, which transformers computes too.
One text of 8 to 128 tokens a request; clients in a process of their own, connections kept alive.
All servers are up, and contenders take turns, so that a busy machine slows them alike. For each:
its most requests a second with 16 clients (closed loop), the median of five rounds; then Poisson
arrivals at shares of that (open loop), with latencies from the moment each request was due.
`within_limit` is the highest offered load at which 99 % of the latencies are at most 250 ms and
nothing is refused; two more loads are tried between that and the next one. The peer is measured
with one request at a time on all threads, and with a request for each core, and keeps the better.

--infinity ENVIRONMENT adds infinity-emb, which needs an environment of its own (python -m venv, pip
install "infinity-emb[torch,server,optimum]"); it computes the int8 graph of `litebert export
--whole`, its fastest engine on a processor.

With exits: the same sizes with an exit head after every layer, and the threshold of the cumulative
rule for which generated texts leave after about half of the layers; weights are random, so that
only the depth is realistic, which is stated.

Light load: one client, in turns with a direct call of the same engine; of albert-base as well. For
sizing: requests a second a core, by length. With --device cuda: depth-wise beside static batching,
and light load.

Beside FILE.json come FILE.svg and FILE.png, latency against offered load, and FILE.md, the sizing.
"""

import argparse
import http.client
import json
import math
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.common.load import ROOT, Loader
from bench.common.results import add_out, begin, publish
from bench.common.tables import markdown
from litebert import cli
from litebert.config import PRESETS, EncoderConfig, HeadConfig, ModelConfig
from litebert.infer.cpu import processor
from litebert.infer.export.folder import ExportOptions, export_folder
from litebert.infer.predictor import load
from litebert.model.model import Model
from litebert.models.index import default_model
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.decode.exits import ExitRule, exit_depths
from litebert.tasks.encode.encode import encode
from litebert.tasks.examples import TextExample
from litebert.tasks.heads.heads import depth_logits
from litebert.tasks.task import Task, TaskCard
from litebert.text.tokenizer import Tokenizer
from litebert.threads import num_cores

LIMIT_MS = 250.0
CLIENTS = 16
SHARES = (0.3, 0.6, 0.8, 0.95, 1.1)
"""Of the closed loop's throughput, the offered loads."""
ROUNDS = 5
"""Of closed loops."""
BISECTIONS = 2
"""Loads between the highest within the limit and the next one."""
LARGER = "albert-base-v2"
"""The other shape under light load."""
SIZES = (16, 32, 64, 128)
"""Tokens of a text."""
PAUSE = 0.02
"""Seconds between turns: a runtime's threads spin for a while after a call."""
LABELS = ("negative", "positive")
CRITERION = "cumulative"
SPREAD = 1.6
WORD_START = "▁"
Figures = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", default="litebert-small", help="preset whose sizes are taken")
    parser.add_argument("--engine", choices=("onnx", "openvino", "torch"), default="onnx")
    parser.add_argument("--precision", choices=("int8", "float32"), default="int8")
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="cuda: torch, without the peer"
    )
    parser.add_argument("--threads", type=int, default=num_cores())
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    parser.add_argument("--quick", action="store_true", help="a tiny model and short loads")
    parser.add_argument("--infinity", type=Path, help="an environment that has infinity-emb")
    add_out(parser)
    options = parser.parse_args()
    if options.device == "cuda":
        options.engine = "torch"
    begin(options.out)
    seconds, shares = options.seconds, SHARES
    encoder = sizes_of("tiny" if options.quick else options.shape)
    if options.quick:
        seconds, shares = min(seconds, 1.0), (0.5,)
    engine = "torch float32" if options.device == "cpu" else "torch on a GPU"
    if options.engine != "torch":
        engine = f"{options.engine} {options.precision}"
    figures: Figures = {
        "shape": "tiny" if options.quick else options.shape,
        "device": options.device,
        "threads": options.threads,
        "limit_ms": LIMIT_MS,
        "seconds": seconds,
        "loads": {},
    }
    with tempfile.TemporaryDirectory(prefix="litebert-load-") as name, Loader() as loader:
        folder = Path(name)
        texts = made_texts(256, 8, 128)
        plain, early = (save(folder / each, encoder, each) for each in ("none", "each"))
        served = {
            each: exported(each, options.engine, options.precision) for each in (plain, early)
        }
        threshold = threshold_of(early, texts, len(encoder.plan()) / 2)
        rule = ["--exit", CRITERION, "--threshold", repr(threshold)]
        depths = depths_of(served[early], texts, threshold, options.device)
        figures["exits"] = depths | {"threshold": threshold}
        with ExitStack() as servers:
            loads: dict[str, Load] = {}

            def add(title: str, port: int, path: str, bodies: Sequence[Any]) -> None:
                loads[title] = Load(loader, port, path, list(map(json.dumps, bodies)), seconds)

            for title, model, flags in (("", plain, []), (", with exits", early, rule)):
                for batching in ("depth", "static"):
                    arguments = ["--model", f"load={served[model]}", "--batching", batching, *flags]
                    port = servers.enter_context(
                        litebert_server(arguments, options.threads, options.device)
                    )
                    name = f"litebert {batching} ({engine}){title}"
                    add(name, port, "/v1/classify", [{"texts": [text]} for text in texts])
            if options.device == "cpu":
                bodies = [{"text": text} for text in texts]
                rates, port = best_peer(servers, loader, plain, bodies, options.threads, seconds)
                figures["fastapi_settings"] = rates
                add("fastapi + transformers (torch float32)", port, "/predict", bodies)
            if options.infinity is not None:
                graph = infinity_model(plain)
                port = servers.enter_context(
                    infinity_server(options.infinity, graph, options.threads)
                )
                inputs = [{"model": "load", "input": [text]} for text in texts]
                add("infinity-emb (onnx int8)", port, "/classify", inputs)
            rounds = 1 if options.quick else ROUNDS
            figures["loads"] = measure_in_turns(loads, shares, rounds)
        if options.device == "cpu":
            figures["requests_per_second_a_core"] = sizing(
                loader, served[plain], options.threads, seconds
            )
        figures["light"] = {}
        for shape in [figures["shape"]] if options.quick else [options.shape, LARGER]:
            model = served[plain]
            if shape != figures["shape"]:
                larger = save(folder / shape, sizes_of(shape), "none")
                model = exported(larger, options.engine, options.precision)
            rounds = 5 if options.quick else 40
            figures["light"][shape] = light(model, options.threads, rounds, options.device)
    figures["ratios"] = ratios(figures["loads"])
    publish(figures, options.out)
    if options.out is not None:
        draw(figures, options.out)
        if options.device == "cpu":
            options.out.with_suffix(".md").write_text(sizing_table(figures), encoding="utf-8")


# ---- models and texts


def sizes_of(shape: str) -> EncoderConfig:
    """ALBERT in these sizes: post-norm and learned positions, as transformers has it."""
    sizes = PRESETS[shape]
    names = ("hidden_size", "num_layers", "num_attention_heads", "ffn_size", "embedding_size")
    vocab_size = Tokenizer.load(default_model().folder).vocab_size
    changed = {name: getattr(sizes, name) for name in names} | {"vocab_size": vocab_size}
    # weights so large that texts differ in their states, and leave at different depths
    init_std = SPREAD / math.sqrt(sizes.hidden_size)
    return replace(PRESETS["albert-base-v2"], **changed, init_std=init_std)


def save(folder: Path, encoder: EncoderConfig, exits: str) -> Path:
    """A classifier with random weights."""
    torch.manual_seed(0)
    head = HeadConfig(kind="classify", labels=LABELS, exits=exits)  # type: ignore[arg-type]
    model = Model(ModelConfig(encoder=encoder, heads=(head,))).eval()
    task = Task(
        name="classify", kind="classify", scores=("accuracy",), labels=LABELS, head="classify"
    )
    card = TaskCard(task=task, max_length=128)
    tokenizer = Tokenizer.load(default_model().folder)
    Checkpoint(model=model, tokenizer=tokenizer, task=card.to_dict()).save(folder / "model")
    return folder / "model"


def exported(model: Path, engine: Any, precision: Any) -> Path:
    if engine == "torch":
        return model
    out = model.parent / engine
    export_folder(Checkpoint.load(model), out, ExportOptions(runtime=engine, precision=precision))
    return out


def made_texts(count: int, least: int, most: int) -> list[str]:
    """Words that are one token each, so that a text has `least` to `most` tokens with [CLS] and
    [SEP]."""
    tokenizer = Tokenizer.load(default_model().folder)
    words = [
        token[1:]
        for token in tokenizer.tokens
        if token.startswith(WORD_START) and token[1:].isascii() and token[1:].isalpha()
    ][:4000]
    draw = random.Random(0)
    return [" ".join(draw.choices(words, k=draw.randint(least, most) - 2)) for _ in range(count)]


def threshold_of(model: Path, texts: Sequence[str], depth: float) -> float:
    """The threshold with which texts leave after about `depth` layers."""
    checkpoint = Checkpoint.load(model)
    assert checkpoint.tokenizer is not None
    assert checkpoint.task is not None
    examples = [TextExample(key=str(n), first=text) for n, text in enumerate(texts[:64])]
    inputs = encode(TaskCard.from_dict(checkpoint.task), examples, checkpoint.tokenizer)
    logits = depth_logits(checkpoint.model, inputs)

    def distance(threshold: float) -> float:
        rule = ExitRule(criterion=CRITERION, threshold=threshold)
        return abs(float(exit_depths(rule, "classify", logits).mean()) - depth)

    grid = np.concatenate([np.logspace(-4, -0.1, 200), 1 - np.logspace(-0.7, -12, 400)])
    return min(map(float, grid), key=distance)


def depths_of(model: Path, texts: Sequence[str], threshold: float, device: str = "cpu") -> Figures:
    """How deep the served model computes, in its own precision."""
    predictor = load(model, device=device, exit=CRITERION, threshold=threshold)
    depths = [each.depth or 0 for each in predictor.classify(list(texts))]
    counts = {str(depth): depths.count(depth) for depth in sorted(set(depths))}
    layers = len(predictor.engine.config.encoder.plan())
    return {"layers": layers, "mean_depth": statistics.mean(depths), "texts_by_depth": counts}


# ---- servers


@contextmanager
def server(command: Sequence[str], sign: str, threads: int) -> Iterator[int]:
    """A server process; its port, once it prints a line with `sign`."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    try:
        assert process.stdout is not None
        line = next((line for line in process.stdout if sign in line), None)
        if line is None:
            raise SystemExit(f"the server ended: {' '.join(command)}")
        yield int(line.split("http://127.0.0.1:")[1].split("/")[0].split()[0])
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def litebert_server(flags: Sequence[str], threads: int, device: str = "cpu") -> Any:
    command = ["-m", "litebert.cli", "serve", "--port", "0", "--device", device, *flags]
    return server([*command, "--threads", str(threads)], "curl", threads)


def peer_server(model: Path, workers: int, threads: int) -> Any:
    command = ["-m", "bench.cpu.serve_peer", "--model", str(model), "--port", "0"]
    flags = ["--workers", str(workers), "--threads", str(threads)]
    return server([*command, *flags], "ready:", threads)


class Load:
    """One server under load."""

    def __init__(
        self, loader: Loader, port: int, path: str, bodies: Sequence[str], seconds: float
    ) -> None:
        self._asked = (port, path, bodies)
        self._loader, self._seconds = loader, seconds
        self.points: list[Figures] = []

    def capacity(self) -> float:
        """Requests a second with many clients that wait for their answers."""
        self._loader.closed(*self._asked, clients=2, seconds=min(1.0, self._seconds))
        figures = self._loader.closed(*self._asked, clients=CLIENTS, seconds=self._seconds)
        return float(figures["answered_per_second"])

    def offer(self, rate: float) -> None:
        """One more point: so many requests a second, whether or not they are answered."""
        rate = max(rate, 1.0)
        point = self._loader.open(*self._asked, rate=rate, seconds=self._seconds, seed=0)
        self.points.append({"offered": rate} | point)

    @property
    def within_limit(self) -> float:
        """The highest load that was answered within the limit."""
        return max((each["offered"] for each in self.points if is_within(each)), default=0.0)

    def bisect(self) -> None:
        """Offer a load between that and the next one."""
        good = self.within_limit
        bad = [each["offered"] for each in self.points if each["offered"] > good]
        if bad:
            self.offer((good + min(bad)) / 2)


def measure_in_turns(
    loads: Mapping[str, Load], shares: Sequence[float], rounds: int
) -> dict[str, Figures]:
    """Every contender's figures. At each step all are measured, one after another."""
    rates: dict[str, list[float]] = {name: [] for name in loads}
    for _ in range(rounds):
        for name, load_of in loads.items():
            rates[name].append(load_of.capacity())
    capacities = {name: statistics.median(each) for name, each in rates.items()}
    for share in shares:
        for name, load_of in loads.items():
            load_of.offer(share * capacities[name])
    for _ in range(BISECTIONS if len(shares) > 1 else 0):
        for load_of in loads.values():
            load_of.bisect()
    return {
        name: {
            "closed_loop": capacities[name],
            "closed_loop_rounds": rates[name],
            "within_limit": load_of.within_limit,
            "points": sorted(load_of.points, key=lambda point: float(point["offered"])),
        }
        for name, load_of in loads.items()
    }


def is_within(point: Figures) -> bool:
    """Whether a load was answered within the limit."""
    return set(point["statuses"]) <= {"200", "none"} and (
        point["statuses"].get("none", 0) == 0 and (point["p99_ms"] or 1e9) <= LIMIT_MS
    )


def best_peer(
    servers: ExitStack,
    loader: Loader,
    model: Path,
    bodies: Sequence[Any],
    threads: int,
    seconds: float,
) -> tuple[dict[str, float], int]:
    """Requests a second of the peer at each of two settings, and the port of the better one."""
    folder = model.parent / "huggingface"
    if cli.run(["convert", str(model), str(folder), "--to", "huggingface"]):
        raise SystemExit("the model could not be converted")
    texts = list(map(json.dumps, bodies))
    rates: dict[tuple[int, int], float] = {}
    for workers, each in {(1, threads), (threads, 1)}:
        with peer_server(folder, workers, each) as port:
            rates[workers, each] = Load(loader, port, "/predict", texts, seconds).capacity()
    workers, each = max(rates, key=rates.__getitem__)
    port = servers.enter_context(peer_server(folder, workers, each))
    return {f"{w} at once, {t} threads each": rate for (w, t), rate in rates.items()}, port


@contextmanager
def infinity_server(environment: Path, model: Path, threads: int) -> Iterator[int]:
    """infinity-emb with a model in its current folder, since it looks for graphs there alone; its
    port, once it answers. Its warm-up does not truncate, and fails where positions are learned."""
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    command = [environment.absolute() / "bin/infinity_emb", "v2", "--model-id", "."]
    command += ["--engine", "optimum", "--device", "cpu", "--no-bettertransformer"]
    command += ["--no-model-warmup", "--served-model-name", "load", "--port", str(port)]
    offline = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "OMP_NUM_THREADS": str(threads)}
    process = subprocess.Popen(
        list(map(str, command)),
        cwd=model,
        env=os.environ | offline,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while process.poll() is None and not is_open(port):
            time.sleep(0.5)
        if process.poll() is not None:
            raise SystemExit("infinity-emb ended")
        yield port
    finally:
        process.terminate()
        process.wait()


def is_open(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def infinity_model(model: Path) -> Path:
    """A folder with this model's int8 graph, where infinity-emb expects one: beside the config."""
    folder = model.parent / "infinity"
    options = ExportOptions(whole=True, precision="int8", force=True)
    export_folder(Checkpoint.load(model), folder, options)
    names = {"vnni": "model_qint8_avx512_vnni", "avx2": "model_quint8_avx2"}
    name = names.get(processor(), "model_qint8_arm64")
    shutil.copyfile(folder / "onnx" / f"{name}.onnx", folder / "model.onnx")
    shutil.rmtree(folder / "onnx")
    return folder


# ---- by length, and light load


def sizing(loader: Loader, model: Path, threads: int, seconds: float) -> Figures:
    """What many clients get of texts of one length, by the number of cores that compute."""
    figures: Figures = {}
    with litebert_server(["--model", f"load={model}"], threads) as port:
        for tokens in SIZES:
            bodies = [json.dumps({"texts": [text]}) for text in made_texts(64, tokens, tokens)]
            load_of = Load(loader, port, "/v1/classify", bodies, seconds)
            figures[f"{tokens} tokens"] = load_of.capacity() / threads
    return figures


def light(model: Path, threads: int, rounds: int, device: str = "cpu") -> Figures:
    """One client in turns with direct calls: median milliseconds by tokens, and their ratio."""
    predictor = load(model, device=device, threads=threads)
    figures: Figures = {}
    with litebert_server(["--model", f"load={model}"], threads, device) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for tokens in (16, 64, 128):
            (text,) = made_texts(1, tokens, tokens)
            body = json.dumps({"texts": [text]})

            def ask(body: str = body) -> None:
                connection.request("POST", "/v1/classify", body)
                assert connection.getresponse().read()

            calls: dict[str, Callable[[], Any]] = {
                "direct": lambda text=text: predictor.classify([text]),
                "served": ask,
            }
            times: dict[str, list[float]] = {name: [] for name in calls}
            for number in range(rounds + 2):
                for name, call in calls.items():
                    time.sleep(PAUSE)
                    began = time.perf_counter()
                    call()
                    if number > 1:
                        times[name].append(1e3 * (time.perf_counter() - began))
            medians = {f"{name}_ms": statistics.median(each) for name, each in times.items()}
            ratio = medians["served_ms"] / medians["direct_ms"]
            figures[f"{tokens} tokens"] = medians | {"ratio": ratio}
        connection.close()
    return figures


# ---- what comes out


def ratios(loads: dict[str, Figures]) -> Figures:
    """Requests a second within the limit, and at most, beside the peer's and static batching's."""
    figures: Figures = {}
    depth, static, depth_early, static_early, *peers = loads.values()
    pairs = {
        **{
            f"depth / {name}": (depth, peer)
            for name, peer in zip(("fastapi", "infinity-emb"), peers, strict=False)
        },
        "depth / static": (depth, static),
        "depth / static, with exits": (depth_early, static_early),
    }
    for title, (one, other) in pairs.items():
        for measure in ("within_limit", "closed_loop"):
            divisor = other[measure]
            figures[f"{title}, {measure}"] = one[measure] / divisor if divisor else None
    return figures


def sizing_table(figures: Figures) -> str:
    """In Markdown, what docs/serve.md says of a core."""
    by_length = figures["requests_per_second_a_core"]
    rows = [[length.removesuffix(" tokens"), f"{rate:.0f}"] for length, rate in by_length.items()]
    return markdown([f"tokens of a text ({figures['shape']})", "requests a second, a core"], rows)


def draw(figures: Figures, out: Path) -> None:
    """Latency against offered load, as SVG and PNG beside the figures."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(11, 4.4), layout="constrained", sharey=True)
    exits = figures["exits"]
    titles = ("all layers", f"with exits: {exits['mean_depth']:.1f} of {exits['layers']} layers")
    for axes, title, is_early in zip(panels, titles, (False, True), strict=True):
        for name, each in figures["loads"].items():
            if ("with exits" in name) != is_early:
                continue
            points = [point for point in each["points"] if point["p99_ms"] is not None]
            offered = [point["offered"] for point in points]
            label = name.removesuffix(", with exits")
            (line,) = axes.plot(offered, [p["p99_ms"] for p in points], marker="o", label=label)
            style = {"color": line.get_color(), "linestyle": ":"}
            axes.plot(offered, [point["p50_ms"] for point in points], **style)
        axes.axhline(figures["limit_ms"], color="gray", linewidth=0.8)
        axes.set(title=title, xlabel="offered requests a second", xlim=(0, None), yscale="log")
        axes.grid(alpha=0.3, which="both")
        axes.legend(fontsize=8)
    panels[0].set_ylabel("latency, ms: p99, dotted p50")
    where = "a GPU" if figures.get("device") == "cuda" else f"{figures['threads']} threads"
    figure.suptitle(f"{figures['shape']}, {where}, texts of 8 to 128 tokens, one a request")
    figure.savefig(out.with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(out.with_suffix(".png"), dpi=120, metadata={"Software": None})
    pyplot.close(figure)


if __name__ == "__main__":
    main()
