"""litebert serve: models in; an HTTP service, until it is stopped."""

import shlex
import sys
from typing import Annotated, Literal

from tyro.conf import UseAppendAction, arg

from litebert.commands.marks import BatchTokens, ExitLoading, note
from litebert.errors import ConfigError, MissingExtraError
from litebert.infer.engines import check_engine_name
from litebert.terminal import write_line, write_stderr

_MAX_PORT = 65535
_ModelNames = Annotated[
    tuple[str, ...],
    UseAppendAction,
    arg(
        metavar="M|NAME=M",
        help="Folder of a checkpoint, a run, a Hugging Face or an exported model, or a name that "
        "`litebert models` lists; several times for several models. By default all of those.",
    ),
]
_Hosts = Annotated[
    tuple[str, ...],
    UseAppendAction,
    arg(metavar="NAME", help="A name that clients may ask for in the Host header; several times."),
]
_EXAMPLES = {
    "classify": '{"texts": ["a great film"]}',
    "fill": '{"texts": ["The capital of [MASK] is Paris."]}',
    "pair": '{"pairs": [["A man sleeps.", "He is awake."]]}',
    "regress": '{"texts": ["a great film"]}',
    "choose": '{"items": [{"context": "It rains.", "question": "What is wet?", "options": '
    '["the street", "the sun"]}]}',
    "answer": '{"items": [{"question": "Who sings?", "context": "The baker sings."}]}',
    "tag": '{"texts": ["Ada lives in London"]}',
    "embeddings": '{"input": "a sentence"}',
}
"""A body for each endpoint."""


def serve(
    *,
    model: _ModelNames = (),
    host: str = "127.0.0.1",
    port: int = 8080,
    key_file: str | None = None,
    insecure: bool = False,
    allow_host: _Hosts = (),
    timeout: float = 30.0,
    batching: Literal["auto", "depth", "static"] = "auto",
    batch_tokens: BatchTokens = None,
    queue_tokens: int = 131_072,
    loading: ExitLoading,
    runner: Literal["process", "ray"] = "process",
    replicas: int | None = None,
    max_replicas: int | None = None,
) -> None:
    """Serve models over HTTP: litebert serve, then open the address that it prints. OpenAI's,
    text-embeddings-inference's and litebert's own endpoints. SIGTERM and Ctrl-C finish what was
    accepted.

    Args:
        host: Address to listen at; one that other machines reach needs --key-file or --insecure.
        port: Port to listen at; 0 for a free one.
        key_file: File with the key that requests send as Authorization: Bearer KEY.
        insecure: Let other machines ask without a key.
        timeout: Seconds for a request; the header X-Request-Timeout may ask for fewer.
        batching: depth runs one layer at a time over all texts, which join and leave at any layer;
            static runs batch after batch; auto is depth on a CPU where layers share parameters.
        queue_tokens: Tokens that may wait; more are refused with 429 and Retry-After.
        runner: Where models compute: in this process, or in replicas on the Ray cluster of
            RAY_ADDRESS (without it, a cluster on this machine).
        replicas: With --runner ray, processes with the models, by default 1; with --max-replicas
            the fewest.
        max_replicas: With --runner ray, the most replicas; as many run as the load asks for.
    """
    check_engine_name(loading.engine)
    if runner != "ray" and not (replicas is None and max_replicas is None):
        raise ConfigError("replicas are processes of a Ray cluster; add --runner ray")
    if not 0 <= port <= _MAX_PORT:
        raise ConfigError(f"port is a number from 0 to {_MAX_PORT}; got {port}")
    if not 0 < timeout <= 3600:
        raise ConfigError(f"timeout is a number of seconds from 0 to 3600; got {timeout:g}")
    if queue_tokens < 1 or (batch_tokens is not None and batch_tokens < 1):
        raise ConfigError("batch_tokens and queue_tokens are at least 1")
    try:
        from litebert.serve.access import Access, read_key
        from litebert.serve.app import Limits, Service
        from litebert.serve.models import LoadOptions, Models, load_models, sources
        from litebert.serve.server import Server, bind
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise MissingExtraError(error.name, extra="serve", purpose="litebert serve") from error
    chosen = sources(model)
    options = LoadOptions(
        sources=tuple(chosen), batch_tokens=batch_tokens, batching=batching, **loading._asdict()
    )
    key = None if key_file is None else read_key(key_file)
    access = Access(host=host, key=key, insecure=insecure, allowed_hosts=allow_host)
    if runner == "ray":
        from litebert.cluster import import_ray
        from litebert.serve import ray_app

        import_ray()
    listener = bind(host, port)

    limits = Limits(timeout_seconds=timeout, queue_tokens=queue_tokens, batch_tokens=batch_tokens)
    if runner == "ray":
        cluster = ray_app.Cluster(
            replicas=1 if replicas is None else replicas,
            max_replicas=max_replicas,
            cpus=loading.threads or 1,
            gpus=int(loading.device.startswith("cuda")),
            name=ray_app.application_name(listener.getsockname()[1]),
        )
        service, load = ray_app.open_service(cluster, options, access=access, limits=limits)
    else:
        service = Service(access=access, limits=limits)

        def load() -> Models:
            return load_models(options, note)

    server = Server(service, load)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listener.getsockname()[1]}"
    write_stderr(f"litebert serve: {address} loads {', '.join(each.name for each in chosen)}")

    def announce() -> None:
        served = service.models.served.values()
        width = max(len(each.name) for each in served)
        for each in served:
            engine_name = each.predictor.engine.name
            write_line(f"  {each.name:<{width}}  {', '.join(each.verbs)}  ({engine_name})")
        verbs = [verb for each in served for verb in each.verbs if verb != "embed"]
        endpoint = next((verb for verb in _EXAMPLES if verb in verbs), "embeddings")
        header = ""
        if key_file is not None:
            header = f' -H "Authorization: Bearer $(cat {shlex.quote(key_file)})"'
        write_line(
            f"ready; try:\n  curl {address}/v1/{endpoint}{header} -d '{_EXAMPLES[endpoint]}'"
        )
        sys.stdout.flush()

    server.on_ready = announce
    server.run_at(listener)
    write_stderr("litebert serve: stopped, all accepted requests were answered")
