"""Can these maps be relied on? Checks of explanations that need images, but nobody's word for what is in them."""
