"""NKI kernels: their names exist, so that imports work; running them is not part of this version."""

from typing import Any, NoReturn

_MESSAGE = (
    "NKI kernels do not run in this version of opentrn: {name}. Use plain PyTorch operators, or write a program in "
    "opentrn's text form and run it with `opentrn exec`."
)


def nki_op(name: str, fn: Any = None, mutates_args: Any = ()) -> NoReturn:
    raise NotImplementedError(_MESSAGE.format(name=f"nki_op({name!r})"))


def wrap_nki(kernel: Any) -> NoReturn:
    raise NotImplementedError(_MESSAGE.format(name=f"wrap_nki({getattr(kernel, '__name__', kernel)})"))
