"""A classifier with what is needed to ask it: how it takes pictures, and what its outputs mean."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from excite.errors import ModelError
from excite.models.preprocess import Preprocess
from excite.vocabulary import Labels

__all__ = ["Classifier"]


@dataclass(frozen=True, eq=False, repr=False)
class Classifier:
    """A network and the facts about it that its own code does not tell.

    Attributes:
        module: Gives logits [N, C], or [N, C, H, W] when it answers for each place.
        preprocess: Makes of a picture in mode RGB what the module takes, [3, H, W].
        labels: The words of its outputs; None when nobody gave any, see ``labels_for``.
        name: For people to read.
        layer: The layer to read when none is asked for; None when nobody knows a good one.
        multilabel: Several outputs may be true at once: sigmoid instead of softmax. A range: of these outputs, while
            of all others exactly one is true.
        layers: Layers worth reading, best first.
        extent: The layers that the method ``extent`` reads, such as "layer4.1+layer3"; empty: a dry run tells.
    """

    module: nn.Module
    preprocess: Callable[[Image.Image], Tensor]
    labels: Labels | None
    name: str
    layer: str | None
    multilabel: bool | range = False
    layers: tuple[str, ...] = ()
    extent: str = ""

    def __repr__(self) -> str:
        words = "no labels" if self.labels is None else f"{len(self.labels)} labels"
        return f"Classifier({self.name!r}, {type(self.module).__name__}, {words}, layer {self.layer!r})"

    def prepared(self, picture: Image.Image, scale: float = 1.0) -> Tensor:
        """The picture as the module takes it, [3, H, W]; at another scale, larger or smaller than usual.

        A preparation of one's own knows one size only: what it gives is stretched.
        """
        if scale == 1:
            return self.preprocess(picture)
        if isinstance(self.preprocess, Preprocess):
            return self.preprocess.scaled(scale)(picture)
        usual = self.preprocess(picture)[None]
        height, width = (max(1, int(side * scale)) for side in usual.shape[-2:])
        return functional.interpolate(usual, (height, width), mode="bicubic", antialias=True)[0]

    def probabilities(self, logits: Tensor) -> Tensor:
        """Probabilities [N, C] of the module's logits.

        Logits for each place are averaged over the places first. That is what a network ending in average
        pooling does: pooling before or after its last linear layer is the same, so it gives the same answer
        in both forms. The average of probabilities would not.
        """
        if logits.dim() not in {2, 4}:
            raise ModelError(
                f"{self.name} gave an output of shape {list(logits.shape)}: it must give logits [N, C] or [N, C, H, W]."
            )
        flat = logits.mean(dim=(2, 3)) if logits.dim() == 4 else logits
        independent = self._independent(flat.shape[1]).to(flat.device)
        return torch.where(independent, flat.sigmoid(), flat.masked_fill(independent, -torch.inf).softmax(dim=1))

    def chance(self, probabilities: Tensor, units: Sequence[int]) -> float:
        """How probable it is that any of these outputs is true, given the probabilities [C] of all.

        Those that exclude each other add up; of the others it is at least the greatest.

        Example:
            >>> mixed = excite.wrap(nn.Identity(), multilabel=range(2, 4))
            >>> mixed.chance(torch.tensor([0.25, 0.5, 0.125, 0.375]), [0, 1, 2])
            0.75
        """
        wanted, independent = probabilities[list(units)].cpu(), self._independent(len(probabilities))[list(units)]
        return float(torch.cat([wanted[independent], wanted[~independent].sum()[None]]).max())

    def _independent(self, outputs: int) -> Tensor:
        """For each output whether it may be true beside any other."""
        if isinstance(self.multilabel, bool):
            return torch.full((outputs,), self.multilabel)
        return torch.tensor([unit in self.multilabel for unit in range(outputs)])

    def labels_for(self, outputs: int) -> Labels:
        """The labels of a module seen to have this many outputs; numbers when there are no words."""
        if self.labels is None:
            return Labels.numbered(outputs)
        if len(self.labels) != outputs:
            raise ModelError(f"{self.name} has {outputs} outputs but {len(self.labels)} labels: give one for each.")
        return self.labels
