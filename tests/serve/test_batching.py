"""Layer by layer or batch after batch: both give the Predictor's results, and one client's end is
not another's."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import pytest

from litebert import cli
from litebert.errors import CheckpointError, ConfigError
from litebert.infer.predictor import Predictor, load
from litebert.serve.models import Batching, Key, Models, ServedModel, leave_early
from litebert.serve.runners import DEPTH_TOKENS, Layered, Static
from litebert.threads import Threads
from tests.helpers.models import texts
from tests.helpers.serving import HANGS, Running, serving, wait_for
from tests.infer.test_exits import checkpoint_of
from tests.serve.test_verbs import _numbers, _rest

TEXT = "the baker sings"
ITEM = {"context": TEXT, "question": "who sings", "options": ["the baker", "a thief", "he"]}


def bodies(count: int) -> list[tuple[str, dict[str, Any]]]:
    """Requests of every kind, of one to four texts."""
    many = texts(4 * count)
    requests: list[tuple[str, dict[str, Any]]] = []
    for number in range(count):
        some = many[4 * number : 4 * number + 1 + number % 4]
        pairs = [[text, TEXT] for text in some]
        requests.append(
            (
                ("classify", {"texts": some, "truncate": True}),
                ("pair", {"pairs": pairs, "truncate": True}),
                ("embeddings", {"input": some, "truncate": True}),
                ("regress", {"texts": some, "truncate": True}),
                ("tag", {"texts": some}),
                ("answer", {"items": [{"question": "who", "context": text} for text in some]}),
                (
                    "fill",
                    {"texts": [f"[MASK] {text[:30]}" for text in some], "top": 1 + number % 5},
                ),
                ("choose", {"items": [ITEM] * len(some)}),
                ("layers", {"texts": [TEXT]}),
            )[number % 9]
        )
    return requests


@pytest.mark.parametrize("batching", ["depth", "static"])
def test_clients_at_once_get_what_one_alone_gets(batching: Batching, predictor: Predictor) -> None:
    requests = bodies(45)

    def ask(running: Running, request: tuple[str, Any]) -> Any:
        answer = running.ask(f"/v1/{request[0]}", request[1])
        assert answer.status == 200, answer.body
        return answer.json

    with serving(Models([ServedModel("tiny", predictor)], batching="static")) as running:
        expected = [ask(running, request) for request in requests]
    models = Models([ServedModel("tiny", predictor)], batching=batching)
    with serving(models) as running, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda request: ask(running, request), requests))
        assert running.service.scheduler.sizes == (0, 0)
    for ours, theirs in zip(answers, expected, strict=True):
        assert _numbers(ours) == pytest.approx(_numbers(theirs), abs=1e-4)
        assert _rest(ours) == _rest(theirs)


def test_what_suits_the_model_is_chosen(predictor: Predictor, monkeypatch: Any) -> None:
    served = ServedModel("tiny", predictor)
    layered = {
        batching: [verb for verb in (*served.verbs, "layers") if served.is_layered(verb, batching)]
        for batching in get_args(Batching)
    }
    assert layered == {"auto": list(served.verbs), "depth": list(served.verbs), "static": []}
    monkeypatch.setattr(predictor.engine, "is_gpu", True)
    assert not served.is_layered("embed", "auto")
    assert served.is_layered("embed", "depth")


@pytest.mark.parametrize(("batching", "tokens"), [("depth", 256), ("static", 2048)])
def test_info_says_how(batching: Batching, tokens: int, predictor: Predictor) -> None:
    with serving(Models([ServedModel("tiny", predictor)], batching=batching)) as running:
        info = running.ask("/info").json
    assert (info["batching"], info["max_batch_tokens"]) == (batching, tokens)


def test_a_model_s_verbs_share_the_layers(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = ServedModel("tiny", predictor)
    models = Models([served])
    embed, fill = Key("tiny", "embed"), Key("tiny", "fill", 5)
    shared = models.runner(embed)
    assert isinstance(shared, Layered)
    assert models.runner(fill) is models.runner(Key("tiny", "fill", 2)) is shared
    assert isinstance(models.runner(Key("tiny", "layers")), Static)
    assert shared.max_tokens == DEPTH_TOKENS
    static = Models([served], batching="static")
    assert static.runner(embed) is static.runner(embed) is not static.runner(fill)
    assert static.runner(embed).max_tokens == predictor.engine.batch_tokens
    assert Models([served]).runner(embed, 64).max_tokens == 64
    for threads, tokens in ((Threads(8, ""), 1024), (None, predictor.engine.batch_tokens)):
        monkeypatch.setattr(predictor.engine, "threads", threads)
        assert Models([served]).runner(embed).max_tokens == tokens
    monkeypatch.setattr(predictor.engine, "is_gpu", True)
    monkeypatch.setattr(predictor.engine, "batch_tokens", 16_384)
    on_gpu = Models([served]).runner(embed)
    assert isinstance(on_gpu, Static)
    assert on_gpu.max_tokens == 16_384


class Turnstile:
    """Holds an engine's layers until it is opened."""

    def __init__(self, predictor: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        self.rows: list[int] = []
        self.refused = -1
        """A token that no layer computes."""
        layer = predictor.engine.layer

        def run(number: int, states: Any, batch: Any, *, last: bool = False) -> Any:
            self.rows.append(len(states))
            self.entered.set()
            assert self.opened.wait(HANGS)
            if (batch.arrays["token_ids"] == self.refused).any():
                raise CheckpointError("not this one")
            return layer(number, states, batch, last=last)

        monkeypatch.setattr(predictor.engine, "layer", run)


@pytest.fixture
def turnstile(predictor: Predictor, monkeypatch: pytest.MonkeyPatch) -> Iterator[Turnstile]:
    held = Turnstile(predictor, monkeypatch)
    yield held
    held.opened.set()


def test_a_text_joins_those_that_are_being_computed(models: Models, turnstile: Turnstile) -> None:
    with serving(models) as running, ThreadPoolExecutor(4) as pool:
        first = pool.submit(running.ask, "/v1/classify", {"texts": [TEXT]})
        assert turnstile.entered.wait(HANGS)
        others = [pool.submit(running.ask, "/v1/embeddings", {"input": TEXT}) for _ in range(3)]
        wait_for(lambda: running.service.scheduler.sizes.jobs == 4)
        turnstile.opened.set()
        assert [each.result().status for each in (first, *others)] == [200] * 4
    # two layers: one of the first text alone, then one with all others
    assert turnstile.rows[0] == 1
    assert max(turnstile.rows) == 3
    assert len(turnstile.rows) <= 4


def test_one_client_s_failure_and_leaving_are_not_another_s(
    models: Models, predictor: Predictor, turnstile: Turnstile
) -> None:
    own = [set(map(int, predictor.tokenizer.encode(text))) for text in ("the old house", "a thief")]
    turnstile.refused = min(own[0] - own[1] - set(map(int, predictor.tokenizer.encode(TEXT))))
    with serving(models) as running, ThreadPoolExecutor(4) as pool:
        first = pool.submit(running.ask, "/v1/classify", {"texts": [TEXT]})
        assert turnstile.entered.wait(HANGS)
        asked = [["the old house"], [TEXT], ["a thief"]]
        others = [pool.submit(running.ask, "/v1/classify", {"texts": each}) for each in asked]
        wait_for(lambda: running.service.scheduler.sizes.jobs == 4)
        late = running.ask("/v1/classify", {"texts": [TEXT]}, headers={"X-Request-Timeout": "0.05"})
        assert late.status == 504
        turnstile.opened.set()
        assert first.result().status == 200
        assert [other.result().status for other in others] == [422, 200, 200]
        wait_for(lambda: running.service.scheduler.sizes == (0, 0))


@pytest.fixture(scope="module")
def with_exits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exits")
    return checkpoint_of(folder, "classify", "each").save(folder / "early")


def test_texts_leave_early(with_exits: Path, predictor: Predictor) -> None:
    served = [
        ServedModel("early", load(with_exits, device="cpu", threads=1)),
        ServedModel("tiny", predictor),
    ]
    leave_early(served, "patience", 1.0)
    assert predictor.engine.exit_rule is None
    expected = list(served[0].predictor.classify(texts(30)))
    body = {"texts": texts(30), "truncate": True, "model": "early"}
    with serving(Models(served)) as running:
        results = running.ask("/v1/classify", body).json["results"]
    assert [each["depth"] for each in results] == [each.depth for each in expected]
    assert len({each.depth for each in expected}) > 1
    with pytest.raises(ConfigError, match="this model has no exits"):
        leave_early(served[1:], "confidence", 0.5)
    with pytest.raises(ConfigError, match="a threshold is of an exit, and none is given"):
        leave_early(served, None, 0.5)


def test_the_command_takes_batching_and_exits(
    with_exits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from litebert.serve import server

    opened: list[Models] = []

    def run_at(self: server.Server, listener: Any) -> None:
        listener.close()
        opened.append(self._load())
        self.service.close()

    monkeypatch.setattr(server.Server, "run_at", run_at)
    flags = ["--batching", "static", "--exit", "confidence", "--threshold", "0.7"]
    args = ["serve", "--model", str(with_exits), "--port", "0", "--device", "cpu"]
    assert cli.run([*args, *flags, "--batch-tokens", "99"]) == 0
    (models,) = opened
    assert models.batching == "static"
    rule = models.served["early"].predictor.engine.exit_rule
    assert rule is not None
    assert (rule.criterion, rule.threshold) == ("confidence", 0.7)
