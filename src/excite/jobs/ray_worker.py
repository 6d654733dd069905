"""A worker on a machine of a Ray cluster.

It is sent there by value and imports nothing until it is told to join, so that a machine without excite, or with
another one, can say so itself.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

__all__ = ["PACKAGES", "Terms", "worker_class"]

PACKAGES = ("excite", "torch", "numpy", "pillow")
"""Answers depend on these: all machines must have the same."""

ENVIRONMENT = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY",)
"""What this process was told by the environment and others should know too; it changes no answers."""


@dataclass(frozen=True)
class Terms:
    """What a worker must have in common with the machine that asks.

    Attributes:
        folder: the folder to work in: names of files may be relative to it.
        environment: variables to set.
        token: a file in the folder that the work writes into, if it writes any,
        word: and what is in it.
        task: a task, pickled,
        key: and its key here. It tells which picture was read, when it was written and how large it is.
    """

    folder: str
    environment: dict[str, str]
    token: str | None
    word: str
    task: bytes
    key: str

    def plain(self) -> dict[str, Any]:
        """As values that a machine without excite can read.

        Example:
            >>> Terms("/photos", {}, None, "", b"", "a1").plain()["key"]
            'a1'
        """
        return {**asdict(self), "versions": {package: version(package) for package in PACKAGES}}


def worker_class() -> type[Any]:
    """The class of workers. Being inside a function, it travels as a whole.

    Example:
        >>> worker_class().__name__
        'Worker'
    """

    class Worker:
        """Does the work for one task after the other."""

        def join(self, content: bytes, terms: dict[str, Any]) -> str | None:
            """Get ready; what speaks against it, if anything."""
            import os
            import platform
            from importlib.metadata import PackageNotFoundError, version

            name = platform.node()
            for package, wanted in terms["versions"].items():
                try:
                    found = version(package)
                except PackageNotFoundError:
                    return f"machine {name} of the cluster has no {package}: pip install '{package}=={wanted}' there"
                if found != wanted:
                    return (
                        f"machine {name} of the cluster has {package} {found} and this one {wanted}: "
                        f"pip install '{package}=={wanted}' there"
                    )
            os.environ.update(terms["environment"])
            from excite.jobs.joining import joined

            complaint: str | None
            self.work, complaint = joined(content, terms)
            return None if complaint is None else f"machine {name} of the cluster {complaint}"

        def do(self, task: Any) -> tuple[Any, list[Warning | str]]:
            """The outcome, and warnings that somebody should see."""
            import warnings

            from excite.jobs.jobs import attempt

            with warnings.catch_warnings(record=True) as noted:
                outcome = attempt(self.work, task)
            return outcome, [note.message for note in noted]

    return Worker
