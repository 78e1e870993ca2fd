"""Copies: layouts, dtypes, directions; writes into views; lazy conjugate and negative bits."""

import random

import pytest

import torch

DEVICE = "neuron"
DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
          torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]  # fmt: skip


def random_view(rng: random.Random, base: torch.Tensor) -> torch.Tensor:
    x = base
    for _ in range(rng.randint(0, 3)):
        d = rng.randrange(x.dim())
        kind = rng.choice(["transpose", "slice", "step", "select"])
        if kind == "transpose":
            x = x.transpose(d, rng.randrange(x.dim()))
        elif kind == "slice" and x.size(d) > 2:
            x = x.narrow(d, 1, x.size(d) - 2)
        elif kind == "step" and x.size(d) > 2:
            x = x[tuple(slice(None, None, 2) if i == d else slice(None) for i in range(x.dim()))]
        elif kind == "select" and x.dim() > 2:
            x = x.select(d, x.size(d) - 1)
    return x


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_view_survives_both_directions(dtype):
    rng = random.Random(str(dtype))
    for _ in range(6):
        base = torch.randn(4, 6, 5).mul(10).to(dtype)
        seed = rng.random()
        view = random_view(random.Random(seed), base)
        assert torch.equal(view.to(DEVICE).cpu(), view)
        on_device = random_view(random.Random(seed), base.to(DEVICE))
        assert torch.equal(on_device.cpu(), view)
        assert torch.equal(on_device.contiguous().cpu(), view)


@pytest.mark.parametrize("source", [torch.bool, torch.int32, torch.int64, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("target", [torch.bool, torch.int32, torch.int64, torch.bfloat16, torch.float32], ids=str)
def test_conversions_on_the_device(source, target):
    x = torch.tensor([0, 1, -2, 3, 100.5, -7.25]).to(source)
    assert torch.equal(x.to(DEVICE).to(target).cpu(), x.to(target))


def test_writes_into_a_view_leave_the_rest_of_its_base():
    base = torch.arange(24.0).reshape(4, 6)
    on_device = base.to(DEVICE)
    value = torch.tensor([9.0, 8, 7, 6])
    on_device.select(1, 2).copy_(value.to(DEVICE))
    base.select(1, 2).copy_(value)
    on_device[1:3, ::3] = -1
    base[1:3, ::3] = -1
    on_device.t()[0].copy_(value)  # from the host into a strided view
    base.t()[0].copy_(value)
    assert torch.equal(on_device.cpu(), base)


def test_views_alias_their_base():
    x = torch.zeros(6, device=DEVICE)
    x.view(2, 3)[1].fill_(1)
    x.unfold(0, 2, 2)[0].fill_(2)
    x.as_strided((2,), (3,), 2).add_(5)
    assert x.tolist() == [2, 2, 5, 1, 1, 6]
    c = torch.zeros(3, dtype=torch.complex64).to(DEVICE)
    torch.view_as_real(c)[:, 1].fill_(4)
    assert c.cpu().tolist() == [4j] * 3


def test_lazy_conjugate_and_negative_bits():
    c = torch.randn(3, 2, dtype=torch.complex64)
    n = c.to(DEVICE)
    assert torch.equal(n.conj().cpu(), c.conj())
    assert torch.equal(n.conj().clone().cpu(), c.conj())
    assert torch.equal(n.conj().imag.cpu(), c.conj().imag)
    target = torch.zeros(3, 2, dtype=torch.complex64).to(DEVICE)
    target.conj().copy_(n)
    assert torch.equal(target.cpu(), c.conj())
    assert torch.equal(n.mH.contiguous().cpu(), c.mH)


def test_between_devices():
    x = torch.randn(3, 4, device="neuron:0")
    y = x.to("neuron:1")
    assert y.device.index == 1 and torch.equal(y.cpu(), x.cpu())


def test_to_keeps_the_tensor_when_nothing_changes():
    x = torch.ones(2, device=DEVICE)
    assert x.to(DEVICE) is x
    assert x.to(torch.float32) is x
