"""Files of weights: read without running anything in them, and filled into a network."""

from __future__ import annotations

import hashlib
import pickletools
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import torch
from torch import Tensor, nn

from excite.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from os import PathLike

INNER = ("state_dict", "model", "model_state_dict", "net", "ema_state_dict")  # where checkpoints keep the tensors
PREFIXES = ("module.", "_orig_mod.", "model.")  # that wrappers put before a network's names
SCALE = ".scale"  # the rows of an int8 tensor NAME are to be multiplied by NAME.scale
SHOWN = 3  # tensors named in an error
MAX_NAME = 500  # letters of a name in a pickle; torch's own have thirty
PICKLES = 5  # so many are at the beginning of a file from before 2020
CALLS = {"GLOBAL", "INST"}
UNENDED = "no newline found"  # a message of pickletools


def fill(module: nn.Module, tensors: Mapping[str, Tensor], source: str) -> None:
    """Fill tensors into a network, in its own precision, and set it to eval mode; it may be on the meta device.

    Raises:
        ModelError: the names or shapes of the tensors from ``source`` are not those of the network.
    """
    wanted = module.state_dict()
    optional = {name for name in wanted if name.endswith("num_batches_tracked")}  # only for training
    named = fitting_names(tensors, wanted)
    missing = sorted(wanted.keys() - named.keys() - optional)
    surplus = sorted(name for name in named.keys() - wanted.keys() if not name.endswith("num_batches_tracked"))
    misfit = f"{source} does not fit {type(module).__name__}"
    if missing or surplus:
        raise ModelError(f"{misfit}: {'; '.join(_differences(missing, surplus))}.")
    for name in named.keys() & wanted.keys():
        if named[name].shape != wanted[name].shape:
            stored, own = (list(tensors[name].shape) for tensors in (named, wanted))
            raise ModelError(f"{misfit}: {name} is {stored} in the file and {own} in the network.")
    ready = {name: named[name].to(wanted[name].dtype, copy=True) for name in wanted.keys() & named.keys()}
    ready |= {name: torch.zeros_like(wanted[name], device="cpu") for name in optional - ready.keys()}
    module.load_state_dict(ready, assign=True)
    module.eval()


def fill_from_caffe(module: nn.Module, path: Path) -> None:
    """Fill the weights of a .caffemodel into a Caffe network, in eval mode."""
    from excite.models.caffe.network import CaffeNetwork
    from excite.models.caffe.reading import read_weights

    if not isinstance(module, CaffeNetwork):
        raise ModelError(f"{path} holds the weights of a Caffe network, but {type(module).__name__} is none.")
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
                reset = getattr(child, "reset_parameters", None)
                if callable(reset):
                    reset()
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
    """The tensors of a file by name, int8 rows multiplied by their scales.

    Raises:
        ModelError: there is no such file, or it holds something else.
    """
    stored, tensors = _stored(path), {}
    quantised = {name for name, tensor in stored.items() if tensor.dtype == torch.int8}
    for name, tensor in stored.items():
        if name in quantised:
            scale = stored.get(name + SCALE)
            if scale is None or scale.shape != tensor.shape[:1]:
                raise ModelError(f"The tensor {name} is int8 without one scale for each row: give float weights.")
            tensors[name] = tensor * scale.reshape(-1, *[1] * (tensor.dim() - 1))
        elif not (name.endswith(SCALE) and name.removesuffix(SCALE) in quantised):
            tensors[name] = tensor
    return tensors


def fingerprint(path: Path) -> str:
    """A hash of the names, types and shapes of a file's tensors, not of their values."""
    described = sorted(
        f"{name} {tensor.dtype} {'x'.join(map(str, tensor.shape))}" for name, tensor in _stored(path).items()
    )
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
        return _read_safetensors(path)
    if start.startswith((b"PK", b"\x80")):  # torch's files: a zip, or before 2020 a bare pickle
        return _read_pickle(path)
    check_download(start, path)
    raise ModelError(f"{path} holds no weights; give safetensors, a state dict (.pth, .pt) or a .caffemodel.")


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise ModelError(f"{path} is damaged: {str(error)[:200]}; fetch it again.") from error


def _read_pickle(path: Path) -> dict[str, Tensor]:
    more = (
        f"{path} holds more than tensors, and unpacking that could run any program: "
        "save the network's state_dict() and give that."
    )
    try:
        with path.open("rb") as file, warnings.catch_warnings(action="ignore"):  # torch judges a path by its name
            foul = names_too_long(file)
            found = {} if foul else torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle fails in many ways
        said = str(error)
        if "Weights only load failed" in said or "weights_only" in said:
            raise ModelError(more) from error
        reason = next(iter(said.splitlines()), type(error).__name__)[:200]
        raise ModelError(f"{path} cannot be read as a state dict: {reason}; fetch it again.") from error
    if foul:
        raise ModelError(more)
    for name in INNER:
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
    tensors = {str(key): value for key, value in found.items()} if isinstance(found, Mapping) else {}
    if not tensors or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise ModelError(f"{path} holds no state dict: save the network's state_dict() and give that.")
    return tensors


def _differences(missing: list[str], surplus: list[str]) -> list[str]:
    """The differences, in one line."""
    said = []
    for names, what in ((missing, "it lacks"), (surplus, "it has besides")):
        if names:
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            said.append(f"{what} {', '.join(names[:SHOWN])}{more}")
    return said


# Guards: what a file has to be before it is read.


def check_file(path: str | PathLike[str]) -> None:
    """Refuse all but a regular, non-empty file: a pipe would block, a device has no end."""
    file = Path(path)
    try:
        exists, size = file.exists(), file.stat().st_size if file.exists() else 0
    except OSError as error:
        raise ModelError(f"{path} cannot be opened: {error}.") from error
    if not exists:
        raise ModelError(f"There is no file {str(path)!r}: give the file of the network or of its weights.")
    if not file.is_file():
        kind = "folder" if file.is_dir() else "device"
        raise ModelError(f"{str(path)!r} is a {kind}, not a file: give the file of the network or of its weights.")
    if not size:
        raise ModelError(f"{path} is empty: get it again.")


def check_download(head: bytes, path: str | PathLike[str]) -> None:
    """Refuse what a failed download leaves instead of the file."""
    if head.startswith(b"version https://git-lfs"):
        raise ModelError(f"{path} is a Git LFS pointer, not the file itself: run 'git lfs pull' where it came from.")
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        raise ModelError(f"{path} is a web page, not the file itself: get it again from a link to the file.")


def names_too_long(file: BinaryIO) -> bool:
    r"""Whether a pickle calls something by an implausibly long name; the file is rewound.

    torch refuses such calls too, but searches its own message for advice in quadratic time: 15 kB take five seconds.

    Example:
        >>> import io
        >>> names_too_long(io.BytesIO(b"cos\nsystem\n."))
        False
    """
    try:
        return any(len(name) > MAX_NAME for name in _called_names(file))
    except Exception as error:  # noqa: BLE001 - damaged files fail in many ways, which torch reports
        return UNENDED in str(error)  # of a line without an end torch takes all the rest for the name
    finally:
        file.seek(0)


def _called_names(file: BinaryIO) -> Iterator[str]:
    if file.read(2) == b"PK":
        with zipfile.ZipFile(file) as zipped:
            for name in zipped.namelist():
                if name.endswith("/data.pkl"):
                    yield from _calls(zipped.read(name))
        return
    file.seek(0)
    for _ in range(PICKLES):
        yield from _calls(file)


def _calls(pickled: Any) -> Iterator[str]:
    return (str(name) for operation, name, _ in pickletools.genops(pickled) if operation.name in CALLS)
