"""The layers of a network that can be read as maps: found in one run, with a default and candidates."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from threading import Lock, get_ident
from typing import Any, cast

import torch
from PIL import Image
from torch import Tensor, nn

from excite.errors import LayerError, SignalError
from excite.models.classifier import Classifier
from excite.models.fully_convolutional import Recording, Step, step_of
from excite.models.positions import Pairs, grid_of
from excite.models.receptive_field import Receptive, view_of
from excite.models.tokens import chains, ignored, stream_of
from excite.propagation import ExcitationPass, attention_layers, prior
from excite.propagation.edges import attention_shapes
from excite.propagation.provenance import tensors_in
from excite.propagation.taps import as_found, heard_in, is_edges, main_output, plain_modules
from excite.propagation.token_pass import Stream
from excite.propagation.tokens import TokenGrid

USUAL_STRIDE = 16  # fine enough to point, coarse enough to mean something (the paper's pool4 of VGG16)
LEAST_STRIDE = 8  # finer layers encode hardly more than edges
MIN_SIDE = 4  # of a map
CLASS_TOKEN_DEPTH = 1 / 3  # of the blocks of a network that is read at a class token: its default layer
MOST_SIZES = 64  # of images, for which is kept where the tokens lie
NEARLY = 1.4  # strides derived from sizes: borders make 16 a ratio of 17 or 18; the next is 32
UNCHANGING = ("Dropout", "Identity")  # named after the layer before them
_finding = Lock()  # held while the facts about a classifier's layers are looked up or found


@dataclass(frozen=True)
class SpatialLayer:
    """A layer whose output is a map."""

    name: str
    kind: str  # the class of its module
    channels: int
    height: int
    width: int
    stride: float  # pixels between two positions, by the operations or, behind one that mixes all positions, by sizes
    receptive_field: int | None = None  # pixels along its longer side; None: the whole image
    grid: TokenGrid | None = field(default=None, compare=False)  # where its positions lie in its output

    @property
    def tokens(self) -> bool:
        """Whether its output has tokens [N, T, C]."""
        return self.grid is not None and bool(self.grid.tokens)

    @property
    def depth(self) -> int:
        """The number of modules around it."""
        return self.name.count(".")


def spatial_layers(module: nn.Module, inputs: Tensor) -> list[SpatialLayer]:
    """All layers whose output is a map [images, channels, height, width], in the order of computation.

    That it is one is known by how it was computed from the image, not by its shape: the weights of an attention have
    four dimensions, too.
    """
    return [layer for layer in _run(module, inputs).found if isinstance(layer, SpatialLayer) and layer.name]


def default_layer(module: nn.Module, inputs: Tensor) -> str:
    """The layer to read by default.

    It lies below the classifier's last weights, so that there is a contrast; where those are applied at each position
    (SqueezeNet), also below the weights under them, or a position and its dual would cancel. Where possible the whole
    signal passes through it. Of those it has a stride of 16, or else the largest below that; on a small image, at least
    four positions along each side. Of several it is the last one of those within the fewest modules.

    In a network that is read at a class token the evidence moves from the image's tokens to that token, block by block.
    There it is the end of the last block before that token joins them (XCiT) or, where it is there from the start
    (ViT), of the block at `CLASS_TOKEN_DEPTH` of all.
    """
    run = _run(module, inputs)
    layers = run.contrastable()
    if not layers:
        raise _no_map(run, "name a layer, or use excite.mwp for neurons")
    by_all = run.passed_by_all()
    passed = [layer for layer in layers if run.steps.get(layer.name) in by_all]
    stride = _preferred_stride(passed or layers, min(inputs.shape[-2:]))
    even = [layer for layer in passed or layers if 1 / NEARLY <= layer.stride / stride <= NEARLY]
    if unread := ignored(run.module, inputs, run.grids()):
        even = [layer for layer in even if layer.name not in unread] or even
        alone = [layer for layer in even if layer.grid and not layer.grid.other_tokens]
        for part, depth in ((alone, 1.0), ([layer for layer in even if layer not in alone], CLASS_TOKEN_DEPTH)):
            blocks = max((_ends(chain, part) for chain in chains(run.module)), key=len, default=[])
            if blocks:
                return blocks[math.ceil(len(blocks) * depth) - 1].name
    return min(reversed(even), key=_plainness).name


def _plainness(layer: SpatialLayer) -> tuple[bool, int]:
    return layer.kind.startswith(UNCHANGING), layer.depth


def _ends(blocks: Iterable[str], layers: Sequence[SpatialLayer]) -> list[SpatialLayer]:
    """Of each block that mixes all positions the last layer, within the fewest modules."""
    found = [layer for layer in layers if layer.receptive_field is None]
    inside = [[layer for layer in found if f"{layer.name}.".startswith(f"{block}.")] for block in blocks]
    return [min(reversed(each), key=_plainness) for each in inside if each]


def top_layer(module: nn.Module, inputs: Tensor) -> str:
    """The last map below the classifier's last weights (the layer of CAM).

    In a network that is read at a class token: the last one whose image tokens still have a part in the output, and
    that is no projection: the norm before the last block's attention, as with Grad-CAM in the field.
    """
    run = _run(module, inputs)
    named = run.maps_below(max(run.weights, default=0))
    if not named:
        raise _no_map(run, "name a layer")
    if unread := ignored(run.module, inputs, run.grids()):
        weights = {found for found in run.found if isinstance(found, str)}
        named = [layer for layer in named if layer.name not in unread | weights] or named
    kept = [layer for layer in named if not layer.kind.startswith(UNCHANGING)]
    return (kept or named)[-1].name


def _no_map(run: "_Run", remedy: str) -> LayerError:
    maps = _listed([layer.name for layer in run.maps_below()])
    reason = f"; layers that are maps: {maps}" if maps else " (none was computed as a map)"
    return LayerError(f"no layer below the classifier's weights has places to show{reason}: {remedy}")


@dataclass(frozen=True)
class LayerFacts:
    """What one dry run found of a network's layers: the grids of the maps, and why others are none."""

    grids: dict[str, TokenGrid]
    others: dict[str, str]


def layer_grids(classifier: Classifier, layers: Sequence[str], inputs: Tensor) -> dict[str, TokenGrid]:
    """Where the positions of the image lie in the outputs of layers, for images of one size.

    Given for layers that are known to be maps; those that are known to be none, by how they are computed, are refused.
    It takes one dry run for each classifier, and another one for each size of the images where layers have tokens.
    """
    for layer in filter(is_edges, layers):
        raise LayerError(f"layer {layer!r} has a number for each pair of tokens, as edges have: name a layer of tokens")
    facts = _facts(classifier, layers, inputs)
    for layer in layers:
        reason = facts.others.get(_module(layer))
        if reason is not None:
            raise LayerError(f"layer {layer!r} is no map: {reason}; layers that are maps: {_listed(list(facts.grids))}")
    return {layer: grid for layer in layers if (grid := facts.grids.get(_module(layer))) is not None}


def classifier_edges(classifier: Classifier, inputs: Tensor) -> Sequence[str]:
    """The edges of a classifier's attention, in the order of computation; one dry run for each classifier."""
    if "edges" not in classifier.known:
        classifier.known["edges"] = attention_layers(classifier.module, inputs[:1])
    edges: list[str] = classifier.known["edges"]
    return edges


def token_stream(classifier: Classifier, inputs: Tensor) -> Stream:
    """The stream of tokens of a plain transformer, empty for any other network; one dry run for each classifier."""
    if "stream" not in classifier.known and not classifier.lazy:
        run = _run(classifier.module, inputs[:1])
        passed, grids = run.passed_by_all(), run.grids()
        through = {name: grid for name, grid in grids.items() if grid.tokens and run.steps.get(name) in passed}
        edges = attention_shapes(classifier.module, inputs[:1]) if through else {}
        operations = [step.key[:2] for step in run.calls]
        classifier.known["stream"] = stream_of(through, edges, operations)
    return cast("Stream", classifier.known.get("stream", {}))


def lowest_edges(method: str, edges: Sequence[str]) -> list[str]:
    """Where a method that follows attention is read if no edges are named."""
    if not edges:
        raise LayerError(f"{method} needs attention, and this network has none: use another method")
    return [edges[0]]


def check_edges(method: str, layers: Sequence[str], edges: Sequence[str]) -> None:
    """Refuse layers that are no edges of attention."""
    for layer in set(layers).difference(edges):
        known = f"name edges of attention, such as {edges[0]}" if edges else "it has none"
        raise LayerError(f"{method} cannot be read at {layer!r} of this network: {known}")


def token_grid(classifier: Classifier, count: int, inputs: Tensor) -> TokenGrid:
    """Where the positions of the image lie among so many tokens, by the layers that have as many."""
    usual = _facts(classifier, (), inputs)
    facts = _facts(classifier, list(usual.grids), inputs)  # for images of this very size
    found = [grid for grid in facts.grids.values() if grid.tokens and grid.count == count]
    grids = {replace(grid, images=-2, channels=-2, dims=(-1,)) for grid in found}
    if len(grids) != 1:
        reason = "layers differ in their order" if grids else "no layer is known to have so many"
        raise LayerError(f"where the image lies among {count} tokens is not known: {reason}")
    return grids.pop()


def _facts(classifier: Classifier, layers: Sequence[str], inputs: Tensor) -> LayerFacts:
    known: dict[torch.Size, LayerFacts] = classifier.known.setdefault("layers", {})
    size = inputs.shape[1:]
    with _finding:
        of_others = next(iter(known.values()), None)
        if size in known or classifier.lazy:
            return known.get(size, LayerFacts({}, {}))
        if of_others is None or any((grid := of_others.grids.get(_module(layer))) and grid.tokens for layer in layers):
            run = _run(classifier.module, inputs[:1])
            known[size] = LayerFacts(run.grids(), run.others)
            if len(known) > MOST_SIZES:
                del known[next(iter(known))]
            return known[size]
        return of_others


def _module(layer: str) -> str:
    return layer.partition("#")[0]


def _listed(names: Sequence[str], most: int = 8) -> str:
    """Names, evenly chosen where there are many."""
    step = max(1, -(-len(names) // most))
    return ", ".join(names[::-1][::step][::-1])


def layer_pair(module: nn.Module, inputs: Tensor) -> tuple[str, ...]:
    """The last map, which knows what things are, and the default layer, which knows where they end, if they differ.

    In a network that is read at a class token the last map hardly counts: there it is the default layer alone.
    """
    run, default = _run(module, inputs), default_layer(module, inputs)
    unread = ignored(run.module, inputs, run.grids())
    return tuple(dict.fromkeys([default if unread else top_layer(module, inputs), default]))


def passes_everything(network: nn.Module, inputs: Tensor, layer: str) -> bool:
    """Whether the output depends on the inputs only through what that layer computes last, which is what is read."""
    required = [parameter for parameter in network.parameters() if parameter.requires_grad]
    answers: list[Tensor] = []

    def cut(_module: nn.Module, _inputs: object, answer: Tensor) -> Tensor:
        answers.append(answer.detach().requires_grad_())
        return answers[-1].clone()  # what follows may work in place

    hook = network.get_submodule(layer).register_forward_hook(cut)
    try:
        network.requires_grad_(False)
        with hook, torch.enable_grad():
            image = inputs.clone().requires_grad_()
            output = main_output(network(image))
            others = torch.autograd.grad(output.sum(), [image, *answers[:-1]], allow_unused=True)
        return all(gradient is None for gradient in others)
    finally:
        for parameter in required:
            parameter.requires_grad_()


def _preferred_stride(layers: list[SpatialLayer], side: int) -> float:
    most = min(USUAL_STRIDE, side / MIN_SIDE) * NEARLY
    fine = max((layer.stride for layer in layers if layer.stride <= most), default=0.0)
    coarser = [layer.stride for layer in layers if layer.stride > most]
    worth_it = [stride for stride in coarser if stride * MIN_SIDE <= side * NEARLY] if fine else coarser
    return min(worth_it) if fine * NEARLY < LEAST_STRIDE and worth_it else fine


@dataclass(frozen=True)
class _Run:
    """The record of one run."""

    module: nn.Module
    found: list[SpatialLayer | str]  # in the order of their (last) ends: maps, and names of modules with weights
    calls: list[Step]  # all that computed activations
    steps: dict[str, Step | None]  # the call that computed each layer's output
    output: Step | None  # the call that computed the network's output
    others: dict[str, str]  # the layers with four dimensions that are no maps, with the reason

    @property
    def weights(self) -> list[int]:  # the places in ``found`` of the modules with weights
        return [k for k, found in enumerate(self.found) if isinstance(found, str)]

    def maps_below(self, end: int | None = None) -> list[SpatialLayer]:
        """The maps of several positions before a place in ``found``."""
        maps = [found for found in self.found[:end] if isinstance(found, SpatialLayer)]
        return [found for found in maps if found.name and found.height * found.width > 1]

    def grids(self) -> dict[str, TokenGrid]:
        """Where the positions lie in the outputs of all maps."""
        return {layer.name: layer.grid for layer in self.maps_below() if layer.grid is not None}

    def contrastable(self) -> list[SpatialLayer]:
        """The maps below the last weights, and below those under them where they are applied at each position."""
        last = self.weights[-1:]
        pointwise = any(self.found[k] == layer.name for k in last for layer in self.maps_below())
        below = [self.maps_below(k) for k in (self.weights[-2:] if pointwise else last)]
        return next(filter(None, below), [])

    def passed_by_all(self) -> set[Step]:
        """The calls on every path from the image to the output."""
        order = {step: k for k, step in enumerate(self.calls)}
        last_reader: dict[Step, int] = {}
        needed = {self.output}
        for step in reversed(self.calls):
            if step in needed:
                for maker, _ in step.inputs:
                    if maker is not None:
                        needed.add(maker)
                        last_reader.setdefault(maker, order[step])
        passed, open_until = set(), 0
        for k, step in enumerate(self.calls):
            if step in needed:
                if open_until <= k:  # nothing computed earlier is read later
                    passed.add(step)
                open_until = max(open_until, last_reader.get(step, 0))
        return passed


def _run(module: nn.Module, inputs: Tensor) -> _Run:
    module = plain_modules(module)[0]
    seen: dict[tuple[str, str], SpatialLayer | str] = {}
    steps: dict[str, Step | None] = {}
    others: dict[str, str] = {}

    def note(name: str, child: nn.Module, _arguments: Any, answer: Any) -> None:
        if any(weight.dim() > 1 for weight in child.parameters(recurse=False)):
            seen.pop((name, "weights"), None)
            seen[name, "weights"] = name
        if isinstance(answer, Tensor) and answer.dim() in {3, 4}:
            grid = grid_of(view_of(answer), answer, len(inputs))
            pooled = answer.dim() == 4 and len(answer) == len(inputs) and answer.shape[2:].numel() == 1
            if grid or pooled:
                seen.pop((name, "map"), None)
                seen[name, "map"] = _layer(name, child, answer, grid, inputs)
                steps[name] = step_of(answer)
            elif reason := _no_map_because(answer, len(inputs)):
                others[name] = reason

    with ExitStack() as hooks, as_found(list(module.modules())), torch.no_grad(), Receptive(inputs) as receptive:
        for name, child in module.named_modules():
            hooks.enter_context(child.register_forward_hook(partial(heard_in, get_ident(), note, name)))
        with Recording(module, receptive.pictures) as recording:
            answer = module(receptive.pictures)
    last = next(map(step_of, tensors_in(answer)), None)
    return _Run(module, list(seen.values()), recording.steps, steps, last, others)


def _layer(name: str, child: nn.Module, answer: Tensor, grid: TokenGrid | None, inputs: Tensor) -> SpatialLayer:
    view = view_of(answer)
    stride = float(view[0].stride) if view else float(inputs.shape[-2])
    fields = [side.field for side in view or () if side.field is not None]
    channels, height, width = (
        answer.shape[1:] if grid is None else (answer.shape[grid.channels], grid.height, grid.width)
    )
    receptive_field = max(fields) if len(fields) == 2 else None
    return SpatialLayer(name, type(child).__name__, channels, height, width, stride, receptive_field, grid)


def _no_map_because(answer: Tensor, images: int) -> str:
    """Why a tensor of three or four dimensions is no map; empty where that is unknown."""
    shape, view = tuple(answer.shape), view_of(answer)
    if isinstance(view, Pairs):
        return f"its output {shape} has a number for each pair of positions, as the weights of an attention"
    if view:
        return f"the positions of its output {shape} are not in order, one by one, for each image"
    if answer.dim() == 3:
        return f"which positions of the image lie where in its output {shape} is not known"
    return f"its output {shape} is not one tensor for each image" if len(answer) != images else ""


# Candidates for a layer sweep.


def candidate_layers(module: nn.Module, inputs: Tensor, most: int = 12) -> list[SpatialLayer]:
    """The ends of a network's blocks below its last weights, in the order of computation, ``most`` at most."""
    run = _run(module, inputs)
    unread = ignored(run.module, inputs, run.grids())
    seen = {layer.name: layer for layer in run.maps_below() if layer.name not in unread}
    by_all = run.passed_by_all()
    passed = {name for name, step in run.steps.items() if step in by_all}
    names = set(_block_names(module, seen, passed))
    steps = [layer for name, layer in seen.items() if name in names and not layer.kind.startswith(UNCHANGING)]
    steps = _without_halves(module, steps)
    blocks = [seen[_shortest_name(module, step.name, steps)] for step in steps]
    blocks = _below_the_weights(module, inputs, blocks)
    if not blocks:
        raise LayerError("no layer below the classifier's weights has places to show: name the layers to try")
    # of too many, the last one of each resolution is kept, and the others from the top down
    ends = [layer for layer, behind in pairwise(blocks) if behind.stride > NEARLY * layer.stride] + [blocks[-1]]
    others = [layer for layer in reversed(blocks) if layer not in ends][: max(most - len(ends), 0)]
    return [layer for layer in blocks if layer in ends or layer in others]


def _block_names(parent: nn.Module, seen: dict[str, SpatialLayer], passed: set[str], prefix: str = "") -> Iterator[str]:
    """The blocks of a network, not the branches inside a block: by the maps, and those the whole signal passes."""
    for child_name, child in parent.named_children():
        name = prefix + child_name
        if isinstance(child, nn.Sequential | nn.ModuleList) or _is_network(child, name, seen, passed):
            yield from _block_names(child, seen, passed, name + ".")
        elif name in seen:
            yield name


def _is_network(module: nn.Module, name: str, seen: dict[str, SpatialLayer], passed: set[str]) -> bool:
    """Whether a module is a network of blocks: it has several resolutions, or a list of blocks of tokens."""
    inside = [layer for layer in seen.values() if layer.name.startswith(name + ".")]
    if any(layer.tokens for layer in inside):
        members = [[f"{name}.{member}" for member in chain] for chain in chains(module)]
        return any(sum(member in passed for member in each) > 1 for each in members)
    strides = [layer.stride for layer in inside]
    return bool(strides) and max(strides) > 2 * NEARLY * min(strides)


def _without_halves(module: nn.Module, steps: Sequence[SpatialLayer]) -> list[SpatialLayer]:
    """Leave out layers that the next one only normalises or clips: a convolution before its ReLU."""

    def finishes(step: SpatialLayer, before: SpatialLayer) -> bool:
        has_weights = any(weight.dim() > 1 for weight in module.get_submodule(step.name).parameters())
        shapes = {(layer.channels, layer.height, layer.width) for layer in (step, before)}
        return not has_weights and len(shapes) == 1

    return [*(step for step, behind in pairwise(steps) if not finishes(behind, step)), *steps[-1:]]


def _shortest_name(module: nn.Module, name: str, steps: Sequence[SpatialLayer]) -> str:
    """The name of the chain (convolution, norm, ReLU) of which only the last layer is left."""
    parent, _, child = name.rpartition(".")
    siblings = [step for step in steps if step.name.startswith(parent + ".")]
    chain = module.get_submodule(parent)
    is_last = isinstance(chain, nn.Sequential) and child == [name for name, _ in chain.named_children()][-1]
    return parent if parent and is_last and len(siblings) == 1 else name


def _below_the_weights(module: nn.Module, inputs: Tensor, layers: list[SpatialLayer]) -> list[SpatialLayer]:
    """Leave out the top layers above the last weights, which have no dual."""
    while layers:
        sweep = ExcitationPass(module, inputs, [layers[-1].name])
        try:
            sweep.down(prior(sweep.output, {0: 1.0}), dual=-1.0)
        except SignalError:
            layers = layers[:-1]
        else:
            break
    return layers


def outline(classifier: Classifier) -> tuple[list[SpatialLayer], tuple[str, ...]]:
    """All layers that can be read as maps, for a square image, and the recommended ones, best first."""
    inputs = classifier.prepared(Image.new("RGB", (256, 256)))[None]
    layers = spatial_layers(classifier.module, inputs)
    layers = [layer for layer in layers if not (layer.tokens and layer.kind.startswith(UNCHANGING))]
    return layers, classifier.layers or (classifier.layer or default_layer(classifier.module, inputs),)
