"""All faults that are tried: which command, what happens to it, and when."""

from injecting import Injection

__all__ = ["ALL", "QUICK"]

EVERY = {
    "kill -9": (0.3, 0.6, 0.9),
    "Ctrl-C": (0.3, 0.7),
    "SIGTERM": (0.5,),
    "full disk": (0.2, 0.6),
    "read-only folder": (0,),
    "a file in the way": (0,),
    "two at once": (0.5,),
    "reader gone": (0,),
}
"""What is done to every command, at which shares of its steps on the disk."""

MORE = {
    "input vanishes": {"attend": 0.4, "boxes coco": 0.4, "boxes voc": 0.4, "bench pointing": 0.5},
    "worker killed": {"attend": 0.5, "bench pointing": 0.5},
    "answers to a full disk": {"attend": 0, "bench pointing": 0, "tags stats": 0},
}
"""What makes sense for some of them."""

COMMANDS_OF_ALL = ()

ALL = ()
QUICK = {}
