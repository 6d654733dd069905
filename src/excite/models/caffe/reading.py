"""Reading Caffe's files: the network that a .prototxt describes, and the weights in a .caffemodel."""

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike

from torch import Tensor

from excite.errors import ModelError
from excite.models.caffe.blobs import BrokenFile
from excite.models.caffe.caffe_blobs import definition_of, weights_of
from excite.models.caffe.definition import Network
from excite.models.caffe.opening import mapped, text_in
from excite.models.caffe.schema import messages
from excite.models.caffe.text import parsed
from excite.models.caffe.upgrade import network_of

__all__ = ["read_network", "read_network_of_weights", "read_weights"]


def read_network(path: str | PathLike[str]) -> Network:
    """The network that a .prototxt describes, of the new or the old (V1) format, made for use or for training.

    Of a file for training it is the network in its test phase: the data layers become inputs of any shape, losses
    and accuracies are gone. Fillers, with which training begins, are left out of the options of the layers. A layer
    that excite does not support is there with its kind alone.

    Raises:
        ModelError: There is no such file, it is no network, or it says something that is not Caffe's.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from pathlib import Path
        >>> text = '''
        ... input: "data" input_dim: 1 input_dim: 3 input_dim: 224 input_dim: 224
        ... layers { name: "conv1" type: CONVOLUTION bottom: "data" top: "conv1"
        ...          convolution_param { num_output: 96 kernel_size: 7 stride: 2 } }
        ... '''
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "deploy.prototxt")
        ...     _ = path.write_text(text)
        ...     network = read_network(path)
        >>> network.inputs
        {'data': (1, 3, 224, 224)}
        >>> network.layers[0].kind, network.layers[0].options
        ('Convolution', {'num_output': 96, 'kernel_size': (7,), 'stride': (2,)})
    """
    text = text_in(path)
    with _named(path, "a Caffe network"):
        return network_of(parsed(text))


def read_weights(path: str | PathLike[str]) -> dict[str, tuple[Tensor, ...]]:
    """The weights in a .caffemodel: the blobs of each layer that has some, by its name.

    Each is float32 in the shape the file gives it; old files have four axes for all: 1 x 1 x outputs x inputs for
    an inner product, 1 x 1 x 1 x outputs for its bias. The file is mapped, and its numbers are copied once, straight
    into the tensors: the memory in use is theirs (and twice that of a blob of doubles while it is at hand).

    A file that was cut off exactly between two layers cannot be told from a smaller network; whoever builds the
    network sees that weights are missing.

    Raises:
        ModelError: There is no such file, it is no Caffe model, or it is damaged.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from pathlib import Path
        >>> blob = "2a 08 0000803f 00000040 3a 03 0a 01 02"  # data: 1.0, 2.0; shape: 2
        >>> layer = f"0a 02 6970 3a 0f {blob}"  # name: "ip"; blobs
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "tiny.caffemodel")
        ...     _ = path.write_bytes(bytes.fromhex(f"a206 15 {layer}"))
        ...     read_weights(path)
        {'ip': (tensor([1., 2.]),)}
    """
    model = mapped(path)
    with _named(path, "a Caffe model"):
        return weights_of(model)


def read_network_of_weights(path: str | PathLike[str]) -> Network:
    """The network that a .caffemodel describes itself: the one it was trained as, so mostly without input sizes.

    Only the description is read; the weights stay on the disk.

    Raises:
        ModelError: There is no such file, it is no Caffe model, or it says something that is not Caffe's.
    """
    model = mapped(path)
    net = messages()["NetParameter"]
    from google.protobuf.message import DecodeError

    with _named(path, "a Caffe model"):
        try:
            message = net.FromString(definition_of(model))
        except DecodeError as error:
            raise BrokenFile(f"its layers are damaged ({error})") from error
        return network_of(message, filtered=True)


@contextmanager
def _named(path: str | PathLike[str], what: str) -> Iterator[None]:
    try:
        yield
    except BrokenFile as error:
        raise ModelError(f"{path} cannot be read as {what}: {error}.") from error
