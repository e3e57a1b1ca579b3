"""The optimisers, their parameter groups, learning rates and averaged weights."""
