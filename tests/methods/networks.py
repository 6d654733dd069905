"""Small networks for the tests of methods, their images, and how methods are asked about them."""

import torch
from torch import nn

import excite
from excite.methods import METHODS
from excite.methods.excitation import LARGER
from excite.session import Session

CLASSES = 5


class Pooled(nn.Module):
    """Ends in average pooling and one linear layer: what CAM needs. Every ReLU a module used once, for captum."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 6, 3, padding=1), nn.ReLU())
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.fc(self.pool(self.features(x)).flatten(1))


class Connected(Pooled):
    """The same features below two full connections."""

    def __init__(self):
        super().__init__()
        self.pool, self.fc = None, nn.Sequential(nn.Linear(6 * 35, 16), nn.ReLU(), nn.Linear(16, CLASSES))

    def forward(self, x):
        return self.fc(self.features(x).flatten(1))


class Staged(nn.Module):
    """Two maps of different size, and their mean below one linear layer."""

    def __init__(self):
        super().__init__()
        self.fine = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU())
        self.coarse = nn.Sequential(nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.ReLU())
        self.output = nn.Linear(8, 4)

    def forward(self, pictures):
        return self.output(self.coarse(self.fine(pictures)).mean((2, 3)))


def made(kind, seed=0):
    """A network with weights and biases that matter, always the same."""
    network, generator = kind().double().eval(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return network


def pictures(count=2):
    return torch.rand(count, 3, 10, 14, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def session(network, x, layers):
    """A session of these images, for each method the layers at which it is read."""
    return Session(excite.wrap(network), {1.0: x, LARGER: x}, list(layers), layer=layers)


def one_signal(session, method, units):
    """The maps [images, h, w] at each layer, the same signal for all images."""
    found = session.maps(method, [[units] * len(session.inputs[1.0])])
    return {layer: values[0] for layer, values in found.items()}


def maps(network, x, name, layer="features.4", unit=2, weight=1.0):
    """The map of one method at one layer."""
    method = METHODS[name]
    return one_signal(session(network, x, {method: [layer]}), method, {unit: weight})[layer]
