"""The command line: thin functions over the library, and the only place that prints.

Modules of the library are imported inside the commands, so that `pyquant --help` is quick.
"""

from __future__ import annotations

import os
import sys

import typer

from pyquant.cli import (
    calibrate,
    compare,
    error,
    histogram,
    info,
    pack,
    perplexity,
    quantize,
    sensitivity,
    speed,
    study,
    tables,
    unpack,
)
from pyquant.errors import ConfigError, PyquantError

INTERRUPTED = 130

app = typer.Typer(
    name="pyquant",
    help="Try an idea about quantized weights on a real GGUF model: quantize, look at the codes, "
    "measure what it costs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(quantize.quantize)
app.command()(histogram.histogram)
app.add_typer(tables.app, name="tables")
app.command()(calibrate.calibrate)
app.command()(sensitivity.sensitivity)
app.command()(perplexity.perplexity)
app.command()(compare.compare)
app.command()(error.error)
app.command()(speed.speed)
app.add_typer(study.app, name="study")
app.command()(pack.pack)
app.command()(unpack.unpack)
app.command()(info.info)


def main() -> None:
    """Runs a command; exit status 0, 1 (it failed), 2 (it was called wrongly), 130 (Ctrl-C)."""
    try:
        app()
    except ConfigError as error:
        _fail(str(error), 2)
    except PyquantError as error:
        _fail(str(error), 1)
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:  # typer's answer to Ctrl-C
            _fail("interrupted; nothing half-written is left", INTERRUPTED)
        raise
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _fail(message: str, status: int) -> None:
    print(f"pyquant: {message}", file=sys.stderr)
    sys.exit(status)
