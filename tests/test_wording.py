"""Messages say what to do where they are read: options in a shell, arguments in Python, neither on the page."""

import pytest
import torch
from torch import nn

import excite
from excite.cli.console import complain
from excite.errors import LayerError

web = pytest.importorskip("excite.web.errors")

MESSAGES = [
    (
        "m fails. If it takes one size only, load it with fully_convolutional=True, or use Preprocess(square=True)",
        "m fails. If it takes one size only, load it with --fully-convolutional",
        "m fails. If it takes one size only",
    ),
    (
        "of layer 'a' nothing is left; leave this out with wrap(..., verify=False)",
        *["of layer 'a' nothing is left"] * 2,
    ),
    (
        "No label is called 'x'. Did you mean 'y'? `excite ls labels` lists all 80.",
        "No label is called 'x'. Did you mean 'y'? `excite ls labels` lists all 80.",
        "No label is called 'x'. Did you mean 'y'?",
    ),
    ("'/home/excite.mwp/x.jpg' is cut off: convert it", *["'/home/excite.mwp/x.jpg' is cut off: convert it"] * 2),
]


@pytest.mark.parametrize(("message", "in_a_shell", "on_the_page"), MESSAGES)
def test_each_reader_gets_what_he_can_do(message, in_a_shell, on_the_page, capsys):
    complain(message)
    assert capsys.readouterr().err == f"excite: {in_a_shell}\n"
    assert web.for_page(message) == on_the_page


def test_a_network_without_places(capsys):
    """A real error, which names a function of Python to those who use Python only."""
    dense = excite.wrap(nn.Sequential(nn.Flatten(), nn.Linear(3 * 224 * 224, 3)), labels=["a", "b", "c"])
    with pytest.raises(LayerError, match=r"excite\.mwp") as raised:
        excite.attend(dense, torch.zeros(3, 32, 32), [0])
    complain(str(raised.value))
    assert "excite.mwp" not in capsys.readouterr().err
