"""Operators whose result lies partly over an operand: operands are read before anything is written. (The CPU refuses these.)"""

import pytest

import torch

DEVICE = "neuron"

# (what is done in place, the same with operands that lie elsewhere: y is a copy of x)
CASES = {
    "shift": (lambda x: x[1:].copy_(x[:-1]), lambda x, y: x[1:].copy_(y[:-1])),
    "shift_back": (lambda x: x[:-1].copy_(x[1:]), lambda x, y: x[:-1].copy_(y[1:])),
    "add_to_the_next_row": (lambda x: x[1:].add_(x[:-1]), lambda x, y: x[1:].add_(y[:-1])),
    "add_the_transposed": (lambda x: x.add_(x.t()), lambda x, y: x.add_(y.t())),
    "multiply_by_the_first_row": (lambda x: x.mul_(x[0]), lambda x, y: x.mul_(y[0])),
    "sum_over_an_operand": (
        lambda x: torch.add(x[:-2], x[1:-1], out=x[2:]),
        lambda x, y: torch.add(y[:-2], y[1:-1], out=x[2:]),
    ),
    "concatenate_over_the_operands": (
        lambda x: torch.cat([x[:100], x[50:150]], out=x[:200]),
        lambda x, y: torch.cat([y[:100], y[50:150]], out=x[:200]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_operands_are_read_before_the_result_is_written(name):
    in_place, elsewhere = CASES[name]
    x = torch.randint(1000, (512, 512)).float()
    device = x.to(DEVICE)
    in_place(device)
    elsewhere(x, x.clone())
    assert torch.equal(device.cpu(), x)
