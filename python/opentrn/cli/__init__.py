"""The command `opentrn`. Each subcommand is a file here; this one turns every kind of bad input into one line."""

from __future__ import annotations

import sys


def main(argv: list[str] | None = None) -> int:
    import click
    import typer

    from .app import app
    from .errors import UserFault

    command = typer.main.get_command(app)
    arguments = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if arguments[0] == "run":
        arguments = _module_arguments(arguments)
    name = "opentrn " + arguments[0] if arguments and not arguments[0].startswith("-") else "opentrn"
    try:
        # Some versions of typer carry their own copy of click's exceptions: both are recognised by their methods.
        status = command.main(args=arguments, prog_name="opentrn", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except UserFault as fault:
        return _fail(str(fault))
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    except Exception as error:
        if hasattr(error, "exit_code") and hasattr(error, "format_message"):
            return _fail(f"{_one_line(error.format_message())} (see `{name} --help`)")
        if type(error).__name__ == "Exit" and hasattr(error, "exit_code"):
            return error.exit_code
        if type(error).__name__ == "Abort":
            return 130
        if type(error).__module__.startswith("opentrn._core") and type(error).__name__ in ("UserError", "Unsupported"):
            return _fail(str(error))
        raise


def _module_arguments(arguments: list[str]) -> list[str]:
    """As with `python -m`, everything after `-m MODULE` belongs to the module."""
    for i, argument in enumerate(arguments):
        if argument in ("-m", "--module"):
            return [*arguments[: i + 2], "--", *arguments[i + 2 :]]
        if argument == "--" or argument.endswith(".py"):
            break
    return arguments


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _fail(message: str) -> int:
    print(f"opentrn: {message}", file=sys.stderr)
    return 2
