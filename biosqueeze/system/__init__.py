"""The operating system: processes, locks, memory, and its errors. Torch-free."""
