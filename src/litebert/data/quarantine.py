"""Bad rows kept for a person to look at: BadRows in, one JSON object a line out."""

import base64
import json
from pathlib import Path
from typing import IO

from litebert.data.documents import BadRow
from litebert.files import publish


class Quarantine:
    """A file of bad rows that comes to be with the first of them."""

    def __init__(self, temporary: Path) -> None:
        self._temporary = temporary
        self._file: IO[str] | None = None
        self.num_rows = 0

    def add(self, rows: list[BadRow]) -> None:
        """Keep `rows`."""
        if rows and self._file is None:
            self._file = self._temporary.open("w", encoding="utf-8")
        for row in rows:
            assert self._file is not None
            self._file.write(json.dumps(_as_json(row), ensure_ascii=False) + "\n")
            self.num_rows += 1

    def finish(self, final: Path) -> None:
        """Publish the file, if there is one."""
        if self._file is not None:
            self._file.close()
            publish(self._temporary, final)
            self._file = None

    def abandon(self) -> None:
        """Leave nothing behind."""
        if self._file is not None:
            self._file.close()
            self._temporary.unlink(missing_ok=True)


def _as_json(row: BadRow) -> dict[str, str | int]:
    described: dict[str, str | int] = {"file": row.path, "line": row.line, "reason": row.reason}
    try:
        return described | {"row": row.data.decode()}
    except UnicodeDecodeError:
        return described | {"row_base64": base64.b64encode(row.data).decode()}
