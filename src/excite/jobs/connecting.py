"""The way to a Ray cluster: one that is there, or one of this machine alone."""

from __future__ import annotations

import logging
import os
import socket
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from excite.errors import ExciteError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from excite.jobs.executor import Crew

__all__ = ["connected"]

QUIET = {"logging_level": logging.ERROR, "log_to_driver": False}
REACHED = 10.0  # seconds for an address to answer


@contextmanager
def connected(crew: Crew) -> Iterator[int]:
    """Connect to the cluster, for so long; how many workers it shall have.

    A program that is connected already stays so. Ray tells nobody that it is used, and has no page of its own when it
    is started here.
    """
    import ray

    if ray.is_initialized():
        yield _workers(ray, crew)
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # silences a warning about graphics cards
    with _silenced():
        try:
            _connect(ray, crew)
            yield _workers(ray, crew)
        finally:
            ray.shutdown()


@contextmanager
def _silenced() -> Iterator[None]:
    """Ray tells of every lost worker on standard output, among the answers; excite tells it itself."""
    from ray._private import worker

    switch = "_worker_logs_enabled"  # there is no public one
    before = getattr(worker, switch)
    setattr(worker, switch, False)
    try:
        yield
    finally:
        setattr(worker, switch, before)


def _connect(ray: Any, crew: Crew) -> None:
    address = crew.address or os.environ.get("RAY_ADDRESS") or _started_here() or "local"
    try:
        if address == "local":
            ray.init(address="local", num_cpus=crew.workers, include_dashboard=False, **QUIET)
            return
        if address != "auto":
            _check_reachable(address)
        ray.init(address=address, **QUIET)
    except (ConnectionError, ImportError, OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ExciteError(
            f"no Ray cluster at {address!r} ({reason}): start one with `ray start --head`, or leave --address out; "
            "if it asks for a token, set RAY_AUTH_MODE=token"
        ) from None


def _started_here() -> str | None:
    """The cluster that this machine was made a part of by ``ray start``, if it is still there."""
    note = Path(os.environ.get("RAY_TMPDIR") or "/tmp") / "ray" / "ray_current_cluster"  # noqa: S108 - where Ray puts it
    try:
        address = note.read_text(encoding="utf-8").strip()
        _check_reachable(address)
    except (OSError, ExciteError):
        return None
    return address


def _check_reachable(address: str) -> None:
    """Ray itself would try for minutes."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port:
        raise ExciteError(f"{address!r} is no address of a Ray cluster: give HOST:PORT, ray://HOST:PORT, auto or local")
    try:
        socket.create_connection((host, port), REACHED).close()
    except OSError as error:
        reason = error.strerror or error
        raise ExciteError(f"nobody answers at {address} ({reason}): is the Ray cluster started there?") from None


def _workers(ray: Any, crew: Crew) -> int:
    """As many as were asked for, or one for each CPU."""
    found = int(ray.cluster_resources().get("CPU", 0))
    if crew.workers is None and not found:
        raise ExciteError("this Ray cluster has no CPUs: add a machine with `ray start --address=HOST:PORT`")
    return crew.workers or found
