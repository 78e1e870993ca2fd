"""The launch path: in-place and out= forms, aliases, promotion, numbers, mixed devices, errors."""

import pytest
from opentrn import _torch as bridge

import torch

DEVICE = "neuron"


def both(*shape, dtype=torch.float32):
    x = torch.randn(shape).to(dtype)
    return x, x.to(DEVICE)


def same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.device.type == DEVICE
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-5, atol=1e-5)
    assert actual.stride() == expected.stride()


# ---- forms of one operator ----------------------------------------------------------------------
def test_functional_in_place_and_out_agree():
    a, na = both(4, 6)
    b, nb = both(4, 6)
    same(na + nb, a + b)
    out = torch.empty(4, 6, device=DEVICE)
    assert torch.add(na, nb, alpha=2, out=out) is out
    same(out, torch.add(a, b, alpha=2))
    pointer = na.data_ptr()
    same(na.add_(nb), a.add_(b))
    assert na.data_ptr() == pointer


def test_out_is_resized_with_a_warning_only_when_it_holds_something():
    a, na = both(4, 6)
    out = torch.empty(0, device=DEVICE)
    torch.mul(na, 2, out=out)
    same(out, a * 2)
    with pytest.warns(UserWarning, match="was resized"):
        torch.mul(na, 2, out=torch.ones(3, device=DEVICE))


def test_out_of_another_dtype_is_cast_or_refused():
    a, na = both(5)
    out = torch.empty(5, dtype=torch.float64, device=DEVICE)
    torch.add(na, 1, out=out)
    torch.testing.assert_close(out.cpu(), torch.add(a, 1, out=torch.empty(5, dtype=torch.float64)))
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        torch.add(na, 1, out=torch.empty(5, dtype=torch.int64, device=DEVICE))


def test_written_tensor_is_also_read():
    a, na = both(8, 8)
    same(na.mul_(na), a.mul_(a))
    same(torch.add(na, na, out=na), torch.add(a, a, out=a))
    # The transposed view overlaps: computed aside, then copied.
    same(torch.add(na, na.t().clone(), out=na), torch.add(a, a.t().clone(), out=a))
    expected = a + a.t()
    torch.add(na, na.t(), out=na)
    same(na, expected)


def test_overlapping_slices_do_not_disturb_each_other():
    a, na = both(10)
    expected = a.clone()
    expected[1:] = a[1:] + a[:-1]
    torch.add(na[1:], na[:-1], out=na[1:])
    same(na, expected)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        na[:1].expand(5).add_(1)


def test_strided_results_and_operands():
    a, na = both(6, 8)
    b, nb = both(8, 6)
    same(na + nb.t(), a + b.t())
    same(na.t().exp(), a.t().exp())
    na[:, ::2].mul_(3)
    a[:, ::2].mul_(3)
    same(na, a)
    same(na[1:4, 2:5].sum(0), a[1:4, 2:5].sum(0))
    same(na.unfold(1, 3, 2).mean(-1), a.unfold(1, 3, 2).mean(-1))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4), ()])
def test_empty_and_scalar_tensors(shape):
    a, na = both(*shape)
    same(na + 1, a + 1)
    same(na.sum(), a.sum())
    same(na.clone(), a.clone())


# ---- promotion and numbers ----------------------------------------------------------------------
@pytest.mark.parametrize("left", [torch.bool, torch.uint8, torch.int32, torch.int64, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("right", [True, 3, 2.5, "0-dim", "cpu 0-dim"])
def test_promotion_with_numbers_and_0_dim_tensors(left, right):
    a = torch.tensor([0, 1, 5]).to(left)
    if isinstance(right, str):
        b = torch.tensor(2.5, dtype=torch.float64)
        nb = b if right == "cpu 0-dim" else b.to(DEVICE)
    else:
        b = nb = right
    expected, actual = a * b, a.to(DEVICE) * nb
    assert actual.dtype == expected.dtype
    torch.testing.assert_close(actual.cpu(), expected)
    assert (a.to(DEVICE) < nb).cpu().tolist() == (a < b).tolist()


def test_a_changing_number_needs_no_new_program():
    x = torch.ones(33, 3, device=DEVICE)
    x + 0.5
    before = bridge.cache_stats()
    for i in range(5):
        assert (x + i * 0.25)[0, 0].item() == 1 + i * 0.25
    after = bridge.cache_stats()
    assert after["compiled"] + after["disk_hits"] <= before["compiled"] + before["disk_hits"] + 2  # the item's copy


def test_arange_follows_its_numbers():
    for end in (3, 5, 4):
        assert torch.arange(end, device=DEVICE).tolist() == list(range(end))
    assert torch.arange(0, 1, 0.25, device=DEVICE).tolist() == [0, 0.25, 0.5, 0.75]


# ---- devices ------------------------------------------------------------------------------------
def test_tensors_on_two_devices_raise_as_on_cuda():
    x = torch.ones(3, 3, device=DEVICE)
    message = "Expected all tensors to be on the same device, but found at least two devices, neuron:0 and cpu!"
    for call in (lambda: x + torch.ones(3), lambda: x @ torch.ones(3, 3), lambda: torch.cat([x, torch.ones(3, 3)])):
        with pytest.raises(RuntimeError, match=message):
            call()
    with pytest.raises(RuntimeError, match="at least two devices, neuron:0 and neuron:1!"):
        x + torch.ones(3, 3, device="neuron:1")
    assert (x + torch.tensor(2.0))[0, 0].item() == 3
    with pytest.raises(RuntimeError, match="same device"):
        torch.nn.functional.embedding(torch.tensor([0, 1]), x)


def test_shape_errors_are_pytorchs_own():
    x = torch.ones(3, 4, device=DEVICE)
    with pytest.raises(RuntimeError, match="must match the size"):
        x + torch.ones(5, device=DEVICE)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        x @ x
    with pytest.raises(IndexError, match="Dimension out of range"):
        x.sum(7)


# ---- indices ------------------------------------------------------------------------------------
def test_indexing_with_masks_and_cpu_indices():
    a, na = both(6, 5)
    index = torch.tensor([4, 0, 0])
    same(na[index], a[index])
    same(na[index.to(DEVICE), 2], a[index, 2])
    mask = a > 0
    same(na[mask.to(DEVICE)], a[mask])
    same(na[mask[:, 0].to(DEVICE)], a[mask[:, 0]])
    same(torch.masked_select(na, mask.to(DEVICE)), torch.masked_select(a, mask))
    assert torch.nonzero(mask.to(DEVICE)).tolist() == torch.nonzero(mask).tolist()
    na[mask.to(DEVICE)] = 0.5
    a[mask] = 0.5
    same(na, a)
    na[index.to(DEVICE)] = torch.ones(3, 5, device=DEVICE)
    a[index] = torch.ones(3, 5)
    same(na, a)
    na.index_put_((index.to(DEVICE),), torch.ones(3, 5, device=DEVICE), accumulate=True)
    a.index_put_((index,), torch.ones(3, 5), accumulate=True)
    same(na, a)


def test_an_index_out_of_range_is_raised_at_the_next_wait():
    x = torch.ones(5, 2, device=DEVICE)
    y = x[torch.tensor([7], device=DEVICE)]
    with pytest.raises(RuntimeError, match=r"out of (bounds|range)"):
        y.cpu()
    torch.neuron.synchronize()
    assert (x + 1).sum().item() == 20


# ---- autograd -----------------------------------------------------------------------------------
def test_gradients_match():
    a, b = torch.randn(4, 5, requires_grad=True), torch.randn(5, 3, requires_grad=True)
    na, nb = a.detach().to(DEVICE).requires_grad_(), b.detach().to(DEVICE).requires_grad_()
    (torch.softmax(a @ b, -1) ** 2).sum().backward()
    (torch.softmax(na @ nb, -1) ** 2).sum().backward()
    torch.testing.assert_close(na.grad.cpu(), a.grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(nb.grad.cpu(), b.grad, rtol=1e-4, atol=1e-6)


def test_every_table_entry_is_an_operator_of_this_pytorch():
    assert bridge.registration_problems() == []
