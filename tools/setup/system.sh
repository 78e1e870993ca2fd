#!/bin/sh
# The C++ side's needs: a compiler, Python's headers and venv, and the libraries that find_package looks for.
# Installs what is missing with apt-get when that needs no password; otherwise prints the command.
missing=""
need() { missing="$missing $1"; }
has_header() { printf '#include <%s>\n' "$1" | ${CXX:-g++} -std=c++20 -x c++ -E - >/dev/null 2>&1; }
python=${1:-python3}

command -v "${CXX:-g++}" >/dev/null 2>&1 || need g++
command -v make >/dev/null 2>&1 || need make
command -v cmake >/dev/null 2>&1 || need cmake
command -v ninja >/dev/null 2>&1 || need ninja-build
command -v ccache >/dev/null 2>&1 || optional="ccache"
if ! command -v "$python" >/dev/null 2>&1; then
  need python3; need python3-venv; need python3-dev
else
  "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 || need python3-venv
  [ -f "$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')/Python.h" ] || need python3-dev
fi
if command -v "${CXX:-g++}" >/dev/null 2>&1; then
  has_header fmt/format.h || need libfmt-dev
  has_header nlohmann/json.hpp || need nlohmann-json3-dev
  has_header hwy/highway.h || need libhwy-dev
  has_header gtest/gtest.h || need libgtest-dev
  has_header gmock/gmock.h || need libgmock-dev
else
  missing="$missing libfmt-dev nlohmann-json3-dev libhwy-dev libgtest-dev libgmock-dev"
fi
[ -z "$missing" ] && exit 0

if command -v apt-get >/dev/null 2>&1; then
  if [ "$(id -u)" -eq 0 ]; then as_root=""
  elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then as_root="sudo"
  else
    echo "opentrn needs these packages:$missing" >&2
    echo "install them with:  sudo apt-get install$missing" >&2
    exit 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  $as_root apt-get update -qq && $as_root apt-get install -y -qq --no-install-recommends $missing $optional >/dev/null && exit 0
  echo "apt-get could not install:$missing" >&2
  exit 1
fi
echo "opentrn needs what Debian calls$missing: install your system's packages of these libraries" >&2
exit 1
