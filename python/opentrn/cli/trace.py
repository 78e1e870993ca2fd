"""`opentrn trace`: a profile as a Chrome trace."""

from __future__ import annotations

import pathlib

from ..profile.chrome import export
from ..profile.read import Profile, ProfileError
from .errors import UserFault


def trace(profile: pathlib.Path, output: pathlib.Path, step: int | None, events: int) -> None:
    try:
        written = export(Profile(profile), output, step, events)
    except ProfileError as error:
        raise UserFault(str(error)) from None
    except OSError as error:
        raise UserFault(f"{output} cannot be written: {error.strerror}") from None
    print(
        f"{output}: step {written['step']}, {written['launches']:,} launches, {written['instructions']:,} instructions"
    )
