"""What SECURITY.md promises of files from strangers, kept by reading the source: no call can run what it reads."""

import ast
import builtins
from pathlib import Path

import pytest

import excite

ROOT = Path(excite.__file__).parent
REASONS = {  # why never, and a call or all calls below a module
    "runs what it is given": "eval exec code runpy",
    "makes code of text": "compile",
    "runs the module it is told": "__import__",
    "there are plain names for these": "builtins",
    "runs what is in the file": "pickle.Unpickler pickle.load pickle.loads torch.jit.load torch.package",
    "unpickles": "cloudpickle dill joblib pandas.read_pickle scipy.io.readsav shelve",
    "crashes on what is not its own": "marshal",
    "starts a shell": "os.popen os.system",
    "nobody needs to read pickles": "pickletools",
    "believes anybody": "ssl._create_unverified_context",
    "another may take the name first": "tempfile.mktemp",
    "fetches programs and runs them": "torch.hub",
    "lets entities grow": "xml.dom xml.sax.make_parser xml.sax.parse",
    "there is no YAML here": "yaml",
}
REASONS["lets entities grow"] += "".join(
    f" xml.etree.ElementTree.{name}" for name in ("XML", "fromstring", "iterparse", "parse")
)
NEVER = {name: why for why, names in REASONS.items() for name in names.split()}
WITH = {  # a call and the argument that it may not be without, and its value if only one will do
    "numpy.lib.format.read_array": ("allow_pickle", False),
    "numpy.load": ("allow_pickle", False),
    "numpy.save": ("allow_pickle", False),
    "requests.get": ("timeout", ...),
    "requests.post": ("timeout", ...),
    "torch.load": ("weights_only", True),
    "urllib.request.urlopen": ("timeout", ...),
}
METHODS_NEVER = {"extractall": "writes wherever an archive says"}
ARGUMENTS_NEVER = {"shell": True, "verify": False, "trust_remote_code": True, "allow_pickle": True}
ARGUMENTS_NEVER["weights_only"] = False
ALLOWED = {  # every exception, and why it is none
    ("datasets/voc.py", "xml.etree.ElementTree.fromstring"): "after a DOCTYPE or an ENTITY was refused",
    ("jobs/cluster.py", "pickle.loads"): "the work, from the process that started the run",
    ("jobs/executor.py", "pickle.loads"): "the work, from the parent process",
    ("models/weights.py", "pickletools.genops"): "lists the steps of a pickle, and takes none",
}


def names_in(tree):
    """What the names of a file stand for: {"np": "numpy", "load": "pickle.load"}."""
    meant = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            meant |= {
                (one.asname or one.name.split(".")[0]): (one.asname and one.name) or one.name.split(".")[0]
                for one in node.names
            }
        elif isinstance(node, ast.ImportFrom):
            meant |= {(one.asname or one.name): f"{node.module}.{one.name}" for one in node.names}
    return meant


def full_name(node, meant):
    """The dotted name that is called, in full; nothing for what has none."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or not (node.id in meant or hasattr(builtins, node.id)):
        return ""  # a function of the file's own, or a method of some value
    return ".".join([meant.get(node.id, node.id), *reversed(parts)])


def faults(source):
    """The calls of a program that are not safe: (name, why)."""
    tree = ast.parse(source)
    meant = names_in(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = full_name(node.func, meant)
        given = {one.arg: one.value.value if isinstance(one.value, ast.Constant) else ... for one in node.keywords}
        for bad, why in NEVER.items():
            if name == bad or name.startswith(bad + "."):
                yield name, why
        if name in WITH:
            argument, must = WITH[name]
            if argument not in given or must not in (..., given[argument]):
                yield name, f"without {argument}"
        if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS_NEVER:
            yield node.func.attr, METHODS_NEVER[node.func.attr]
        for argument, bad in ARGUMENTS_NEVER.items():
            if given.get(argument) is bad:
                yield name, f"{argument}={bad}"


def test_no_call_can_run_what_it_reads():
    found = {
        (path.relative_to(ROOT).as_posix(), name): why
        for path in sorted(ROOT.rglob("*.py"))
        for name, why in faults(path.read_text(encoding="utf-8"))
    }
    assert {key: why for key, why in found.items() if key not in ALLOWED} == {}
    assert ALLOWED.keys() <= found.keys(), "an exception that nobody needs any more"


@pytest.mark.parametrize(
    "bad",
    [
        "eval('1')",
        "import pickle\npickle.load(file)",
        "from pickle import loads as read\nread(b'')",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "import numpy as np\nnp.load(path, allow_pickle=asked)",
        "import torch\ntorch.load(path, weights_only=False)",
        "import torch\ntorch.hub.load('a', 'b')",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "from xml.etree import ElementTree\nElementTree.parse(path)",
        "import xml.etree.ElementTree\nxml.etree.ElementTree.parse(path)",
        "import tarfile\ntarfile.open(path).extractall()",
        "from urllib.request import urlopen\nurlopen('https://example.org')",
        "def f():\n    import yaml\n    yaml.load(text)",
    ],
)
def test_the_reader_sees(bad):
    """A check that finds nothing would pass for ever."""
    assert list(faults(bad))


@pytest.mark.parametrize(
    "good",
    [
        "import torch\ntorch.load(path, map_location='cpu', weights_only=True)",
        "import numpy as np\nnp.load(path, allow_pickle=False)",
        "from urllib.request import urlopen\nurlopen('https://example.org', timeout=PATIENCE)",
        "def eval_(): ...\neval_()",
        "network.eval()",
        "import re\nre.compile('a')",
    ],
)
def test_the_reader_lets_pass(good):
    assert not list(faults(good))
