"""Training: optimizers, autocast, gradient scaling, checkpointing, one-rank process group."""

import os

import pytest
import torch.nn.functional as F

import torch
from torch import nn

DEVICE = "neuron"


def model(device: str, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(dropout), nn.Linear(16, 5))
    return layers.to(device)


def losses(device: str, make_optimizer, steps: int = 4) -> list[float]:
    m = model(device)
    optimizer = make_optimizer(m.parameters())
    torch.manual_seed(2)
    x, t = torch.randn(8, 12).to(device), torch.arange(8).remainder(5).to(device)
    found = []
    for _ in range(steps):
        loss = F.cross_entropy(m(x), t)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"foreach": False}, {"fused": True}], ids=str)
def test_adamw(options):
    make = lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1, **options)
    assert losses(DEVICE, make) == pytest.approx(losses("cpu", make), rel=1e-5)


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Adagrad"])
def test_other_optimizers(name):
    options = {"momentum": 0.9} if name == "SGD" else {}
    make = lambda p: getattr(torch.optim, name)(p, lr=1e-2, **options)
    assert losses(DEVICE, make) == pytest.approx(losses("cpu", make), rel=1e-5)


def test_autocast_uses_bfloat16_and_keeps_softmax_in_float32():
    m, x = model(DEVICE), torch.randn(4, 12, device=DEVICE)
    with torch.autocast(DEVICE):
        y = m[0](x)
        assert y.dtype == torch.bfloat16
        assert torch.softmax(y, -1).dtype == torch.float32
        assert (y + x.new_ones(1)).dtype == torch.float32
        with torch.autocast(DEVICE, enabled=False):
            assert m[0](x).dtype == torch.float32
    with torch.autocast(DEVICE, dtype=torch.float16):
        assert m[0](x).dtype == torch.float16
    with torch.autocast(DEVICE):
        F.cross_entropy(m(x), torch.tensor([0, 1, 2, 3], device=DEVICE)).backward()
    assert m[0].weight.grad.dtype == torch.float32


def test_gradient_scaler():
    m, x = model(DEVICE), torch.randn(4, 12, device=DEVICE)
    optimizer, scaler = torch.optim.SGD(m.parameters(), lr=0.1), torch.amp.GradScaler(DEVICE)
    before = m[0].weight.detach().clone()
    scaler.scale(m(x).square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(before.cpu(), m[0].weight.detach().cpu())


def test_checkpointing_recomputes_the_same_dropout():
    from torch.utils.checkpoint import checkpoint

    m = model(DEVICE, dropout=0.5)
    x = torch.randn(8, 12, device=DEVICE)
    gradients = []
    for reentrant in (None, True, False):
        m.zero_grad()
        torch.manual_seed(5)
        inputs = x.clone().requires_grad_()
        y = m(inputs) if reentrant is None else checkpoint(m, inputs, use_reentrant=reentrant)
        y.sum().backward()
        gradients.append(m[0].weight.grad.cpu().clone())
    assert torch.equal(gradients[0], gradients[1]) and torch.equal(gradients[0], gradients[2])


def test_dropout_keeps_the_expected_share():
    x = torch.ones(200, 100, device=DEVICE)
    y = F.dropout(x, 0.25)
    kept = (y != 0).float().mean().item()
    assert abs(kept - 0.75) < 0.02
    assert y.max().item() == pytest.approx(1 / 0.75)


def test_process_group_of_one_rank(tmp_path):
    import torch.distributed as dist

    dist.init_process_group("neuron", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        x = torch.ones(4, device=DEVICE)
        dist.all_reduce(x)
        assert x.tolist() == [1.0] * 4
        out = torch.zeros(4, device=DEVICE)
        dist.all_gather_into_tensor(out, x + 1)
        assert out.tolist() == [2.0] * 4
        ddp = nn.parallel.DistributedDataParallel(model(DEVICE))
        ddp(torch.ones(2, 12, device=DEVICE)).sum().backward()
        assert ddp.module[0].weight.grad is not None
        dist.barrier()
    finally:
        dist.destroy_process_group()


def test_more_ranks_are_refused(tmp_path):
    import torch.distributed as dist

    with pytest.raises(RuntimeError, match="supports one rank"):
        torch.distributed.distributed_c10d.Backend._plugins["NEURON"].creator_fn(None, 0, 2, None)
    assert "NEURON" in dist.Backend.__dict__ or "neuron" in dist.Backend.backend_list
    assert os.path.isdir(tmp_path)
