"""The smallest architectures of every family of torchvision and timm, and their random weights."""

from __future__ import annotations

import logging
import math
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from excite.errors import ModelError
from excite.models.sources import IMAGENET, timm_models, torchvision_models

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


SOURCES = ("torchvision", "timm")

# A family a line, named by its paper for torchvision and by its module for timm.
TORCHVISION = """
AlexNet         alexnet
VGG             vgg11 vgg11_bn
SqueezeNet      squeezenet1_0 squeezenet1_1
GoogLeNet       googlenet
Inception       inception_v3
ResNet          resnet18 resnet50
ResNeXt         resnext50_32x4d
WideResNet      wide_resnet50_2
DenseNet        densenet121
MobileNetV2     mobilenet_v2
MobileNetV3     mobilenet_v3_small mobilenet_v3_large
MNASNet         mnasnet0_5
ShuffleNetV2    shufflenet_v2_x0_5
EfficientNet    efficientnet_b0
EfficientNetV2  efficientnet_v2_s
RegNet          regnet_x_400mf regnet_y_400mf
ConvNeXt        convnext_tiny
Swin            swin_t
SwinV2          swin_v2_t
MaxViT          maxvit_t
ViT             vit_b_32
"""

TIMM = """
beit                       beit_base_patch16_224
byoanet                    botnet26t_256 halonet26t lambda_resnet26t sebotnet33ts_256 haloregnetz_b
byobnet                    bat_resnext26ts eca_resnext26ts gcresnext26ts gernet_s mobileone_s0 regnetz_b16
byobnet                    regnetz_b16_evos repvgg_a0 resnet50_clip resnet50_clip_gap resnet50_mlp resnet51q
byobnet                    resnext26ts seresnext26ts test_byobnet
cait                       cait_xxs24_224
coat                       coat_lite_tiny coat_tiny
convit                     convit_tiny
convmixer                  convmixer_768_32
convnext                   convnext_atto convnext_atto_rms convnext_zepto_rms convnextv2_atto test_convnext
cpubone                    cpubone_nano cpubone_b1_dwnorm
crossvit                   crossvit_9_240
csatv2                     csatv2
cspnet                     cs3darknet_focus_s cs3sedarknet_xdw cspdarknet53 cspresnet50 cspresnext50 darknetaa53
davit                      davit_tiny
deepseek_vit               deepseek_vit_412m
deit                       deit_tiny_patch16_224 deit_tiny_distilled_patch16_224
densenet                   densenet121 densenetblur121d
dla                        dla34 dla46_c dla60_res2net
dpn                        dpn48b dpn68b
edgenext                   edgenext_xx_small
efficientformer            efficientformer_l1
efficientformer_v2         efficientformerv2_s0
efficientnet               efficientnet_b0 efficientnet_b0_g8_gn efficientnet_b0_g16_evos efficientnet_b0_gn
efficientnet               efficientnet_blur_b0 efficientnet_cc_b0_4e efficientnet_lite0 efficientnetv2_rw_t
efficientnet               fbnetc_100 mixnet_s mnasnet_050 mobilenet_edgetpu_100 mobilenetv1_100 mobilenetv2_035
efficientnet               mobilenetv2_110d semnasnet_050 test_efficientnet test_efficientnet_evos
efficientnet               test_efficientnet_gn test_efficientnet_ln tf_efficientnet_b0 tf_efficientnet_lite0
efficientnet               tf_efficientnetv2_b0 tinynet_e
efficientvim               efficientvim_m1
efficientvit_mit           efficientvit_b0
efficientvit_msra          efficientvit_m0
eva                        eva02_tiny_patch14_224 vit_small_patch16_rope_224 vit_tiny_patch16_dinov3_qkvb
fasternet                  fasternet_t0
fastvit                    fastvit_t8 fastvit_sa12
focalnet                   focalnet_tiny_srf
gcvit                      gcvit_xxtiny
gemma4_vit                 gemma4_vit_167m
ghostnet                   ghostnet_050 ghostnetv2_100 ghostnetv3_050
hardcorenas                hardcorenas_a
hgnet                      hgnetv2_b0
hiera                      hiera_tiny_224
hieradet_sam2              hieradet_small
hrnet                      hrnet_w18_small
iformer                    iformer_t
inception_next             inception_next_atto
inception_resnet_v2        inception_resnet_v2
inception_v3               inception_v3
inception_v4               inception_v4
lcnetv2                    lcnetv2_small
levit                      levit_128s
lowformer                  lowformer_b0
mambaout                   mambaout_femto test_mambaout
maxxvit                    coatnet_pico_rw_224 coatnet_bn_0_rw_224 maxvit_pico_rw_256
metaformer                 caformer_s18 convformer_s18 poolformer_s12 poolformerv2_s12
mlp_mixer                  gmlp_ti16_224 mixer_s32_224 resmlp_12_224
mobilenetv3                lcnet_035 mobilenetv3_small_050 mobilenetv3_rw mobilenetv4_conv_small_035
mobilenetv3                mobilenetv4_conv_aa_medium mobilenetv4_hybrid_medium_075 tf_mobilenetv3_small_minimal_100
mobilenetv3                tf_mobilenetv3_small_075
mobilenetv5                mobilenetv5_base
mobilevit                  mobilevit_xxs mobilevitv2_050
mvitv2                     mvitv2_tiny
naflexvit                  naflexvit_base_patch16_gap
nasnet                     nasnetalarge
nest                       nest_tiny
nextvit                    nextvit_small
nfnet                      dm_nfnet_f0 eca_nfnet_l0 nfnet_l0 nf_ecaresnet26 nf_regnet_b0 nf_resnet26 nf_seresnet26
nfnet                      test_nfnet
pit                        pit_ti_224
pnasnet                    pnasnet5large
pvt_v2                     pvt_v2_b0
qwen3_vit                  qwen3_vit_88m
rdnet                      rdnet_tiny
regnet                     regnetx_002 regnety_002 regnety_040_sgn regnetz_005
repghost                   repghostnet_050
repvit                     repvit_m0_9 repvit_m1
res2net                    res2net50_48w_2s res2net50d res2next50
resnest                    resnest14d
resnet                     ecaresnet26t ecaresnetlight resnet10t resnet18 resnet50_gn resnetaa34d resnetblur18
resnet                     resnetrs50 seresnet18 seresnetaa50d seresnext26d_32x4d test_resnet
resnetv2                   resnetv2_18 resnetv2_18d resnetv2_50t resnetv2_50d_evos resnetv2_50d_frn resnetv2_50d_gn
resnetv2                   resnetv2_50x1_bit
rexnet                     rexnet_100 rexnetr_100
selecsls                   selecsls42b selecsls60
senet                      legacy_seresnet18 legacy_seresnext26_32x4d
sequencer                  sequencer2d_s
shvit                      shvit_s1
sknet                      skresnet18
starnet                    starnet_s050
swiftformer                swiftformer_xs
swin_transformer           swin_tiny_patch4_window7_224
swin_transformer_v2        swinv2_tiny_window8_256
swin_transformer_v2_cr     swinv2_cr_tiny_224
tiny_vit                   tiny_vit_5m_224
tnt                        tnt_s_patch16_224
tresnet                    tresnet_m
twins                      twins_pcpvt_small twins_svt_small
vgg                        vgg11_bn
visformer                  visformer_tiny
vision_transformer         vit_tiny_patch16_224
vision_transformer_hybrid  vit_tiny_r_s16_p8_224
vision_transformer_relpos  vit_relpos_small_patch16_224
vision_transformer_sam     samvit_base_patch16_224
vitamin                    vitamin_small_224
volo                       volo_d1_224
vovnet                     eca_vovnet39b ese_vovnet19b_dw ese_vovnet19b_slim ese_vovnet39b_evos vovnet39a
xception                   legacy_xception
xception_aligned           xception41p
xcit                       xcit_nano_12_p16_224
"""

# Options for networks without a small variant: fewer or narrower blocks.
SMALLER: dict[str, dict[str, Any]] = {
    "beit_base_patch16_224": {"depth": 2},
    "deepseek_vit_412m": {"depth": 1},
    "gemma4_vit_167m": {"depth": 1},
    "naflexvit_base_patch16_gap": {"depth": 2},
    "nasnetalarge": {"num_features": 1056, "stem_size": 32},
    "qwen3_vit_88m": {"depth": 1},
    "samvit_base_patch16_224": {"depth": 2},
}

SIZES = (64, 96, 128, 224, 256)  # of the image, tried from the smallest on

SHIFTS = ("bias", "beta", "tau", "pos_embed")  # names of parameters that are added to a response
NEGATIVE = 1 / 3  # of the scales
BIAS = 0.2  # relative to a response

_BatchNorm = nn.modules.batchnorm._BatchNorm  # noqa: SLF001 - the base class has no public name
_Convolution = nn.modules.conv._ConvNd  # noqa: SLF001 - likewise


@dataclass(frozen=True)
class Architecture:
    """A classifier of a package: the package, the family, and its name there."""

    source: str
    family: str
    name: str

    def build(self) -> nn.Module:
        """The network with its initial weights, in evaluation mode."""
        package = timm_models() if self.source == "timm" else torchvision_models()
        with _quiet():
            if self.source == "timm":
                network = package.create_model(self.name, pretrained=False, **SMALLER.get(self.name, {}))
                if network.num_classes == 0:  # made for features: without a classifier there are no dual units
                    network.reset_classifier(IMAGENET)
            else:
                options = {"init_weights": False} if self.name in {"googlenet", "inception_v3"} else {}
                network = package.get_model(self.name, weights=None, **options)
        built: nn.Module = network.eval()
        return built

    def picture(self, network: nn.Module, seed: int) -> torch.Tensor:
        """The smallest random image that the network takes, as a batch of one."""
        card = getattr(network, "pretrained_cfg", None) or {}
        usual = card.get("input_size", (3, 224, 224))[-1]
        for size in (usual,) if card.get("fixed_input_size") else (*SIZES, usual):
            picture = torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(seed))
            try:
                with torch.no_grad():
                    network(picture)
            except (
                RuntimeError,
                AssertionError,
                ValueError,
                IndexError,
            ):  # each network has its own error for "too small"
                continue
            return picture
        raise ModelError(f"{self.name} runs on none of the sizes {(*SIZES, usual)}: give it one it takes")


def architectures(source: str | None = None, family: str | None = None) -> list[Architecture]:
    """All architectures, or those of one package whose family or name contains ``family``.

    Example:
        >>> [architecture.name for architecture in architectures("torchvision", "vgg")]
        ['vgg11', 'vgg11_bn']
    """
    if source is not None and source not in SOURCES:
        raise ModelError(f"there is no package {source!r}: use one of {', '.join(SOURCES)}")
    listed = [
        Architecture(package, line.split()[0], name)
        for package, table in zip(SOURCES, (TORCHVISION, TIMM), strict=True)
        for line in table.strip().splitlines()
        for name in line.split()[1:]
    ]
    wanted = (family or "").lower()
    found = [
        architecture
        for architecture in listed
        if source in {None, architecture.source}
        and (wanted in architecture.family.lower() or wanted in architecture.name)
    ]
    if not found:
        raise ModelError(f"no family contains {family!r}: `python dev/conservation --list` lists them")
    return found


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the packages' warnings and logs, mostly about missing weights."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def randomise(module: nn.Module, inputs: Tensor, seed: int, *, biases: bool = False) -> None:
    """Overwrite a network's parameters with random weights that hide no fault.

    Weights are normal and keep the size of responses. Scales of norms, layers and branches lie between 0.5 and 1.5, a
    third of them negative. Biases, shifts and running means are 0, or random with ``biases``. Running variances are
    half to twice the power of their input in a run on ``inputs``, so that deep networks neither fade nor explode.

    Example:
        >>> network = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8)).eval()
        >>> randomise(network, torch.rand(1, 1, 6, 6), seed=0)
        >>> bool((network[1].weight < 0).any()), bool(network[1].bias.any())
        (True, False)
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for owner in module.modules():
            for name, parameter in owner.named_parameters(recurse=False):
                _draw(owner, name, parameter, generator, BIAS if biases else 0.0)
        hooks = [
            child.register_forward_pre_hook(_statistics(generator, BIAS if biases else 0.0))
            for child in module.modules()
            if isinstance(child, _BatchNorm) and child.running_var is not None
        ]
        try:
            module(inputs)
        finally:
            for hook in hooks:
                hook.remove()


def _draw(owner: nn.Module, name: str, parameter: Tensor, generator: torch.Generator, bias: float) -> None:
    if name.endswith(SHIFTS):
        parameter.copy_(bias * torch.randn(parameter.shape, generator=generator))
    elif isinstance(owner, _Convolution | nn.Linear) and name == "weight":
        size = math.sqrt(2 / parameter[0].numel())
        parameter.copy_(size * torch.randn(parameter.shape, generator=generator))
    elif isinstance(owner, nn.PReLU):
        parameter.uniform_(0, 0.5, generator=generator)
    elif parameter.numel() == 1:  # the gain of a branch
        parameter.uniform_(0.5, 1.5, generator=generator)
    elif parameter.numel() == max(parameter.shape) and "token" not in name:  # one for each channel
        parameter.uniform_(0.5, 1.5, generator=generator)
        parameter.mul_(torch.where(torch.rand(parameter.shape, generator=generator) < NEGATIVE, -1.0, 1.0))


def _statistics(generator: torch.Generator, bias: float) -> Callable[[nn.Module, Any], None]:
    def measure(norm: Any, arguments: Any) -> None:
        power = arguments[0].square().mean()
        if not 0 < power < torch.inf:
            power = torch.ones(())
        spread = torch.empty_like(norm.running_var).uniform_(0.5, 2, generator=generator)
        norm.running_var.copy_(power * spread)
        norm.running_mean.copy_(bias * power.sqrt() * torch.randn(spread.shape, generator=generator))

    return measure


def fold_norms(module: nn.Module, inputs: Tensor) -> int:
    """Fold the scale of each batch norm into the convolution before it; the number of such pairs.

    The network stays the same function (up to rounding), so its maps must stay the same too. Norms must be without
    shifts.

    Example:
        >>> network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).eval()
        >>> network[1].weight.data = torch.tensor([2.0, -3.0])
        >>> fold_norms(network, torch.rand(1, 1, 6, 6)), network[1].weight.tolist()
        (1, [1.0, 1.0])
    """
    made: dict[int, tuple[nn.Module, Tensor]] = {}  # by the tensor's id; the tensor is kept alive
    pairs: dict[nn.Module, nn.Module] = {}

    def convolved(convolution: nn.Module, _arguments: Any, answer: Tensor) -> None:
        made[id(answer)] = convolution, answer

    def normalised(norm: nn.Module, arguments: Any) -> None:
        if id(arguments[0]) in made:
            pairs[norm] = made[id(arguments[0])][0]

    hooks = [child.register_forward_hook(convolved) for child in module.modules() if isinstance(child, nn.Conv2d)]
    hooks += [
        child.register_forward_pre_hook(normalised) for child in module.modules() if isinstance(child, _BatchNorm)
    ]
    with torch.no_grad():
        try:
            module(inputs)
        finally:
            for hook in hooks:
                hook.remove()
        for norm, convolution in pairs.items():
            _fold(norm, convolution)
    return len(pairs)


def _fold(norm: Any, convolution: Any) -> None:
    scale = (norm.running_var + norm.eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight
        norm.weight.fill_(1.0)
    convolution.weight.mul_(scale.reshape(-1, 1, 1, 1))
    norm.running_var.fill_(1.0 - norm.eps)
