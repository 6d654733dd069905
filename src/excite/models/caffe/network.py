"""A Caffe network as a torch module: its layers under their own names, its output the logits."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import chain, dropwhile
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call

from excite.errors import ModelError
from excite.models.caffe.definition import Layer, Network
from excite.models.caffe.layers import InnerProduct, build, refusal

ENDINGS = frozenset({"Softmax", "Sigmoid", "Accuracy", "Split"})  # and all losses: what comes after the logits


class Step(NamedTuple):
    """A layer with its module's name and the blobs that it is the last to read, which are freed after it."""

    module: str
    layer: Layer
    finished: set[str]


class CaffeNetwork(nn.Module):
    """The network that a Caffe definition describes, up to its logits.

    Every layer that feeds the output is a child under its own name ("pool2/3x3_s2"). Torch allows neither dots in
    names nor names that a module has already: a dot becomes "_", and "_" is added to a name that is taken ("type_").
    ``shapes`` has the shape of each blob for one image. It is built without weights, on the meta device: ``load_blobs``
    fills in those of a file, ``initialise`` random ones. ``output`` names the output blob, where several are not read
    by any layer; ``shape`` [N, C, H, W] is that of the input, instead of the definition's.
    """

    def __init__(self, definition: Network, output: str | None = None, *, shape: Sequence[int] = ()) -> None:
        super().__init__()
        self.definition = definition
        self.shapes: dict[str, tuple[int, ...]] = {}
        layers, self._answer = _up_to_the_logits(definition, output)
        self._input = _only_input(definition, layers)
        shape = shape or definition.inputs[self._input]
        if not shape:
            raise ModelError(
                f"{definition.name} does not say the shape of its input {self._input!r}: "
                "give shape=(1, 3, height, width)."
            )
        self.shapes[self._input] = (1, *shape[1:])
        namesakes: Counter[str] = Counter()
        self._steps: list[Step] = []
        for layer in layers:
            name = self._free_name(layer.name, namesakes)
            self.add_module(name, self._built(layer))
            self._steps.append(Step(name, layer, set(layer.bottoms) - set(layer.tops)))
        later = {self._answer}
        for _, layer, finished in reversed(self._steps):
            finished.difference_update(later)
            later = (later - set(layer.tops)) | set(layer.bottoms)
        self.eval()

    def forward(self, pictures: Tensor) -> Tensor:
        """Logits of images [N, C, H, W]."""
        if not pictures.is_meta and any(tensor.is_meta for tensor in chain(self.parameters(), self.buffers())):
            raise ModelError(f"{self.definition.name} has no weights yet: load_blobs(...) or initialise(seed) first.")
        blobs = {self._input: pictures}
        for step in self._steps:
            answer = self.get_submodule(step.module)(*(blobs[bottom] for bottom in step.layer.bottoms))
            for blob in step.finished:
                del blobs[blob]
            blobs.update(dict.fromkeys(step.layer.tops, answer))
        logits = blobs[self._answer]
        return logits.flatten(1) if logits.shape[2:] == (1, 1) else logits

    def load_blobs(self, weights: Mapping[str, Sequence[Tensor]], source: str = "the weights") -> list[str]:
        """Fill in the blobs of each layer by its name, without a copy where type and layout allow it.

        Where blobs are missing, too many, or of another shape, a ModelError names the source, and nothing is changed.
        Returns the layers in ``weights`` that this network does not have, such as heads for training.
        """
        weighted = [step for step in self._steps if self.get_submodule(step.module).state_dict()]
        wanted = list(dict.fromkeys(step.layer.name for step in weighted))
        missing = [name for name in wanted if not weights.get(name)]
        if missing:
            some = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
            raise ModelError(
                f"{source} has no weights for {some} of {self.definition.name}: it is cut off, or those of another "
                "network; use the weights and the definition that belong together."
            )
        state = {}
        for step in weighted:
            fitted = _fitted(step.layer, self.get_submodule(step.module), weights[step.layer.name], source)
            state.update({f"{step.module}.{name}": tensor for name, tensor in fitted.items()})
        self.load_state_dict(state, strict=True, assign=True)
        self.eval()
        return [name for name in weights if weights[name] and name not in wanted]

    def initialise(self, seed: int = 0) -> Self:
        """Random weights (He's normal ones), zero biases, norms that do nothing: the same for the same seed."""
        generator = torch.Generator().manual_seed(seed)
        state = {}
        for path, tensor in self.state_dict().items():
            start = torch.empty(tensor.shape, dtype=tensor.dtype)
            module, _, name = path.rpartition(".")
            if start.dim() > 1:
                start.normal_(std=(2 / start[0].numel()) ** 0.5, generator=generator)
            elif isinstance(self.get_submodule(module), nn.PReLU):
                start.fill_(0.25)
            else:
                start.fill_(0 if name in {"bias", "mean"} else 1)
            state[path] = start
        self.load_state_dict(state, strict=True, assign=True)
        return self

    def _free_name(self, name: str, namesakes: Counter[str]) -> str:
        """The layer's name, with underscores appended where it is taken."""
        free = name.replace(".", "_") + "_" * namesakes[name]
        while not free or hasattr(self, free):
            free += "_"
            namesakes[name] += 1
        return free

    def _built(self, layer: Layer) -> nn.Module:
        """The module of a layer, without weights; its output shape is found with an empty batch (meta is slow)."""
        shapes = [self.shapes[bottom] for bottom in layer.bottoms]
        try:
            with torch.device("meta"):
                module = build(layer, shapes).eval()
            weights = {name: torch.empty(tensor.shape) for name, tensor in module.state_dict().items()}
            with torch.no_grad():
                answer: Tensor = functional_call(module, weights, tuple(torch.empty(0, *shape[1:]) for shape in shapes))
        except (RuntimeError, ValueError, IndexError) as error:  # sizes that do not fit
            raise refusal(layer, f"does not fit its input {_written(shapes)}: {str(error).splitlines()[0]}") from error
        self.shapes.update(dict.fromkeys(layer.tops, (1, *answer.shape[1:])))
        return module


def _up_to_the_logits(definition: Network, output: str | None) -> tuple[list[Layer], str]:
    """The layers that feed the output blob, and its name; without the last, for probabilities or a loss."""
    layers = list(definition.layers)
    if output is not None:
        layers = _feeding(layers, {output})
        if not layers:
            blobs = list(dict.fromkeys(top for layer in definition.layers for top in layer.tops))
            raise ModelError(f"{definition.name} has no blob {output!r} to answer with; it has {', '.join(blobs)}.")
    layers = _feeding(layers, set(), lambda layer: layer.kind not in ENDINGS and not layer.kind.endswith("Loss"))
    unread: dict[str, None] = {}
    for layer in layers:
        for bottom in layer.bottoms:
            unread.pop(bottom, None)
        unread.update(dict.fromkeys(layer.tops))
    if len(unread) != 1:
        found = f"several outputs, {', '.join(unread)}: choose one with output=, or" if unread else "no output:"
        raise ModelError(f"{definition.name} has {found} take its deploy.prototxt, with these weights for it.")
    (found,) = unread
    return _feeding(layers, {found}), found


def _feeding(layers: list[Layer], needed: set[str], and_those: Callable[[Layer], bool] | None = None) -> list[Layer]:
    """The layers that feed the needed blobs; from the last on, as a blob may be written several times (in place)."""
    kept = []
    for layer in reversed(layers):
        if needed & set(layer.tops) or (and_those is not None and and_those(layer)):
            needed = (needed - set(layer.tops)) | set(layer.bottoms)
            kept.append(layer)
    return kept[::-1]


def _only_input(definition: Network, layers: Iterable[Layer]) -> str:
    written: set[str] = set()
    used: list[str] = []
    for layer in layers:
        for blob in layer.bottoms:
            if blob not in {*written, *definition.inputs}:
                raise refusal(layer, f"reads the blob {blob!r}, which no layer before it writes")
            used += [] if blob in {*written, *used} else [blob]
        written |= set(layer.tops)
    if len(used) != 1:
        raise ModelError(f"{definition.name} takes {', '.join(used)}: excite can feed it one input, the images.")
    return used[0]


def _fitted(layer: Layer, module: nn.Module, blobs: Sequence[Tensor], source: str) -> dict[str, Tensor]:
    """The blobs as the tensors of a module, in Caffe's order."""
    state = module.state_dict()
    if len(blobs) != len(state):
        raise refusal(layer, f"has {len(state)} blobs ({', '.join(state)}), but {len(blobs)} in {source}")
    fitted = {}
    for (name, target), blob in zip(state.items(), blobs, strict=True):
        turned = name == "weight" and isinstance(module, InnerProduct) and module.transposed
        expected = target.shape[::-1] if turned else target.shape
        if _without_leading_ones(blob.shape) != _without_leading_ones(expected):
            raise refusal(
                layer,
                f"takes a {name} of shape {_written([expected])}, but that in {source} is {_written([blob.shape])}: "
                "use the weights and the definition that belong together",
            )
        tensor = blob.detach().reshape(expected)
        tensor = (tensor.T if turned else tensor).contiguous()
        fitted[name] = tensor.to(tensor.device if target.is_meta else target.device, target.dtype)
    return fitted


def _without_leading_ones(shape: Sequence[int]) -> list[int]:
    """Old files write vectors as 1 x 1 x 1 x N and matrices as 1 x 1 x M x N."""
    return list(dropwhile(lambda size: size == 1, shape))


def _written(shapes: Iterable[Sequence[int]]) -> str:
    return ", ".join(" x ".join(map(str, shape)) or "a single number" for shape in shapes)


# The paper's three networks, as the deploy files of Caffe's Model Zoo describe them: the layers are in zoo.txt. CNN-S:
# Chatfield et al. 2014, "VGG_CNN_S". VGG16: Simonyan and Zisserman 2014, "VGG_ILSVRC_16_layers". GoogleNet: Szegedy et
# al. 2014 as trained by the BVLC, "bvlc_googlenet", without the two heads that only its training has.

INPUT = {
    "data": (10, 3, 224, 224)
}  # ten crops of an image, as all three were tested; BGR, less the mean of each channel
CLASSES = 1000


def zoo_network(name: str, classes: int = CLASSES) -> CaffeNetwork:
    """One of the networks without weights, for any number of classes."""
    text = files("excite.models.caffe").joinpath("zoo.txt").read_text(encoding="utf-8")
    header, *lines = text.partition(f"[{name} ")[2].partition("\n\n")[0].splitlines()
    return CaffeNetwork(Network(header.removesuffix("]"), INPUT, tuple(_layer(line, classes) for line in lines)))


def _layer(line: str, classes: int) -> Layer:
    name, kind, *rest = line.split()
    blobs = [word for word in rest if "=" not in word]
    bottoms, arrow, tops = " ".join(blobs).partition("->")
    options: dict[str, Any] = {}
    for option, _, value in (word.partition("=") for word in rest if "=" in word):
        number = value if value.isalpha() else float(value) if "." in value else int(value)
        options[option] = (number,) if kind == "Convolution" and option != "num_output" else number
    if kind == "InnerProduct" and options["num_output"] == CLASSES:
        options["num_output"] = classes
    return Layer(name, kind, tuple(bottoms.split()), tuple(tops.split()) if arrow else (name,), options)
