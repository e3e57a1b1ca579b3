"""Bulk annotation: run a fine-tuned checkpoint over a stream of records, in constant memory."""
