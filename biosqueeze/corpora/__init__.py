"""Build a corpus of sentences for pretraining and distillation from PubMed, PMC, BioC, JSON lines and plain text."""
