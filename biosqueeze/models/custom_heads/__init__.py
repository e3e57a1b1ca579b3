"""Task heads that stock transformers lacks, saved in head.safetensors beside a stock encoder."""
