"""Training on several processes, such that it equals training on one.

Each process encodes its share of a batch, sees everyone's passages as negatives (`gather`) and takes the mean loss over its
own queries; `average_gradients` then leaves in every process the gradient of the mean over the whole batch. In a single
process all of this does nothing, so that a training loop is written once. `torchrun` starts the processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

from retriever.errors import RetrieverError

T = TypeVar("T")

PATIENCE = timedelta(days=1)
"""How long a process waits for the others. The first one mines and scores alone, which torch's ten minutes do not cover; one
that dies is noticed by torchrun all the same."""


@dataclass(frozen=True, slots=True)
class World:
    """Which of how many processes this is.

    Attributes:
        rank: From 0; the process of rank 0 writes files and talks.
        size: Number of processes.
    """

    rank: int
    size: int

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and talks."""
        return self.rank == 0


def world() -> World:
    """This process among those of the training; (0, 1) where there is only one."""
    if not _is_distributed():
        return World(0, 1)
    return World(dist.get_rank(), dist.get_world_size())


def started_first() -> bool:
    """Whether torchrun started this process as the first, or did not start it; true to the end, unlike `world`."""
    return "WORLD_SIZE" not in os.environ or os.environ.get("RANK") == "0"


def init_from_environment(device: str = "auto") -> World:
    """Join the processes that `torchrun` started; nothing happens in a process that it did not start.

    On CUDA each process takes the GPU of its local rank, and "cuda" means that GPU from here on. Call `close` at the end.

    Args:
        device: Where the encoder will be. "cpu" connects the processes through gloo even where there are GPUs, whose NCCL
            takes no tensor of a CPU.

    Returns:
        `world()` afterwards.

    Raises:
        RetrieverError: Variables of torchrun are missing, or there are more processes than GPUs.
    """
    if "WORLD_SIZE" not in os.environ or _is_distributed():
        return world()
    missing = [name for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise RetrieverError(f"WORLD_SIZE is set but {missing[0]} is not; start with torchrun, or unset WORLD_SIZE")
    if device != "cpu" and torch.cuda.is_available():
        local, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if local >= gpus:
            raise RetrieverError(
                f"one GPU a process is needed, got {gpus} for process {local + 1}; lower --nproc-per-node"
            )
        torch.cuda.set_device(local)
        dist.init_process_group("nccl", timeout=PATIENCE)
    else:
        dist.init_process_group("gloo", timeout=PATIENCE)
    return world()


def check_shares(batch_size: int) -> None:
    """Refuse a batch that the processes cannot share.

    Raises:
        RetrieverError: It is no multiple of their number.
    """
    if batch_size % world().size:
        raise RetrieverError(
            f"batch_size {batch_size} cannot be split among {world().size} processes; make it a multiple"
        )


def close() -> None:
    """Leave the other processes."""
    if _is_distributed():
        dist.destroy_process_group()


def wait_for_all() -> None:
    """Until every process is here."""
    if world().size > 1:
        dist.barrier()


def from_first(compute: Callable[[], T]) -> T:
    """What the first process computes, in all of them; only there `compute` is called."""
    if world().size == 1:
        return compute()
    box: list[Any] = [compute() if world().is_first else None]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def gather(tensor: Tensor) -> Tensor:
    """The rows of all processes, in order of rank, with gradients.

    Args:
        tensor: [rows, ...]; processes may have different numbers of rows, all else is alike. All processes must call this,
            as often as each other and in the same order.

    Returns:
        [sum of rows, ...]; in backward each process gets the gradients that all processes' losses have for its own rows,
        summed (so that after `average_gradients` they belong to the mean of the losses).
    """
    return tensor if world().size == 1 else _Gather.apply(tensor)  # type: ignore[no-untyped-call]


def average_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Replace each gradient by its mean over all processes, in place; call it after backward, before clipping.

    A parameter without a gradient counts as 0 where another process has one, and stays without where none has, so
    that an optimiser leaves it alone as it would in one process.

    Args:
        parameters: The same in all processes, in the same order.
    """
    if world().size == 1:
        return
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if not trained:
        return
    used = torch.tensor([p.grad is not None for p in trained], dtype=torch.uint8, device=trained[0].device)
    dist.all_reduce(used, op=dist.ReduceOp.MAX)
    waiting = []
    for parameter, somewhere in zip(trained, used.tolist(), strict=True):
        if not somewhere:
            continue
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        waiting.append((parameter.grad, dist.all_reduce(parameter.grad, async_op=True)))
    for gradient, handle in waiting:
        handle.wait()
        gradient.div_(world().size)


class _Gather(torch.autograd.Function):
    """torch.distributed.all_gather cuts the graph; this keeps it, and takes shares of different length."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        own = torch.tensor([len(tensor)], device=tensor.device)
        counts = [torch.empty_like(own) for _ in range(world().size)]
        dist.all_gather(counts, own)
        rows = [int(count) for count in counts]
        # Shares travel padded to the longest: all_gather wants equal shapes.
        padded = tensor.new_zeros((max(rows), *tensor.shape[1:]))
        padded[: len(tensor)] = tensor
        shares = [torch.empty_like(padded) for _ in rows]
        dist.all_gather(shares, padded)
        ctx.start, ctx.rows = sum(rows[: world().rank]), len(tensor)
        return torch.cat([share[:count] for share, count in zip(shares, rows, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total[ctx.start : ctx.start + ctx.rows]


def _is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized()
