"""Names that would act on a terminal, in Markdown or in HTML, and a classifier that has them for labels."""

import torch
from annotated import colour_classifier
from torch import nn

from excite.models import Card, wrap
from excite.vocabulary import Labels

HOSTILE = {
    "colour": "\x1b[31mred\x1b[0m",
    "title": "\x1b]0;title\x07bell",
    "C1": "\x9b31mcsi",
    "line end": "lf\n!BREAK",
    "return": "cr\r!BREAK",
    "tab": "a\tb\x0b\x0c\x00"[:-1] + "\x7f",
    "separators": "ls\u2028!BREAK ps\u2029!BREAK nel\x85!BREAK",
    "direction": "\u202egpj.exe\u2066",
    "invisible": "zero\u200bwidth\ufeff\u00ad\xa0",
    "script": "<script>alert(1)</script>",
    "attribute": "\"><img src=x onerror=alert(1)> ' onload=alert(2)",
    "entity": "&lt;script&gt; &#27;",
    "pipe": "a | b || c",
    "link": "[x](javascript:alert(1)) ![y](z)",
    "address": "https://evil.example www.evil.example",
    "code": "`rm` ``` ~~~ ~~gone~~",
    "emphasis": "*bold* __init__ # heading",
    "dash": "-rf --help",
    "rich": "[bold red]x[/bold red] [/]",
    "surrogate": "odd\udcff\ud800",
    "formats": "{0} {task} ${x} %s $\\frac{a}$ \\ end",
    "long": "long" * 2500,
}
UNUSUAL = "\x1b]0;t\x07\u202e|`<b>&[c](d)\n!BREAK"  # at the end of each file and folder
MODEL = f"model{UNUSUAL}"


def hostile_card():
    """A classifier with a label for each text: every other one is red, and the others are green."""
    plain = colour_classifier()
    head = nn.Linear(2, len(HOSTILE))
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0, -1.0] if k % 2 else [-1.0, 1.0] for k in range(len(HOSTILE))]))
        head.bias.copy_(torch.linspace(0, 0.1, len(HOSTILE)))
    layers = {"1": "one", "2": f"two{UNUSUAL}".replace(".", "")}
    module = nn.Sequential()
    for name, child in plain.module.named_children():
        module.add_module(layers.get(name, name), head if name == "5" else child)
    labels = Labels(list(HOSTILE.values()))
    made = wrap(module.eval(), labels=labels, preprocess=plain.preprocess, name=MODEL)
    return Card(
        name=MODEL,
        build=lambda _classes: made.module,
        preprocess=made.preprocess,
        labels=lambda: labels,
        layers=tuple(reversed(layers.values())),
        description=f"a classifier {UNUSUAL}",
        source=UNUSUAL,
        pretrained=lambda: made.module,
    )
