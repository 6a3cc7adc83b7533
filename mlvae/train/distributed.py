"""Training by several processes, one a device, through :mod:`torch.distributed`.

``torchrun`` starts the processes and ends them all when one fails. Each runs the same program:

* an epoch's batches are divided by lhotse's sampler, which gives every process the same number;
* :class:`torch.nn.parallel.DistributedDataParallel` averages the gradients of a module, so that its
  weights stay the same everywhere;
* the E-step's batches are dealt out, and what was found is merged by cut id in every process;
* the first process alone writes files.

What is no training is done in shards, one a process, which the first process joins.

``max_frames`` is the largest batch of one process, so that N processes take steps on up to N times
as many frames, and fewer of them. Where no process group was made, every function does what is
right for one process alone, and nothing is wrapped or exchanged.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from mlvae.device import select_device
from mlvae.errors import one_line
from mlvae.shard import Shard
from mlvae.stage import in_one_line, log

T = TypeVar("T")

#: How long processes wait for one another at the beginning.
PATIENCE = timedelta(minutes=5)

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
def process_group(device: str, num_processes: int | None = None) -> Iterator[torch.device]:
    """Join the processes that a launcher started, with the NCCL backend on GPUs, else with Gloo.

    A scheduler may leave ``RANK`` and ``WORLD_SIZE`` in the environment of a program that is alone.
    They count where ``torchrun`` started it, or where it is told that it is one of several. The
    block's end waits for all.

    Args:
        device: ``auto``, ``cpu`` or ``cuda``.
        num_processes: how many there are; 1 joins nothing; None: as many as ``torchrun`` started.

    Yields:
        The device of this process: on a machine with several GPUs, each has its own.

    Raises:
        ValueError: there is no such device, there are more processes than GPUs, the environment
            does not say which of how many processes this is, or the others do not come in time.
    """
    chosen = select_device(device)
    if num_processes is None and "TORCHELASTIC_RUN_ID" not in os.environ:
        num_processes = 1
    if num_processes == 1:
        yield chosen
        return
    place = _place_in_launch(num_processes)
    if chosen.type == "cuda":
        if place.local >= torch.cuda.device_count():
            raise ValueError(
                f"process {place.local + 1} of this machine has no GPU of its own, as there are "
                f"{torch.cuda.device_count()}: start fewer processes, or train on the CPU"
            )
        chosen = torch.device("cuda", place.local)
        torch.cuda.set_device(chosen)
    _join(place, "nccl" if chosen.type == "cuda" else "gloo")
    yield chosen
    # After an error nothing is waited for: this process ends, and torchrun ends the others.
    barrier()
    dist.destroy_process_group()


@dataclass(frozen=True)
class _Place:
    """Which of a launcher's processes this is, and where they meet."""

    rank: int
    size: int
    local: int
    address: str


def _place_in_launch(num_processes: int | None) -> _Place:
    """Read what a launcher says by environment variables; ValueError names a wrong one."""

    def number(name: str, low: int, high: int) -> int:
        value = os.environ.get(name, "")
        is_number = value.isascii() and value.isdigit() and len(value) < 10
        if not (is_number and low <= int(value) <= high):
            raise ValueError(
                f"{name} must be a number from {low} to {high} in the environment of each process "
                f"that trains with others, not {value!r}: start them by torchrun, or one alone "
                "with --num-processes 1"
            )
        return int(value)

    size = number("WORLD_SIZE", 1, 9999)
    if num_processes not in (None, size):
        raise ValueError(f"there are to be {num_processes} processes, but WORLD_SIZE is {size}")
    rank = number("RANK", 0, size - 1)
    local = number("LOCAL_RANK", 0, size - 1) if "LOCAL_RANK" in os.environ else rank
    host, port = os.environ.get("MASTER_ADDR", ""), number("MASTER_PORT", 1, 65535)
    if not host:
        raise ValueError("MASTER_ADDR is not set: it names the machine where processes meet")
    return _Place(rank, size, local, f"{host}:{port}")


def _join(place: _Place, backend: str) -> None:
    """Meet the other processes; ValueError where they do not come within :data:`PATIENCE`."""
    whole = f"{place.size} processes at {place.address}"
    log(
        f"process {place.rank + 1} of {place.size} waits for the others at {place.address}, "
        f"{PATIENCE.total_seconds():.0f} s at most"
    )
    try:
        store, rank, size = next(iter(rendezvous("env://", timeout=PATIENCE)))
        store.set(f"mlvae/{rank}", "here")
        store.wait([f"mlvae/{other}" for other in range(size)], PATIENCE)
        store.set_timeout(TIMEOUT)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    except (RuntimeError, ValueError) as error:  # torch has both for what does not work out
        reason = one_line(error, most=200)
        raise ValueError(
            f"process {place.rank + 1} did not meet the others of {whole}: {reason}"
        ) from error
    barrier()  # NCCL connects in its first exchange


@contextlib.contextmanager
def quiet_unless_main() -> Iterator[None]:
    """Say what all processes would say once: only the first one's output is seen.

    Exceptions pass, so that an error of any process is heard of.
    """
    if is_main():
        yield
        return
    with contextlib.ExitStack() as stack:
        nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
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


def any_process(flag: bool) -> bool:
    """Whether a flag is set in any process; all must ask together."""
    if not is_distributed():
        return flag
    on_gpu = dist.get_backend() == "nccl"
    device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else None
    flags = torch.tensor(int(flag), device=device)
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    return bool(flags)


def average(values: Mapping[str, float]) -> dict[str, float]:
    """Means by name over the processes, all of which have values of the same names."""
    everyone = gather(dict(values))
    return {name: sum(own[name] for own in everyone) / len(everyone) for name in values}


def in_shards(
    program: str,
    work: Callable[[Shard | None], int],
    shard: Shard | None = None,
    device: str = "cpu",
    first: Callable[[], int] | None = None,
) -> int:
    """Do the work of a stage in a shard for each process that ``torchrun`` started, and join them.

    Args:
        program: says errors in one line, under this name; see :func:`mlvae.stage.in_one_line`.
        work: does a shard of the stage, or joins all of them where it is given None, or does all
            where there are none; returns the exit status.
        shard: the one that was asked for, which is all that is done then.
        device: ``auto``, ``cpu`` or ``cuda``; on a machine with several GPUs, each process has one.
        first: what the first process does before all work on their shards; returns an exit status,
            with which it ends for all if it is not 0.

    Returns:
        The exit status of joining, in every process; or of what was done alone.
    """

    def done(shard: Shard | None) -> int:
        return in_one_line(program, lambda: work(shard))

    def together() -> int:
        with process_group(device):
            if world_size() == 1:
                return done(None)
            if first is not None:
                status = gather(in_one_line(program, first) if is_main() else 0)[0]
                if status:
                    return status
            done(Shard(world_size(), rank() + 1))  # joining says what is missing, if it fails
            barrier()
            return gather(done(None) if is_main() else 0)[0]

    return done(shard) if shard is not None else in_one_line(program, together)


def shard(items: Sequence[T]) -> list[T]:
    """Every N-th item, another one in each of N processes."""
    return list(items[rank() :: world_size()])


def merge_shards(shards: Sequence[Sequence[T]]) -> list[T]:
    """Put together in the first order what :func:`shard` dealt out, shards by rank."""
    longest = max(len(shard) for shard in shards)
    return [shard[index] for index in range(longest) for shard in shards if index < len(shard)]


def wrap(module: nn.Module) -> nn.Module:
    """The module whose calls make ``backward`` average gradients over all processes.

    Every call in training must be followed by ``backward``, in all processes alike. Parameters are
    those of the first process from here on.
    """
    if not is_distributed():
        return module
    return DistributedDataParallel(module, broadcast_buffers=False)
