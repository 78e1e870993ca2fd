"""Makes the build tree importable in this virtual environment: a .pth file, and the command `opentrn`.

Run by `make build` with the environment's Python; the argument is <build>/python.
"""

import pathlib
import sys
import sysconfig

SCRIPT = """#!{python}
import sys

from opentrn.cli import main

sys.exit(main())
"""


def write(path: pathlib.Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main() -> None:
    write(pathlib.Path(sysconfig.get_paths()["purelib"]) / "opentrn-build.pth", sys.argv[1] + "\n")
    script = pathlib.Path(sysconfig.get_paths()["scripts"]) / "opentrn"
    write(script, SCRIPT.format(python=sys.executable))
    script.chmod(0o755)


if __name__ == "__main__":
    main()
