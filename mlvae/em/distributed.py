"""Training by several processes, one a device, through :mod:`torch.distributed`.

``torchrun`` starts the processes and ends them all when one fails. Each runs the same program:

* an epoch's batches are divided by lhotse's sampler, which gives every process the same number;
* :class:`torch.nn.parallel.DistributedDataParallel` averages the gradients of a module, so that its
  weights stay the same everywhere;
* the E-step's batches are dealt out, and what was found is merged by cut id in every process;
* the first process alone writes files.

``max_frames`` is the largest batch of one process, so that N processes take steps on up to N times
as many frames, and fewer of them. Where no process group was made, every function does what is
right for one process alone, and nothing is wrapped or exchanged.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mlvae.device import select_device

T = TypeVar("T")

#: How long the others wait for what the first process does alone, such as choosing the scale.
#: A process that fails does not keep them waiting: torchrun ends them.
TIMEOUT = timedelta(days=1)


def is_distributed() -> bool:
    """Whether this process belongs to a process group, be it the only one."""
    return dist.is_available() and dist.is_initialized()


def world_size() -> int:
    """How many processes train."""
    return dist.get_world_size() if is_distributed() else 1


def rank() -> int:
    """Which of them this is, from 0."""
    return dist.get_rank() if is_distributed() else 0


def is_main() -> bool:
    """Whether this is the first process, the one that writes."""
    return rank() == 0


@contextlib.contextmanager
def process_group(device: str) -> Iterator[torch.device]:
    """Join the processes that ``torchrun`` started, with the NCCL backend on GPUs, else with Gloo.

    A program that ``torchrun`` did not start joins nothing. The block's end waits for all.

    Args:
        device: ``auto``, ``cpu`` or ``cuda``.

    Yields:
        The device of this process: on a machine with several GPUs, each has its own.

    Raises:
        ValueError: there is no such device, or there are more processes than GPUs.
    """
    chosen = select_device(device)
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield chosen
        return
    if chosen.type == "cuda":
        local = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
        if local >= torch.cuda.device_count():
            raise ValueError(
                f"process {local + 1} of this machine has no GPU of its own, as there are "
                f"{torch.cuda.device_count()}: start fewer processes, or train on the CPU"
            )
        chosen = torch.device("cuda", local)
        torch.cuda.set_device(chosen)
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo", timeout=TIMEOUT)
    yield chosen
    # After an error nothing is waited for: this process ends, and torchrun ends the others.
    barrier()
    dist.destroy_process_group()


@contextlib.contextmanager
def quiet_unless_main() -> Iterator[None]:
    """Say what all processes would say once: only the first one's output is seen.

    Exceptions pass, so that an error of any process is heard of.
    """
    if is_main():
        yield
        return
    with contextlib.ExitStack() as stack:
        nowhere = stack.enter_context(open(os.devnull, "w"))
        stack.enter_context(contextlib.redirect_stdout(nowhere))
        stack.enter_context(contextlib.redirect_stderr(nowhere))
        yield


def barrier() -> None:
    """Wait for all processes."""
    if is_distributed():
        on_gpu = dist.get_backend() == "nccl"
        dist.barrier(device_ids=[torch.cuda.current_device()] if on_gpu else None)


def gather(value: T) -> list[T]:
    """The value of every process, by rank; it must be possible to pickle it."""
    if not is_distributed():
        return [value]
    values: list = [None] * world_size()
    dist.all_gather_object(values, value)
    return values


def anywhere(flag: torch.Tensor) -> bool:
    """Whether a flag, bool (), is set in any process."""
    if is_distributed():
        flag = flag.int()
        dist.all_reduce(flag, dist.ReduceOp.MAX)
    return bool(flag)


def any_process(flag: bool) -> bool:
    """Whether a flag is set in any process; all must ask together."""
    on_gpu = is_distributed() and dist.get_backend() == "nccl"
    device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else None
    return anywhere(torch.tensor(flag, device=device))


def average(values: Mapping[str, float]) -> dict[str, float]:
    """Means by name over the processes that have a value of that name."""
    everyone = gather(dict(values))
    if len(everyone) == 1:
        return everyone[0]
    names = dict.fromkeys(name for own in everyone for name in own)
    means = {}
    for name in names:
        known = [own[name] for own in everyone if name in own]
        means[name] = sum(known) / len(known)
    return means


def own_share(items: Sequence[T]) -> list[T]:
    """Every N-th item, another one in each of N processes."""
    return list(items[rank() :: world_size()])


def interleave(shares: Sequence[Sequence[T]]) -> list[T]:
    """Put together in the first order what :func:`own_share` dealt out, shares by rank."""
    longest = max(len(share) for share in shares)
    return [share[index] for index in range(longest) for share in shares if index < len(share)]


def wrap(module: nn.Module) -> nn.Module:
    """The module whose calls make ``backward`` average gradients over all processes.

    Every call in training must be followed by ``backward``, in all processes alike. Parameters are
    those of the first process from here on.
    """
    if not is_distributed():
        return module
    return DistributedDataParallel(module, broadcast_buffers=False)
