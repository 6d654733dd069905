"""The winning probability of every neuron of a network of your own: no surgery, no training."""

import torch
from torch import nn

import excite

network = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
).eval()  # fmt: skip
images = torch.rand(2, 3, 32, 32)

probability = excite.mwp(network, images, 7, layer="2")  # one class for all images
print("neurons of layer 2:", tuple(probability.shape), "sum for each image:", probability.sum((1, 2, 3)))

contrast = excite.mwp(network, images, {7: 1.0, 3: -1.0}, layer="2")  # "seven, not three", in one pass
print("seven, not three, sums to", contrast.sum((1, 2, 3)))

walks = excite.sample_winners(network, images[:1], 7, layers=["5", "2"], count=500)
print("a winner's path:", walks.paths["5"][0], "->", walks.paths["2"][0])
