#!/bin/sh
# clang-tidy over the core's sources that changed against the main branch's parent, or all with ALL=1.
build=$1
command -v clang-tidy >/dev/null 2>&1 || { echo "clang-tidy is not installed: skipped (Debian: clang-tidy)"; exit 0; }
if [ -n "$ALL" ]; then files=$(git ls-files 'src/*.cc')
else files=$(git diff --name-only --diff-filter=d HEAD~1 -- 'src/*.cc'); fi
files=$(printf '%s\n' $files | grep -v -e '^src/torch/' -e '^src/python/')
[ -z "$files" ] && { echo "no C++ source changed"; exit 0; }
printf '%s\n' $files | xargs -P "$(nproc)" -n 4 clang-tidy -p "$build" --quiet
