"""Writes the .dist-info folder of the build tree: name, version and entry points, as pyproject.toml states them."""

import pathlib
import sys

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib


def main(pyproject: str, folder: str, version: str) -> None:
    project = tomllib.loads(pathlib.Path(pyproject).read_text())["project"]
    info = pathlib.Path(folder) / f"{project['name']}-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    metadata = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {version}"]
    metadata += [f"Requires-Dist: {requirement}" for requirement in project.get("dependencies", [])]
    (info / "METADATA").write_text("\n".join(metadata) + "\n")
    groups = {"console_scripts": project.get("scripts", {}), **project.get("entry-points", {})}
    lines = []
    for group, entries in groups.items():
        lines.append(f"[{group}]")
        lines += [f"{name} = {target}" for name, target in entries.items()]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (info / "INSTALLER").write_text("cmake\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
