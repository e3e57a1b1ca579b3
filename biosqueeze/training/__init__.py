"""The training engine: Accelerate, optimisers, learning rates, exact resume. Independent of tasks and teachers."""
