"""The command line: thin functions over the library, and the only place that prints.

Modules of the library are imported inside the commands, so that `pyquant --help` is quick.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from typing import Annotated

import typer

from pyquant.cli import (
    accuracy,
    calibrate,
    card,
    compare,
    completion,
    dequantize,
    equalize,
    error,
    histogram,
    info,
    memory,
    mix,
    pack,
    paths,
    perplexity,
    quantize,
    recipe,
    sensitivity,
    signals,
    speed,
    streams,
    study,
    tables,
    unpack,
)
from pyquant.cli.called import with_options_of
from pyquant.cli.panels import CommandWithPanels
from pyquant.cli.single_values import Commands
from pyquant.errors import ConfigError, PyquantError, said_by_system
from pyquant.wings import wings

FAILED, CALLED_WRONGLY, INTERRUPTED = 1, 2, 130

app = Commands(
    name="pyquant",
    help="Quantize GGUF models for llama.cpp, look at the codes, and measure what it costs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # importing rich would take longer than everything else of `--help`
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=CommandWithPanels)(quantize.quantize)
app.command(cls=CommandWithPanels)(histogram.histogram)
app.add_typer(tables.app, name="tables")
app.command(cls=CommandWithPanels)(calibrate.calibrate)
app.command(cls=CommandWithPanels)(equalize.equalize)
app.command(cls=CommandWithPanels)(sensitivity.sensitivity)
app.command(cls=CommandWithPanels)(mix.mix)
app.command(cls=CommandWithPanels)(recipe.recipe)
app.command(cls=CommandWithPanels)(perplexity.perplexity)
app.command(cls=CommandWithPanels)(compare.compare)
app.command(cls=CommandWithPanels)(accuracy.accuracy)
app.command(cls=CommandWithPanels)(error.error)
app.command(cls=CommandWithPanels)(speed.speed)
app.command(cls=CommandWithPanels)(card.card)
app.add_typer(study.app, name="study")
app.command(cls=CommandWithPanels)(pack.pack)
app.command(cls=CommandWithPanels)(unpack.unpack)
app.command(cls=CommandWithPanels)(dequantize.dequantize)
app.command(cls=CommandWithPanels)(info.info)
app.command(cls=CommandWithPanels)(completion.completion)


def _add_wings() -> None:
    for wing in wings():
        for name, module, attribute in wing.COMMANDS:
            command = getattr(importlib.import_module(module), attribute)
            if isinstance(command, typer.Typer):
                app.add_typer(command, name=name)
            else:
                app.command(name, cls=CommandWithPanels)(command)


_add_wings()


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"pyquant {version('pyquant')}")
        raise typer.Exit


@app.callback()
def _every_command(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    paths.forget_names()
    memory.check_libraries()


def main() -> None:
    """Runs a command; exit status 0, 1 (it failed), 2 (it was called wrongly), 130 (Ctrl-C).

    SIGTERM ends it as Ctrl-C does, but the process dies of that signal, as others expect it to.
    """
    warnings.simplefilter("ignore")  # they are for programmers
    # Threads of numpy's OpenBLAS that wait spin else, on cores that other work needs.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    try:
        streams.prepare()
        signals.prepare()
        _run()
        sys.stdout.flush()
    except KeyboardInterrupt:  # before or after the command itself
        signals.stopped(INTERRUPTED)
    except Exception as error:
        if signals.came():
            signals.stopped(INTERRUPTED)
        _say(error)


def _say(error: Exception) -> None:
    match error:
        case ConfigError():
            _fail(str(error), CALLED_WRONGLY)
        case MemoryError():
            _fail(memory.message(error), FAILED)
        case ImportError() | RuntimeError() | SystemError() if memory.is_lacking(error):
            _fail(memory.message(error), FAILED)
        case PyquantError():
            _fail(memory.said_of(error), FAILED)
        case BrokenPipeError():  # the reader of our output has all that it wanted, as `| head` does
            streams.silence()
        case OSError():
            streams.silence()
            _fail(said_by_system(error, "standard output"), FAILED)
        case _:
            raise error


def _run() -> None:
    try:
        (app if completion.asks() else with_options_of(app, sys.argv[1:]))()
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):  # typer and rich call that a failure
            raise leaving.__context__ from None
        if leaving.code == INTERRUPTED:  # typer's answer to Ctrl-C
            signals.stopped(INTERRUPTED)
        if leaving.code:
            raise


def _fail(message: str, status: int) -> None:
    print(f"pyquant: {message}", file=sys.stderr)
    sys.exit(status)
