"""Where the repository is, and the command as a list of arguments."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
COMMAND = [sys.executable, "-c", "import sys; from opentrn.cli import main; sys.exit(main())"]
