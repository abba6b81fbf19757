"""Topics that fail in every way."""
