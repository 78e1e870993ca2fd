"""Values for `opentrn exec`: NAME=rand:128x512:bf16 and files, as bytes of a buffer, and back as numbers."""

from __future__ import annotations

import pathlib
import zlib
from typing import Any

import numpy as np

from .errors import UserFault

_NUMPY = {
    "bool": "bool",
    "u8": "uint8",
    "i8": "int8",
    "u16": "uint16",
    "i16": "int16",
    "u32": "uint32",
    "i32": "int32",
    "u64": "uint64",
    "i64": "int64",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
}
_ALIASES = {
    "float32": "f32",
    "fp32": "f32",
    "float": "f32",
    "float16": "f16",
    "fp16": "f16",
    "half": "f16",
    "bfloat16": "bf16",
    "float64": "f64",
    "double": "f64",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
}
_NARROW = {"f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "f8e4m3": "float8_e4m3", "f8e8m0fnu": "float8_e8m0fnu"}
_FILLS = ("rand", "randn", "zeros", "ones", "arange")


def dtype_name(text: str) -> str:
    name = _ALIASES.get(text, text)
    if name not in _NUMPY and name not in _NARROW and name != "bf16":
        raise UserFault(f"unknown dtype {text!r}: use one of {', '.join([*_NUMPY, 'bf16', *_NARROW])}")
    return name


def _narrow(name: str):
    try:
        import ml_dtypes
    except ModuleNotFoundError:
        raise UserFault(f"{name} values need the package ml-dtypes: pip install ml-dtypes") from None
    return getattr(ml_dtypes, _NARROW[name])


def encode(values: np.ndarray, name: str) -> np.ndarray:
    """Numbers as a contiguous array whose bytes are those of the buffer."""
    if name in _NUMPY:
        return np.ascontiguousarray(values.astype(_NUMPY[name]))
    if name == "bf16":
        bits = np.ascontiguousarray(values.astype(np.float32)).view(np.uint32)
        rounded = bits + 0x7FFF + ((bits >> 16) & 1)
        return (np.where(np.isnan(values), 0x7FC00000, rounded) >> 16).astype(np.uint16)
    return np.ascontiguousarray(values.astype(_narrow(name))).view(np.uint8)


def decode(data: np.ndarray, name: str) -> np.ndarray:
    """Bytes (uint8) as numbers."""
    if name in _NUMPY:
        return data.view(_NUMPY[name])
    if name == "bf16":
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return data.view(_narrow(name)).astype(np.float32)


def parse_shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(n) for n in text.lower().split("x")) if text else ()
    except ValueError:
        shape = (-1,)
    if any(n < 0 for n in shape):
        raise UserFault(f"{text!r} is not a shape: write it as 128x512")
    return shape


def split(assignment: str, option: str) -> tuple[str, str]:
    name, equals, value = assignment.partition("=")
    if not equals or not name or not value:
        raise UserFault(f"{option} {assignment}: write it as {option} NAME=VALUE")
    return name, value


def make(name: str, spec: str, buffer: dict[str, Any]) -> np.ndarray:
    """The contents of an input buffer."""
    if spec.endswith(".npy"):
        try:
            array = np.load(pathlib.Path(spec), allow_pickle=False)
        except (OSError, ValueError) as error:
            raise UserFault(f"--input {name}: {spec} cannot be read as .npy ({error})") from None
        data = np.ascontiguousarray(array)
    else:
        kind, _, rest = spec.partition(":")
        if kind not in _FILLS:
            raise UserFault(f"--input {name}={spec}: unknown value {kind!r}; use {', '.join(_FILLS)} or a .npy file")
        shape_text, _, dtype_text = rest.partition(":")
        dtype = dtype_name(dtype_text or buffer["dtype"] or "f32")
        size = encode(np.zeros(1), dtype).itemsize
        shape = parse_shape(shape_text) if shape_text else (buffer["bytes"] // size,)
        count = int(np.prod(shape, dtype=np.int64))
        random = np.random.default_rng(zlib.crc32(name.encode()))
        integer = dtype[0] in "iu"
        if kind == "rand":
            values = random.integers(0, 100, count) if integer else random.random(count)
        elif kind == "randn":
            values = random.integers(-50, 50, count) if integer else random.standard_normal(count)
        elif kind == "arange":
            values = np.arange(count)
        else:
            values = np.full(count, float(kind == "ones"))
        data = encode(values, dtype).reshape(shape)
    if data.nbytes != buffer["bytes"]:
        raise UserFault(
            f"--input {name}={spec} gives {data.nbytes:,} bytes, but the program's buffer {name} has {buffer['bytes']:,}"
            + (f" ({buffer['dtype']})" if buffer["dtype"] else "")
        )
    return data
