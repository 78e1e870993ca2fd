"""The pipe from the child that runs the script to the command that reports: one JSON object per line."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from typing import Any


class Sender:
    """The child's end. Never raises: a reader that is gone must not disturb the script."""

    def __init__(self, fd: int):
        self._fd = fd
        self._pid = os.getpid()
        self._lock = threading.Lock()
        os.set_inheritable(fd, False)

    def send(self, kind: str, **fields: Any) -> None:
        if os.getpid() != self._pid:  # a forked worker is not the script
            return
        data = (json.dumps({"kind": kind, **fields}) + "\n").encode()
        with self._lock:
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
            except OSError:
                pass


def receive(fd: int) -> Iterator[dict[str, Any]]:
    """Messages until the other end is closed; a torn last line is dropped."""
    with os.fdopen(fd, "rb", closefd=True) as pipe:
        for line in pipe:
            if line.endswith(b"\n"):
                yield json.loads(line)
