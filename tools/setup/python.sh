#!/bin/sh
# python.sh VENV [PYTHON]: a virtual environment with torch, the libraries and the tools of this repository.
# TORCH_PIP_ARGS is passed to the installation of torch, e.g. --index-url of the CPU-only wheels.
set -e
venv=$1
python=${2:-python3}
here=$(dirname "$0")
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
# Without byte code: what is imported gets compiled then, the rest never.
pip="$venv/bin/python -m pip --disable-pip-version-check --quiet"
# torch first and alone, so that nothing below may choose another one.
if ! "$venv/bin/python" -c 'import importlib.metadata as m, sys; v = tuple(map(int, m.version("torch").split("+")[0].split(".")[:2])); sys.exit(not (2, 13) <= v < (2, 15))' 2>/dev/null; then
  $pip install --no-compile $TORCH_PIP_ARGS torch==2.13.0
fi
$pip install --no-compile -r "$here/requirements.txt"
