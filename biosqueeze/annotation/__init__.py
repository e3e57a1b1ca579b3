"""Bulk annotation: a fine-tuned checkpoint applied to a stream of records."""
