"""What the functions of ``import excite`` answer, as plain JSON."""

import numpy as np
import torch
from PIL import Image
from skimage import data
from snapshot_capture import array_facts, picture_facts
from torch import nn

import excite

__all__ = ["python_answers"]


def network():
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(6, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)]
    return nn.Sequential(*layers).eval()


def map_facts(found):
    return {**found.to_dict(), "units": list(found.units), "values": array_facts(found.numpy())}


def drawn_facts(found):
    size = {"upsampled": array_facts(np.asarray(found.upsample())), "overlay": picture_facts(found.overlay(point=True))}
    return {**size, "point": found.point(), "box": found.box(alpha=2)}


def python_answers():
    """By name of the function."""
    cat = Image.fromarray(data.chelsea()).resize((120, 80))
    mine = excite.wrap(network(), labels=["a", "b", "c", ["d", "dd"]], name="mine", layer="3")
    everyday = excite.load("everyday", size=160)
    return {
        "names": sorted(excite.__all__),
        "METHODS": list(excite.METHODS),
        "MODELS": list(excite.MODELS),
        **_asked(mine, cat),
        **_drawn(mine, cat),
        **_located(everyday, cat),
        **_mechanism(),
        "refused": [_refused(mine, cat, **wrong) for wrong in WRONG],
    }


WRONG = (
    {"concepts": "nothing"},
    {"concepts": 17},
    {"layer": "nowhere"},
    {"method": "nothing"},
    {"concepts": "a", "against": "nothing"},
    {"image": "missing.png"},
)


def _asked(mine, cat):
    methods = {
        method: [map_facts(each) for each in excite.attend(mine, cat, ["a", "dd"], method=method)]
        for method in ("c-mwp", "mwp", "grad", "lrp", "deconv", "grad-cam", "center")
    }
    several = excite.attend(mine, cat, 1, layer=["2", "5"], against="c")
    batch = excite.attend_batch(mine, [cat, cat.transpose(Image.Transpose.FLIP_LEFT_RIGHT)], "b")
    memory = excite.SessionCache(mine)
    return {
        "attend": methods,
        "attend layers": [map_facts(each) for each in several],
        "attend best": [map_facts(each) for each in excite.attend(mine, cat)],
        "attend_batch": [[map_facts(each) for each in maps] for maps in batch],
        "Memory": [map_facts(each) for each in memory.attend(cat, ["a"])],
    }


def _drawn(mine, cat):
    maps = excite.attend(mine, cat, ["a", "b"])
    return {
        "AttentionMap": drawn_facts(maps[0]),
        "compare": picture_facts(excite.compare(maps, point=True, box=True, cell_width=100)),
    }


def _located(everyday, cat):
    located = excite.locate(everyday, cat, ["cat", "dog"])
    grounded = excite.ground(everyday, cat, ["the cat on the left"], most=3, side=160)
    return {
        "locate": [{"concept": each.concept, "probability": each.probability, "box": each.box} for each in located],
        "ground": [
            {"phrase": each.phrase, "regions": [[list(map(float, one.box)), one.score] for one in each.regions]}
            for each in grounded
        ],
    }


def _mechanism():
    net, inputs = network(), torch.rand(1, 3, 12, 12, generator=torch.Generator().manual_seed(1))
    maps = excite.mwp(net, inputs, {1: 0.5, 2: 0.5}, layer=["2", "5"], contrastive=True)
    winners = excite.winner_take_all(net, inputs, 2, layers=["2", "5"])
    return {
        "mwp": {name: array_facts(each.numpy()) for name, each in maps.items()},
        "winner_take_all": {name: array_facts(each.double().numpy()) for name, each in winners.items()},
        "transition_matrix": array_facts(excite.transition_matrix(net, inputs, "7", "5").numpy()),
    }


def _refused(mine, cat, image=None, concepts="a", **more):
    try:
        excite.attend(mine, image or cat, concepts, **more)
    except excite.ExciteError as error:
        return f"{type(error).__name__}: {error}"
    return "not refused"
