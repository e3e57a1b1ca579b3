"""The one training loop: Accelerate, AdamW, linear warm-up and decay, exact resume."""
