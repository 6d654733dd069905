"""Rows about what else a package offers, also what excite does not."""

from __future__ import annotations

import inspect
import operator
from typing import TYPE_CHECKING, Any

import torch
from peers.asking import one_hot, part
from peers.cells import Row, attempt, yes
from peers.declared import declares
from peers.networks import Called, made, picture
from torch import Tensor, nn

from excite.methods import METHODS
from excite.models import wrap
from excite.models.sources import torchvision_models
from excite.propagation import Gradients
from excite.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from peers.asking import Peer

__all__ = ["ROWS"]

UNIT = 1
OURS = {  # excite's baselines, by the names that packages give them
    "grad": r"^(saliency|gradient|grad)$",
    "deconv": r"^deconv",
    "guided": r"^guided_?backprop",
    "lrp": r"^(lrp|EpsilonPlus)$",
    "cam": r"^cam$",
    "grad-cam": r"^(layer)?grad_?cam$",
}
OTHERS = {
    "integrated gradients": r"^integrated_?gradients$",
    "SHAP": r"shap$",
    "LIME": r"^lime$",
    "occlusion": r"^occlusion$",
    "RISE": r"^rise$",
    "extremal perturbation": r"^extremal_perturbation$",
    "Score-CAM": r"^score_?cam$",
    "Ablation-CAM": r"^ablation_?cam$",
}


def baselines(peer: Peer) -> str:
    """Which of excite's baselines it has."""
    had = [
        name for name, names in OURS.items() if (name in METHODS if peer.name == "excite" else declares(peer, names))
    ]
    return "all" if len(had) == len(OURS) else ", ".join(had)


def others(peer: Peer) -> str:
    """Which methods it has that look at changed images."""
    return ", ".join(name for name, names in OTHERS.items() if declares(peer, names)) or "none"


def rules(peer: Peer) -> str:
    """How many rules of relevance propagation it has."""
    if peer.name == "excite":
        return str(sum(name.startswith("lrp") for name in METHODS))
    places = {"captum": ("captum.attr._utils.lrp_rules", "PropagationRule"), "zennit": ("zennit.rules", "BasicHook")}
    return str(_kinds(*places[peer.name])) if peer.name in places else "0"


def cams(peer: Peer) -> str:
    """How many class activation maps it has."""
    if peer.name == "excite":
        return str(sum(name in {"cam", "grad-cam"} for name in METHODS))
    if peer.name == "grad-cam":
        return str(_kinds("pytorch_grad_cam", "base_cam.BaseCAM"))
    return str(len(declares(peer, r"cam$")))


def _kinds(place: str, parent: str) -> int:
    """How many classes a module has that are made from another."""
    base = operator.attrgetter(parent)(part(place))
    found = inspect.getmembers(part(place), inspect.isclass)
    return sum(issubclass(kind, base) and kind is not base for _, kind in found)


def guided(peer: Peer) -> str:
    """Guided backprop of a network that calls its ReLUs as functions, beside the definition."""
    network, shown = made(Called()), picture()
    expected, plain = _down(network, shown, Guided.apply), _down(network, shown, torch.relu)
    asks: dict[str, Callable[[], Any]] = {
        "excite": lambda: _excite_guided(network, shown),
        "captum": lambda: part("captum.attr").GuidedBackprop(network).attribute(shown.clone(), target=UNIT),
        "zennit": lambda: part("zennit.attribution").Gradient(network, part("zennit.composites").GuidedBackprop())(
            shown.clone(), lambda output: one_hot(output, UNIT)
        )[1],
        "TorchRay": lambda: part("torchray.attribution.guided_backprop").guided_backprop(
            network, shown.clone().requires_grad_(), UNIT, gradient_to_saliency=lambda layer: layer.grad
        ),
        "grad-cam": lambda: torch.from_numpy(
            part("pytorch_grad_cam").GuidedBackpropReLUModel(network)(shown.clone(), UNIT)
        ).permute(2, 0, 1)[None],
    }
    found = asks[peer.name]().detach()
    if torch.allclose(found, expected):
        return "yes"
    return "no: plain gradient" if torch.allclose(found, plain) else "no"


def _excite_guided(network: nn.Module, shown: Tensor) -> Tensor:
    gradients = Gradients(network, shown, ["input"])
    return gradients.down(one_hot(gradients.output, UNIT), "guided")["input"]


class Guided(torch.autograd.Function):
    """A ReLU that hands positive signals down where it was active (Springenberg et al. 2015)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The ReLU."""
        ctx.save_for_backward(x)
        return x.relu()

    @staticmethod
    def backward(ctx: Any, signal: Tensor) -> Tensor:
        """The rule."""
        return signal.clamp(min=0) * (ctx.saved_tensors[0] > 0)


def _down(network: Called, shown: Tensor, relu: Callable[[Tensor], Tensor]) -> Tensor:
    """The gradient of an output unit to the image, with a ReLU of one's own."""
    entered = shown.clone().requires_grad_()
    features = network.pool(relu(network.second(relu(network.first(entered)))))
    output = network.classifier(relu(network.hidden(features.flatten(1))))
    return torch.autograd.grad(output[0, UNIT], entered)[0]


def transformer(peer: Peer) -> str:
    """Whether its Grad-CAM gives a map [height, width] of the tokens of a vision transformer."""
    torch.manual_seed(0)
    network = torchvision_models().VisionTransformer(32, 8, 1, 2, 16, 32, num_classes=5).double().eval()
    nn.init.normal_(network.heads.head.weight)
    shown, name = picture(32), "encoder.layers.encoder_layer_0.ln_1"
    layer = network.get_submodule(name)
    asks: dict[str, Callable[[], Any]] = {
        "excite": lambda: Session(wrap(network), {1.0: shown}, [METHODS["grad-cam"]], layer=name).maps(
            METHODS["grad-cam"], [[{UNIT: 1.0}]]
        )[name],
        "captum": lambda: part("captum.attr").LayerGradCam(network, layer).attribute(shown, target=UNIT),
        "TorchRay": lambda: part("torchray.attribution.grad_cam").grad_cam(network, shown, UNIT, name),
        "grad-cam": lambda: _tokens_as_map(network, layer, shown),
    }
    if peer.name not in asks:
        return "no"

    def ask() -> str:
        found = asks[peer.name]()
        return yes(found.ndim >= 3 and min(found.shape[-2:]) > 1)

    return "no" if attempt(ask) != "yes" else "yes"


def _tokens_as_map(network: nn.Module, layer: nn.Module, shown: Tensor) -> Any:
    package = part("pytorch_grad_cam")
    shape = part("pytorch_grad_cam.utils.reshape_transforms").vit_reshape_transform
    with package.GradCAM(network, [layer], reshape_transform=lambda tokens: shape(tokens, 4, 4)) as method:
        return method(input_tensor=shown, targets=[lambda output: output[UNIT]])


ROWS = (
    Row("our baselines: grad, deconv, guided, lrp, cam, grad-cam", baselines),
    Row("guided backprop sees `F.relu`", guided),
    Row("integrating or perturbing", others),
    Row("rules of LRP; class activation maps", lambda peer: f"{rules(peer)}; {cams(peer)}"),
    Row("Grad-CAM of a vision transformer", transformer, quick=False),
    Row("text and language models", lambda peer: yes(declares(peer, r"^llm|text.*input$"))),
)
