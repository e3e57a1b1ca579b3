"""The training engine: Accelerate, AdamW or LAMB, schedules of the learning rate, exact resume. It knows no loss and no task."""
