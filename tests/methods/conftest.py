import pytest
import torch
from PIL import Image


@pytest.fixture
def picture():
    values = torch.randint(0, 256, (60, 45, 3), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    return Image.fromarray(values.numpy())
