"""All faults as plain data: command, event, moment."""

from injection import Injection
from long_commands import COMMANDS

__all__ = ["ALL", "QUICK"]

SLOW = ("bench speed", "export")
"""Seconds for each run, so fewer moments are tried."""

EVERY = {
    "kill -9": (0.6, 0.3, 1),
    "Ctrl-C": (0.5,),
    "SIGTERM": (0.5,),
    "full disk": (0.4,),
    "read-only folder": (0,),
    "a file in the way": (0,),
    "two at once": (0.5,),
    "reader gone": (0,),
}
"""Events for every command, and their moments as shares of its steps on the disk."""

SOME = {
    "input vanishes": {
        **dict.fromkeys(("attend", "boxes coco", "boxes voc", "bench pointing", "bench localization"), 0.4),
        **dict.fromkeys(("check", "find", "layers", "finetune", "finetune augment"), 0.4),
        **dict.fromkeys(("ground", "tags clean", "tags captions"), 0),
        "bench grounding": 0.65,  # when the sizes of all images are known: before, it is left out and counted
    },
    "input folder vanishes": dict.fromkeys(
        ("attend", "bench pointing", "find", "layers", "finetune", "train tags", "tags shards"), 0.4
    ),
    "input cut off": dict.fromkeys(
        ("attend", "boxes voc", "bench pointing", "bench localization", "check", "find", "layers"), 0.4
    ),
    "worker killed": dict.fromkeys(("attend", "boxes coco", "bench pointing", "find", "finetune", "train tags"), 0),
    "Ctrl-C while workers begin": dict.fromkeys(("attend", "bench pointing"), 0),
    "SIGTERM while workers begin": dict.fromkeys(("attend", "bench pointing"), 0),
    "two at once": dict.fromkeys(("attend", "tags clean", "tags captions"), 1),
    "torn write": {
        **dict.fromkeys(("attend", "boxes coco", "bench pointing", "bench localization", "bench grounding"), 0.7),
        **dict.fromkeys(("bench speed", "layers", "finetune"), 0.7),
        "fetch": 0.1,  # when all has come and nothing is unpacked
    },
    "answers to a full disk": dict.fromkeys(("attend", "bench pointing", "tags stats"), 0),
}
"""Events for some commands."""


def _every():
    for command in COMMANDS:
        for fault, moments in EVERY.items():
            yield from (Injection(command, fault, moment) for moment in moments[: 1 if command in SLOW else None])
    for fault, moments in SOME.items():
        yield from (Injection(command, fault, moment) for command, moment in moments.items())


ALL = tuple(_every())

QUICK = {
    "boxes coco": {"kill -9": 0.6, "two at once": 0.5, "torn write": 0.7},
    "bench pointing": {"kill -9": 0.6, "SIGTERM": 0.7, "input vanishes": 0.4, "answers to a full disk": 0},
    "find": {"kill -9": 0.6, "input vanishes": 0.4},
    "finetune": {"kill -9": 0.3, "Ctrl-C": 0.3, "read-only folder": 0, "input folder vanishes": 0.4},
    "train tags": {"kill -9": 1, "full disk": 0.2},
    "tags clean": {"kill -9": 0.6, "two at once": 1, "a file in the way": 0},
    "tags shards": {"kill -9": 0.6, "full disk": 0.6, "input folder vanishes": 0.4},
    "tags captions": {"two at once": 1},
    "fetch": {"kill -9": 0.6, "Ctrl-C": 0.3, "full disk": 0.2, "two at once": 0.5},
}
"""For each command the faults that every run of the tests tries; `dev/faults.py` tries all."""
