"""Files of weights: read without running anything in them, and filled into a network."""

import hashlib
import pickletools
import warnings
import zipfile
from collections.abc import Callable, Iterable, Mapping
from itertools import repeat
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn

from excite.errors import ModelError

INNER = ("state_dict", "model", "model_state_dict", "net", "ema_state_dict")  # where checkpoints keep the tensors
PREFIXES = ("module.", "_orig_mod.", "model.")  # that wrappers put before a network's names
SHOWN = 3  # tensors named in an error
COUNTER = "num_batches_tracked"  # the end of names that only training needs
UNENDED = "no newline found"  # a message of pickletools


def fill(module: nn.Module, tensors: Mapping[str, Tensor], source: str) -> None:
    """Fill tensors into a network, in its own precision, and set it to eval mode; it may be on the meta device."""
    wanted = module.state_dict()
    named = fitting_names(tensors, wanted)
    different = [
        f"{what} {', '.join(names[:SHOWN])}{f' and {len(names) - SHOWN} more' if len(names) > SHOWN else ''}"
        for what, many, few in (("it lacks", wanted, named), ("it has besides", named, wanted))
        if (names := sorted(name for name in many.keys() - few.keys() if not name.endswith(COUNTER)))
    ]
    different += [
        f"{name} is {list(named[name].shape)} in the file and {list(own.shape)} in the network"
        for name, own in wanted.items()
        if not different and name in named and named[name].shape != own.shape
    ][:1]
    if different:
        raise ModelError(f"{source} does not fit {type(module).__name__}: {'; '.join(different)}.")
    ready = {
        name: named[name].to(own.dtype, copy=True) if name in named else torch.zeros_like(own, device="cpu")
        for name, own in wanted.items()
    }
    module.load_state_dict(ready, assign=True)
    module.eval()


def fill_from_caffe(module: nn.Module, path: Path) -> None:
    """Fill the weights of a .caffemodel into a Caffe network, in eval mode."""
    from excite.models.caffe.network import CaffeNetwork
    from excite.models.caffe.reading import read_weights

    if not isinstance(module, CaffeNetwork):
        raise ModelError(f"{path} is of a Caffe network, but {type(module).__name__} is none: name that network.")
    module.load_blobs(read_weights(path), str(path))


def filled_at_random(build: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """A network with random weights by a seed, to look at its layers or its speed."""
    from excite.models.caffe.network import CaffeNetwork

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = build()
        if isinstance(module, CaffeNetwork):
            return module.initialise(seed)
        if any(tensor.is_meta for tensor in (*module.parameters(), *module.buffers())):
            module.to_empty(device="cpu")
            for child in module.modules():
                getattr(child, "reset_parameters", lambda: None)()
    return module.eval()


def other_classes(tensors: Mapping[str, Tensor], module: nn.Module) -> int | None:
    """The number of classes of the tensors, where they differ from the network in that only."""
    wanted = module.state_dict()
    named = fitting_names(tensors, wanted)
    different = {name for name in named.keys() & wanted.keys() if named[name].shape != wanted[name].shape}
    rows = {named[name].shape[0] for name in different if named[name].dim()}
    same_inside = all(named[name].shape[1:] == wanted[name].shape[1:] for name in different)
    return rows.pop() if len(rows) == 1 and same_inside else None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by name, int8 rows multiplied by their scales."""
    tensors = _stored(path)
    for name in [name for name, tensor in tensors.items() if tensor.dtype == torch.int8]:
        rows, scale = tensors[name], tensors.pop(f"{name}.scale", None)
        if scale is None or scale.shape != rows.shape[:1]:
            raise ModelError(f"The tensor {name} is int8 without one scale for each row: give float weights.")
        tensors[name] = rows * scale.reshape(-1, *[1] * (rows.dim() - 1))
    return tensors


def fingerprint(path: Path) -> str:
    """A hash of the names, types and shapes of a file's tensors, not of their values."""
    tensors = _stored(path).items()
    described = sorted(f"{name} {tensor.dtype} {'x'.join(map(str, tensor.shape))}" for name, tensor in tensors)
    return hashlib.sha256("\n".join(described).encode()).hexdigest()[:16]


def fitting_names(tensors: Mapping[str, Tensor], wanted: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors under the network's names, without the prefix that a wrapper has added."""
    named = dict(tensors)
    for _ in PREFIXES:
        prefix = next((one for one in PREFIXES if named and all(name.startswith(one) for name in named)), None)
        if prefix is None or named.keys() & wanted.keys():
            break
        named = {name.removeprefix(prefix): tensor for name, tensor in named.items()}
    return named


def _stored(path: Path) -> dict[str, Tensor]:
    """The tensors as they are in the file."""
    check_file(path)
    try:
        with path.open("rb") as file:
            start = file.read(512)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from error
    if start[8:9] == b"{":  # safetensors begin with the length of a JSON header
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(path)
        except (SafetensorError, OSError, ValueError, KeyError) as error:
            raise ModelError(f"{path} is damaged: {str(error)[:200]}; fetch it again.") from error
    if start.startswith((b"PK", b"\x80")):  # torch's files: a zip, or before 2020 a bare pickle
        return _read_pickle(path)
    check_download(start, path)
    raise ModelError(f"{path} holds no weights; give safetensors, a state dict (.pth, .pt) or a .caffemodel.")


def _read_pickle(path: Path) -> dict[str, Tensor]:
    try:
        with path.open("rb") as file, warnings.catch_warnings(action="ignore"):  # torch judges a path by its name
            if names_too_long(file):
                raise ValueError("weights_only")  # noqa: TRY301 - refused as torch would, but at once
            found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle fails in many ways
        said = str(error)
        if "Weights only load failed" in said or "weights_only" in said:
            raise ModelError(
                f"{path} holds more than tensors, and unpacking that could run any program: "
                "save the network's state_dict() and give that."
            ) from error
        reason = first_line(error)[:200]
        raise ModelError(f"{path} cannot be read as a state dict: {reason}; fetch it again.") from error
    for name in INNER:
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
    tensors = {str(key): value for key, value in found.items()} if isinstance(found, Mapping) else {}
    if not tensors or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise ModelError(f"{path} holds no state dict: save the network's state_dict() and give that.")
    return tensors


def first_line(error: Exception) -> str:
    """The first line of its message, or else its kind."""
    return next(iter(str(error).splitlines()), type(error).__name__)


# Guards: what a file has to be before it is read.


def check_file(path: str | PathLike[str]) -> None:
    """Refuse all but a regular, non-empty file: a pipe would block, a device has no end."""
    file, remedy = Path(path), "give the file of the network or of its weights"
    try:
        size = file.stat().st_size if file.exists() else None
    except OSError as error:
        raise ModelError(f"{path} cannot be opened: {error}.") from error
    if size is None:
        raise ModelError(f"There is no file {str(path)!r}: {remedy}.")
    if not file.is_file():
        raise ModelError(f"{str(path)!r} is a {'folder' if file.is_dir() else 'device'}, not a file: {remedy}.")
    if not size:
        raise ModelError(f"{path} is empty: get it again.")


def check_download(head: bytes, path: str | PathLike[str]) -> None:
    """Refuse what a failed download leaves instead of the file."""
    if head.startswith(b"version https://git-lfs"):
        raise ModelError(f"{path} is a Git LFS pointer, not the file itself: run 'git lfs pull' where it came from.")
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        raise ModelError(f"{path} is a web page, not the file itself: get it again from a link to the file.")


def names_too_long(file: BinaryIO) -> bool:
    """Whether a pickle calls something by an implausibly long name; the file is rewound.

    torch refuses such calls too, but searches its own message for advice in quadratic time: 15 kB take five seconds.
    """
    pickles: Iterable[Any] = repeat(file, 5)  # so many are at the beginning of a file from before 2020
    try:
        if file.read(2) == b"PK":
            with zipfile.ZipFile(file) as zipped:
                pickles = [zipped.read(name) for name in zipped.namelist() if name.endswith("/data.pkl")]
        else:
            file.seek(0)
        operations = (operation for pickled in pickles for operation in pickletools.genops(pickled))
        calls = (str(name) for code, name, _ in operations if code.name in {"GLOBAL", "INST"})
        return any(len(name) > 500 for name in calls)  # torch's own have thirty letters
    except Exception as error:  # noqa: BLE001 - damaged files fail in many ways, which torch reports
        return UNENDED in str(error)  # of a line without an end torch takes all the rest for the name
    finally:
        file.seek(0)
