"""The training engine: Accelerate, AdamW, linear warm-up and decay, exact resume. It knows no loss and no task."""
