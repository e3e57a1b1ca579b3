"""Latency, throughput, memory and size of checkpoints on backends, each measured in a process of its own."""
