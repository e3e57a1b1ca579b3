"""--auto-batch: find the largest batch that fits into memory by trying the longest batch before the training."""

import gc
from dataclasses import replace

import torch
from accelerate import Accelerator

from biosqueeze.errors import is_out_of_memory
from biosqueeze.progress import note
from biosqueeze.system.memory import return_freed_memory
from biosqueeze.training.batches import longest_batch
from biosqueeze.training.failures import TrainingError, memory_advice, next_smaller_batch
from biosqueeze.training.job import TrainingJob
from biosqueeze.training.options import PLATEAU, TrainingOptions
from biosqueeze.training.resuming import state


def fit_batch_size(job: TrainingJob, accelerator: Accelerator) -> TrainingJob:
    """Return the job with a batch size that fits into memory, and more accumulation for the same global batch.

    Weights, gradients and random states are left unchanged. A resumed run takes the batch size of the saved state. If
    the run failed after that state, it tries again from the smaller of that size and the given one.

    Raises:
        TrainingError: not even a single sequence fits.
    """
    options = job.options
    if options.resume:
        saved = state.saved_batch_size(job.directory)
        if not (saved.failed and options.batch_size < saved.batch_size):
            options = replace(options, batch_size=saved.batch_size, accumulate=saved.accumulate)
        job = replace(job, options=options)
        if not saved.failed:
            return job
    job.learner.to(accelerator.device)
    return_freed_memory()
    while not _fits_in_all_processes(job, accelerator):
        if options.batch_size == 1:
            raise TrainingError(
                f"not even one sequence of {options.max_length} tokens fits into memory",
                f"give {memory_advice(job)}",
            )
        batch_size, accumulate = next_smaller_batch(options.batch_size, options.accumulate)
        options = replace(options, batch_size=batch_size, accumulate=accumulate)
        job = replace(job, options=options)
    note(f"--auto-batch: --batch-size {options.batch_size} --accumulate {options.accumulate} fits")
    return job


def _fits_in_all_processes(job: TrainingJob, accelerator: Accelerator) -> bool:
    failed = torch.tensor(int(not _fits(job, accelerator)), device=accelerator.device)
    if accelerator.num_processes > 1:
        failed = accelerator.reduce(failed)
    return int(failed) == 0


def _fits(job: TrainingJob, accelerator: Accelerator) -> bool:
    """Return whether forward and backward pass of the longest batch fit, beside the optimiser's memory."""
    device = accelerator.device
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            _try_longest_batch(job, accelerator)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return False
    finally:
        job.learner.zero_grad(set_to_none=True)
        # The frames of a failed try hold its tensors until here.
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return True


def copies_of_weights(options: TrainingOptions, processes: int) -> int:
    """Return how many copies of the trained weights a step needs beside weights and gradients."""
    means_of_optimiser, buckets = 2, int(processes > 1)
    mean_that_is_scored = int(options.schedule == PLATEAU)
    return means_of_optimiser + buckets + mean_that_is_scored


def _try_longest_batch(job: TrainingJob, accelerator: Accelerator) -> None:
    copies = copies_of_weights(job.options, accelerator.num_processes)
    trained = [p for p in job.learner.parameters() if p.requires_grad]
    held = [torch.empty_like(parameter) for parameter in trained for _ in range(copies)]
    batch = longest_batch(job.schedule(accelerator.process_index, accelerator.num_processes))
    job.learner.train()
    with accelerator.autocast():
        terms = job.learner(**{name: tensor.to(accelerator.device) for name, tensor in batch.items()})
    accelerator.backward(job.learner.weighted_sum(terms))
    del held
