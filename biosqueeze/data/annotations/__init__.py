"""Texts with annotated spans, and the formats that hold them."""
