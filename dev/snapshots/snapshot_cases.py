"""What is frozen: command lines on tiny inputs, grouped into cases that each run in a folder of their own."""

from dataclasses import dataclass

__all__ = ["CASES", "Case"]


@dataclass(frozen=True)
class Case:
    """Commands that run one after another in a fresh folder with all inputs.

    Attributes:
        commands: what is typed behind ``excite``; words in double quotes stay together.
        masks: what differs from run to run: how the name of the file ends, and a regular expression.
        forget: folders that are not described: their keys hold when a model was trained.
        structure: leave the numbers out, for what measures time; in JSON whole numbers stay,
        exact: and what these keys hold.
    """

    commands: tuple[str, ...]
    masks: tuple[tuple[str, str], ...] = ()
    forget: tuple[str, ...] = ()
    structure: bool = False
    exact: tuple[str, ...] = ()


def case(*commands, **more):
    return Case(commands, **more)


MODELS = "--model colours"
WEIGHTS_KEY = ("", r"^[0-9a-f]{64}$")  # hashes trained weights, whose last bits depend on the processor
CODE_KEY = ("", r"^[0-9a-f]{16}$")  # hashes the code that was run
POINTING = f"bench pointing --data voc {MODELS} --methods c-mwp,mwp,grad,cam,center"
LOCALIZATION = f"bench localization --data imagenet {MODELS} --methods mwp,extent,grad --held-out 0.4"
GROUNDING = f"bench grounding --data rec {MODELS} --proposals boxes.json --side 48 --methods mwp,c-mwp,center"
LAYERS = "layers colours --data voc --layer 1 --layer 2"
TRAIN = "train tags kept.parquet --pictures photos --model tiny --min-count 1 --epochs 2 --batch 2 --held-out 0.3"
CLEAN = "tags clean corpus.csv --out out/kept.parquet --min-count 1 --min-tags 1"

CASES = {
    "attend": case(
        "attend cat.png --out out --json",
        "attend cat.png cat --against dog --no-overlays --json",
        "attend cat.png tabby 761 --model efficientnet-lite0 --layer blocks.10 --layer blocks.14 --no-contrast "
        "--alpha 2 --out lower --arrays --json",
        "attend cat.png tabby --model efficientnet-lite0 --method grad-cam --size 160 --no-overlays",
    ),
    "attend folder": case(
        "attend photos red green --model colours --layer 1 --arrays --out out --json",
        "attend photos red green --model colours --layer 1 --arrays --out out",
        'attend "photos/*2.png" green --model colours --out other --against red',
    ),
    "attend methods": case(
        *(
            f"attend photos/000000.png red --model colours --method {method} --no-overlays --json"
            for method in ("excite", "c-mwp", "mwp", "extent", "grad", "deconv", "guided", "lrp", "cam", "grad-cam")
        ),
    ),
    "attend packages": case(
        "attend cat.png 3 --model torchvision:squeezenet1_1 --weights random --size 96 --alpha 1 --no-overlays --json",
        "attend cat.png 3 --model timm:test_resnet --weights random --no-overlays --json",
    ),
    "ground": case(
        'ground cat.png "a brown cat" "the left ear" --out out --json',
        'ground rec/images/001.png "the red square" green --model colours --side 48 --proposals boxes.json --out out',
        "ground rec/images/001.png red --phrases phrases.txt --model colours --side 48 --gamma 0.5 --trust 0 "
        "--no-hints --most 2 --proposals hierarchy --no-overlays --json",
    ),
    "find": case(
        'find photos "red -green" --model colours --index out/index.sqlite --most 3 --csv out/found.csv --json',
        "find photos green --model colours --index out/index.sqlite --at-least 0.5 --no-update",
        'find photos "green on the left" --model colours --index out/index.sqlite --json',
        "find photos --model colours --index out/index.sqlite",
        masks=(("index.sqlite", "(?s).+"),),
    ),
    "boxes": case(
        *(
            f"boxes photos --concept red --concept green --model colours --format {kind} --out out-{kind} --json"
            for kind in ("coco", "csv", "voc", "yolo", "label-studio")
        ),
        "boxes photos --concept red --concept green --model colours --format coco --out out-coco",
        "boxes sorted --concepts-from-folders --model colours --format csv --out sorted-out --alpha 1.5 --method mwp",
        "boxes cat.png --format csv --out cat-out --json",
    ),
    "check": case(
        "check colours photos --json",
        "check colours photos",
        "check colours photos --method center --only randomisation,classes --no-page --out center",
    ),
    "check embedded": case(
        "check efficientnet-lite0 --limit 1 --only mass --no-page --json",
        masks=(CODE_KEY,),  # which hashes where scikit-image is installed
    ),
    "export": case(
        "export colours --onnx out/map.onnx --layer 1 --method mwp --check photos --limit 2 --json",
    ),
    "ls": case(
        "ls models --json",
        "ls models",
        "ls methods --json",
        "ls methods",
        "ls layers --json",
        "ls layers colours",
        "ls layers torchvision:squeezenet1_1 --size 128 --json",
        "ls labels cat --json",
        "ls labels terrier --model efficientnet-lite0",
        "ls labels xyzzy",
    ),
    "reproduce": case(
        "reproduce",
        "reproduce table9",
        "reproduce layers --model vgg16",
        "reproduce table3 --data gone",
    ),
    "bench pointing": case(
        f"{POINTING} --out out --json",
        f"{POINTING} --out out",
        f"bench pointing --data voc {MODELS} {MODELS.replace('colours', 'tiny')} --methods mwp --layer 1 --no-page "
        "--out two --json",
        f"bench pointing --data voc {MODELS} --methods mwp --layer 1 --layer 2 --protocol torchray --tolerance 2 "
        "--limit 4 --skip 1 --no-page --out three --json",
    ),
    "bench localization": case(
        f"{LOCALIZATION} --out out --json",
        f"{LOCALIZATION} --out out",
        f"bench localization --data voc {MODELS} --methods mwp --own-shape --layer 1 --seed 3 --no-page --out two",
    ),
    "bench grounding": case(
        f"{GROUNDING} --out out --json",
        f"{GROUNDING} --out out",
        f"{GROUNDING} --gamma 0.5 --truth any --trust 0.5 --no-hints --no-page --out two --json",
        masks=(("", r"proposals [\d.]+ %, looking [\d.]+ %, scoring [\d.]+ %"), CODE_KEY),
    ),
    "bench speed": case(
        "bench speed --model tiny --quick --batches 1,2 --seconds 0 --no-memory --out out --json",
        masks=(("", r'(?<="basis": ")\w+'),),
        structure=True,
        exact=("limit", "above"),
    ),
    "layers": case(
        f"{LAYERS} --out out --json",
        f"{LAYERS} --out out",
        "layers colours --data imagenet --layer 1 --layer 2 --by box --method mwp --seed 1 --out boxes --json",
    ),
    "finetune": case(
        "finetune --data voc --split val --model tiny --views 2 --batch 4 --held-out 0.3 --out out --json",
        "attend photos/000000.png red --model out --no-overlays --json",
        "bench pointing --data voc --model out --methods mwp,c-mwp --no-page --out scored --json",
        forget=("excite-out",),
    ),
    "finetune augment": case(
        "finetune --data voc --split val --model tiny --augment --batch 4 --out out", masks=(WEIGHTS_KEY,)
    ),
    "train tags": case(
        f"{TRAIN} --out out --json",
        f"{TRAIN} --views 2 --layers all --out views",
        "attend photos/000000.png red --model out --no-overlays --json",
        "tags stats kept.parquet --measures out/measures.csv --json",
        masks=(("curves.csv", r"[\d.]+$"), WEIGHTS_KEY),
        forget=("excite-out",),
    ),
    "tags clean": case(
        f"{CLEAN} --keep-alphabetical --json",
        f"{CLEAN} --keep-alphabetical",
        f"{CLEAN.replace('out/', 'choices/')} --choices --json",
        "tags clean made/corpus.parquet --out made-out/kept.parquet --min-count 10 --top 50 --plurals --overlap 2 "
        "--against kept",
        masks=(("", r"\d+ s, at most [\d,]+ MB"),),
    ),
    "tags captions": case(
        "tags captions captions.csv --out out/corpus.parquet --json",
        "tags captions captions.csv --out out/plain.parquet --no-plurals",
    ),
    "tags stats": case(
        "tags stats kept.parquet --min-count 1 --pictures photos --out out --json",
        "tags stats kept.parquet --top 5",
    ),
    "tags shards": case(
        "tags shards kept.parquet --pictures photos --rows 2 --out out --json",
        "tags shards kept.parquet --pictures photos --rows 2 --out out",
        'tags stats kept.parquet --pictures "out/shard-{000000..000002}.tar" --out drawn',
    ),
    "refusals": case(
        "",
        "nothing",
        "attend missing.png",
        "attend cat.png xyzzy --no-overlays",
        "attend cat.png --layer nowhere",
        "attend cat.png --method nothing",
        "attend cat.png --model nothing",
        "attend cat.png --engine nothing",
        "attend broken.png red --model colours --json",
        "boxes photos --format nothing --model colours",
        "find nowhere red --model colours",
        "find photos blue --model colours --index out/index.sqlite --json",
        "bench pointing --data nowhere",
        "bench pointing --data voc --model colours --methods nothing",
        "bench pointing --data voc --model colours --protocol nothing",
        "bench localization --data voc --model colours --held-out 2",
        "bench grounding --data voc --model colours",
        "check colours nowhere",
        "check colours photos --only nothing",
        "export tiny",
        "export tiny --onnx map.pt2",
        "fetch voc1066 --to data",
        "fetch voc2007 --to data --split vla",
        "finetune --data nowhere --out out",
        "ground cat.png",
        "layers colours --data voc --by nothing",
        "ls labels --model nothing",
        "serve --model nothing",
        "tags clean nowhere.csv --out out/kept.parquet",
        "tags stats nowhere.parquet",
        "train tags nowhere.parquet --out out",
        "train tags kept.parquet --out out",
    ),
}
