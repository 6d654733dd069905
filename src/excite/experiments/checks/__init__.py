"""Can these maps be relied on? Checks of explanations that need pictures, but nobody's word for what is in them."""
