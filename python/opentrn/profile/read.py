"""Reads a profile; columns are mapped from disk when they are first used."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np

from . import schema


class ProfileError(Exception):
    """Not a profile, a damaged one, or one of another version; the text says which and what to do."""


class Profile:
    def __init__(self, path: str | pathlib.Path):
        self.path = pathlib.Path(path)
        if not self.path.exists():
            raise ProfileError(f"there is no profile {path}")
        if (self.path / "profile" / "manifest.json").exists():  # the output folder of a run
            self.path = self.path / "profile"
        manifest = self.path / "manifest.json"
        if not self.path.is_dir() or not manifest.exists():
            raise ProfileError(
                f"{path} is not a profile: a folder with manifest.json, as `opentrn run` writes it, is expected"
            )
        try:
            self.manifest: dict[str, Any] = json.loads(manifest.read_text())
            kind, version = self.manifest["format"], self.manifest["version"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ProfileError(f"{manifest} is damaged ({type(error).__name__}): write the profile again") from None
        if kind != schema.FORMAT:
            raise ProfileError(f"{path} is a {kind!r}, not an opentrn profile")
        if version != schema.VERSION:
            raise ProfileError(
                f"{path} has profile version {version}, this opentrn reads version {schema.VERSION}: write it again"
            )
        self._cache: dict[tuple[str, str], Any] = {}

    def rows(self, table: str) -> int:
        return self.manifest["tables"][table]["rows"]

    def column(self, table: str, name: str) -> np.ndarray:
        """Numbers as they are; of a strings column the positions (see `strings`)."""
        key = (table, name)
        if key not in self._cache:
            described = self._described(table, name)
            file = self.path / described["file"]
            try:
                data = np.load(file, mmap_mode="r", allow_pickle=False)
            except (OSError, ValueError, EOFError) as error:
                raise ProfileError(f"{file} is damaged or missing ({error}): write the profile again") from None
            if len(data) != self.rows(table) or str(data.dtype) != described["dtype"]:
                raise ProfileError(
                    f"{file} has {len(data)} rows of {data.dtype}, the manifest says {self.rows(table)} of "
                    f"{described['dtype']}: write the profile again"
                )
            self._cache[key] = data
        return self._cache[key]

    def strings(self, table: str, name: str) -> list[str]:
        key = (table, name + "/strings")
        if key not in self._cache:
            file = self.path / self._described(table, name).get("strings", "")
            try:
                self._cache[key] = json.loads(file.read_text())
            except (OSError, ValueError) as error:
                raise ProfileError(f"{file} is damaged or missing ({error}): write the profile again") from None
        return self._cache[key]

    def texts(self, table: str, name: str) -> list[str]:
        values = self.strings(table, name)
        return [values[code] for code in self.column(table, name)]

    def program_bytes(self, id: int) -> bytes | None:
        file = self.path / "programs" / f"{id}.trnp"
        return file.read_bytes() if file.exists() else None

    def _described(self, table: str, name: str) -> dict[str, Any]:
        try:
            return self.manifest["tables"][table]["columns"][name]
        except (KeyError, TypeError):
            raise ProfileError(
                f"{self.path / 'manifest.json'} has no column {table}.{name}: write the profile again"
            ) from None
