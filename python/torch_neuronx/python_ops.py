"""Operators that have a lowering here."""

from opentrn import _torch as _bridge


def registered_ops() -> list[str]:
    return _bridge.registered_operators()
