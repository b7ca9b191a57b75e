"""The usual server: FastAPI around a Hugging Face pipeline, one text a request.

    python -m bench.cpu.serve_peer --model FOLDER --port 8081 --workers 1 --threads 2

`workers` requests are computed at once, each with `threads` threads of torch.
"""

import argparse
import socket
from contextlib import asynccontextmanager

import anyio.to_thread
import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import pipeline


class Text(BaseModel):
    text: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, default=8081)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    classify = pipeline("text-classification", model=options.model, device="cpu", top_k=None)

    @asynccontextmanager
    async def lifespan(app: FastAPI):
        anyio.to_thread.current_default_thread_limiter().total_tokens = options.workers
        yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/predict")
    def predict(body: Text) -> dict[str, object]:
        torch.set_num_threads(options.threads)  # of this thread of the pool
        with torch.inference_mode():
            return {"labels": classify(body.text, truncation=True)}

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", options.port))
    print(f"ready: http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    server.run(sockets=[listener])


if __name__ == "__main__":
    main()
