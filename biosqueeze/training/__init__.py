"""The training engine: Accelerate, optimisers, learning-rate schedules, exact resume. It knows no loss and no task."""
