"""Graphs for benchmarks, in text form."""

from __future__ import annotations

import opentrn._core as core


def matmul(m: int, k: int, n: int, dtype: str = "bf16"):
    """[M, K] x [K, N], row-major."""
    return core.Graph.parse(f"""graph "matmul {m}x{k}x{n} {dtype}"
parameter "a" {dtype}[{m},{k}] strides=[{k},1]
parameter "b" {dtype}[{k},{n}] strides=[{n},1]
%0 = parameter : {dtype}[{m},{k}]
%1 = parameter index=1 : {dtype}[{k},{n}]
%2 = dot_general %0, %1 lhs_contract=[1] rhs_contract=[0] : {dtype}[{m},{n}]
result %2 strides=[{n},1]
""")


def pointwise_add(m: int, n: int, dtype: str = "f32"):
    return core.Graph.parse(f"""graph "add {m}x{n} {dtype}"
parameter "a" {dtype}[{m},{n}] strides=[{n},1]
parameter "b" {dtype}[{m},{n}] strides=[{n},1]
%0 = parameter : {dtype}[{m},{n}]
%1 = parameter index=1 : {dtype}[{m},{n}]
%2 = add %0, %1 : {dtype}[{m},{n}]
result %2 strides=[{n},1]
""")


def softmax(m: int, n: int, dtype: str = "f32"):
    wide, narrow = ("%0", "%8") if dtype == "f32" else ("%1", "%9")
    lines = f"""graph "softmax {m}x{n} {dtype}"
parameter "x" {dtype}[{m},{n}] strides=[{n},1]
%0 = parameter : {dtype}[{m},{n}]
%1 = convert %0 : f32[{m},{n}]
%2 = reduce_max {wide} dims=[1] : f32[{m}]
%3 = broadcast_in_dim %2 dims=[0] : f32[{m},{n}]
%4 = subtract {wide}, %3 : f32[{m},{n}]
%5 = exp %4 : f32[{m},{n}]
%6 = reduce_sum %5 dims=[1] : f32[{m}]
%7 = broadcast_in_dim %6 dims=[0] : f32[{m},{n}]
%8 = divide %5, %7 : f32[{m},{n}]
%9 = convert %8 : {dtype}[{m},{n}]
result {narrow} strides=[{n},1]
"""
    return core.Graph.parse(lines)


def reduce_sum(m: int, n: int, dtype: str = "f32"):
    return core.Graph.parse(f"""graph "sum {m}x{n} {dtype}"
parameter "x" {dtype}[{m},{n}] strides=[{n},1]
%0 = parameter : {dtype}[{m},{n}]
%1 = reduce_sum %0 dims=[1] : {dtype}[{m}]
result %1 strides=[1]
""")
