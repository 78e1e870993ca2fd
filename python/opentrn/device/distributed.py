"""`init_process_group("neuron")`: registers the c10d backend. This version supports one rank."""


def _create(store: object, rank: int, size: int, timeout: object) -> object:
    from opentrn import _torch as bridge

    return bridge.make_process_group(rank, size)


def register_backend() -> None:
    import torch.distributed as dist

    if not dist.is_available() or hasattr(dist.Backend, "NEURON"):
        return
    # A list: a string would be taken for a list of one-letter device names.
    dist.Backend.register_backend("neuron", _create, devices=["neuron"])
