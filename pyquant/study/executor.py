"""Do tasks: in processes of this machine, or on a Dask cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pyquant.errors import ConfigError, StudyError
from pyquant.machine.cpu import n_threads

CORES_PER_WORKER = 4  # below that, a forward pass gains more from a core than a second worker does
PATIENCE = 30  # seconds for a scheduler to answer


def local_workers(asked: int | None) -> int:
    """The number asked for, or one for every four cores."""
    return asked or max(1, n_threads(None) // CORES_PER_WORKER)


@contextmanager
def local(workers: int) -> Iterator[Executor]:
    """A pool of processes, which end at once with this context or with this process, however it ends."""
    # Spawned, not forked: a fork would inherit llama.cpp's threads and the lock on the folder.
    context = multiprocessing.get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    with writer, reader:
        pool = _Pool(workers, context, _begin_worker, (reader,))
        try:
            yield pool
            pool.shutdown()
        except BaseException:
            writer.close()
            pool.shutdown(cancel_futures=True)
            raise


class _Pool(ProcessPoolExecutor):
    """A pool whose processes hold Ctrl-C back from their first instruction on, which reaches them as well."""

    def submit(self, *work: Any, **named: Any) -> Future[Any]:
        """Submit work, which may start a process: it inherits the signals that are held back."""
        resource_tracker.ensure_running()  # it would let them through when it starts
        held = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            return super().submit(*work, **named)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _begin_worker(parent: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C ends
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Connection) -> None:
    # Nothing is ever sent: reading ends when the last writer, the parent, is gone.
    try:
        parent.recv()
    except EOFError:
        os._exit(1)


@contextmanager
def cluster(where: str) -> Iterator[Executor]:
    """A Dask cluster, by its scheduler's file or address (tcp://HOST:PORT). Its workers must see the
    models, texts and results folder under the same paths.

    Raises ConfigError if Dask is not installed, StudyError if the scheduler does not answer.
    """
    try:
        from distributed import Client
    except ImportError:
        raise ConfigError("cluster: Dask is not installed; pip install 'pyquant[cluster]'") from None
    if where.endswith(".json"):
        if not Path(where).is_file():
            raise StudyError(f"{where}: no such scheduler file; `dask scheduler --scheduler-file` writes it")
        place = {"scheduler_file": where}
    elif "://" in where:
        place = {"address": where}
    else:
        raise ConfigError(f"cluster: expected a scheduler file (.json) or tcp://HOST:PORT, got {where!r}")
    try:
        client = Client(**place, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise StudyError(f"{where}: the Dask scheduler does not answer: {error}") from None
    with client:
        executor = client.get_executor()
        try:
            yield executor
        finally:
            executor.shutdown(wait=False)  # and cancel what is not done
