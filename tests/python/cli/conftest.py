"""Running the command: in this process for what ends early, in one of its own for scripts."""

import os
import subprocess

import pytest
from command import COMMAND


class Outcome:
    def __init__(self, status: int, out: str, err: str):
        self.status, self.out, self.err = status, out, err


@pytest.fixture
def opentrn(capfd):
    """Calls the command in this process."""

    def call(*arguments: str) -> Outcome:
        from opentrn.cli import main

        capfd.readouterr()
        status = main(list(arguments))
        captured = capfd.readouterr()
        return Outcome(status, captured.out, captured.err)

    return call


@pytest.fixture
def run(tmp_path):
    """Runs `opentrn run` on a script's text, in a folder of its own."""

    def call(
        script: str, *options: str, script_args: tuple[str, ...] = (), env: dict[str, str] | None = None
    ) -> Outcome:
        (tmp_path / "script.py").write_text(script)
        done = subprocess.run(
            [*COMMAND, "run", "--json", "report.json", *options, "script.py", *script_args],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env={**os.environ, **(env or {})},
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return call
