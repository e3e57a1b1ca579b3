"""Forks of the tests' process in place of new processes."""

import os
import time

import torch

SECONDS = 60


def test_the_fork_of_a_process_with_threads_computes() -> None:
    former, numbers = torch.get_num_threads(), torch.randn(64, 32)
    torch.set_num_threads(2)
    try:
        torch.nn.functional.layer_norm(numbers, (32,))
    finally:
        torch.set_num_threads(former)
    child = os.fork()
    if child == 0:
        torch.set_num_threads(2)
        torch.nn.functional.layer_norm(numbers, (32,))
        os._exit(0)
    end = time.monotonic() + SECONDS
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
        time.sleep(0.01)
    if ended == (0, 0):
        os.kill(child, 9)
    assert ended == (child, 0)
