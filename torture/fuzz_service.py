"""Ask litebert serve what its own OpenAPI document allows, and what it does not; no answer may be
a 500, and every answer has a status that the document names.

    python -m torture.fuzz_service --requests 5000 --out torture.json

schemathesis (extra `bench`) generates the requests: valid ones, and ones that break the schema. The
model is tiny and has every head.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from bench.common.load import ROOT
from bench.common.results import add_out, begin, publish
from litebert.serve.openapi import document
from tests.helpers.models import save_model

CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=5000, help="at least, over all endpoints")
    parser.add_argument("--seed", type=int, default=0)
    add_out(parser)
    options = parser.parse_args()
    begin(options.out)
    with tempfile.TemporaryDirectory(prefix="litebert-fuzz-") as name:
        heads = ("masked", "classify", "regress", "choose", "span", "tag")
        model = save_model(Path(name) / "model", *heads)
        command = [sys.executable, "-m", "litebert.cli", "serve", "--model", f"tiny={model}"]
        service = subprocess.Popen(
            [*command, "--port", "0", "--device", "cpu", "--threads", "1"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        try:
            assert service.stdout is not None
            line = next(line for line in service.stdout if "curl" in line)
            port = int(line.split("http://127.0.0.1:")[1].split("/")[0])
            figures = fuzz(port, Path(name), options.requests, options.seed)
        finally:
            service.terminate()
            _, logged = service.communicate()
    figures["logged"] = [line for line in logged.splitlines() if " at " in line]
    figures["exit_code"] = service.returncode
    publish(figures, options.out)
    sys.exit(bool(figures["failures"] or figures["logged"] or service.returncode))


def fuzz(port: int, folder: Path, requests: int, seed: int) -> dict[str, Any]:
    """Statuses by path, and what schemathesis found."""
    schema = document()
    posts = [methods["post"] for methods in schema["paths"].values() if "post" in methods]
    for post in posts:  # else most requests end at a model that is not there
        fields = post["requestBody"]["content"]["application/json"]["schema"]["properties"]
        if "model" in fields:
            fields["model"] = {"enum": ["tiny"]}
    (folder / "openapi.json").write_text(json.dumps(schema))
    cassette = folder / "requests.ndjson"
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"),
            *("run", "openapi.json", "--url", f"http://127.0.0.1:{port}"),
            *("--checks", ",".join(CHECKS)),
            *("--phases", "coverage,fuzzing", "--max-examples", str(-(-requests // len(posts)))),
            *("--seed", str(seed), "--continue-on-failure", "--no-shrink"),
            *("--report", "ndjson", "--report-ndjson-path", str(cassette), "--warnings", "off"),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"NO_COLOR": "1"},
    )
    statuses: Counter[str] = Counter()
    for line in cassette.read_text().splitlines():
        statuses.update(re.findall(r'"status_code": ?(\d+)', line))
    failures = done.stdout.partition("FAILURES")[2] if done.returncode else ""
    if done.returncode and not failures:
        failures = done.stdout[-3000:] + done.stderr[-3000:]
    return {
        "requests": sum(statuses.values()),
        "statuses": dict(sorted(statuses.items())),
        "failures": failures.splitlines(),
    }


if __name__ == "__main__":
    main()
