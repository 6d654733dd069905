"""Conservation of the top-down signal on every architecture of torchvision and timm."""
