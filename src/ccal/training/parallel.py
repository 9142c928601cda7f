"""Several processes train one model: started by torchrun, equal weights, averaged gradients."""

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist

from ccal.cca import CCALayer
from ccal.distributed import rank, world_size
from ccal.errors import InputError
from ccal.model import DualEncoder

T = TypeVar("T")


@contextmanager
def distributed_from_environment() -> Iterator[torch.device]:
    """Join the other processes that torchrun started, and leave them at the end.

    Yields the device of this process: its GPU (nccl) if there is one for each process of this
    machine, else the CPU (gloo). Without torchrun no process group is made. A process group that
    exists already is used as it is, and stays.

    >>> with distributed_from_environment() as device:
    ...     isinstance(device, torch.device)
    True
    """
    if dist.is_available() and dist.is_initialized():
        cuda = dist.get_backend() == "nccl"
        yield torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
        return
    local = int(os.environ.get("LOCAL_RANK", "0"))
    local_processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cuda = torch.cuda.is_available() and torch.cuda.device_count() >= local_processes
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ:
        yield device
        return
    # Functions of this module have as a default argument the process group that exists when it is
    # imported, and optimisers import it. A group that exists by then would live on with its threads
    # after its end, and Python would at times abort when it exits. So import it now.
    importlib.import_module("torch.distributed.nn.functional")
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield device
    finally:
        dist.destroy_process_group()


def copy_from_rank_0(*modules: nn.Module) -> None:
    """Copy the parameters and buffers of rank 0 to every rank."""
    if world_size() == 1:
        return
    for module in modules:
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, 0)


def from_rank_0(work: Callable[[], T]) -> T:
    """Call `work` on rank 0; every rank returns its result, or raises its exception."""
    if world_size() == 1:
        return work()
    box: list[Any] = [None, None]
    if rank() == 0:
        try:
            box[0] = work()
        except Exception as error:
            box[1] = error
    dist.broadcast_object_list(box, 0)
    if box[1] is not None:
        raise box[1]
    result: T = box[0]
    return result


def check_ranks(model: DualEncoder, batch: int) -> None:
    """Refuse a batch, or a CCA layer, that the ranks cannot share."""
    ranks = world_size()
    if batch < ranks:
        raise InputError(
            f"A batch of {batch} pairs cannot be shared by {ranks} processes; start fewer."
        )
    if ranks > 1 and isinstance(model.projection, CCALayer) and not model.projection.sync:
        raise InputError(
            f"The CCA layer has sync=False, so {ranks} processes would train {ranks} models; "
            "use sync=True or one process."
        )


def wait_for_all() -> None:
    """Wait until every rank has called this."""
    if world_size() > 1:
        dist.barrier()


def average_gradients(parameters: Sequence[nn.Parameter], *facts: float) -> list[float]:
    """Average gradients over ranks in place, and `facts` with them, in one message.

    On every rank the loss is that of the whole batch, L. The gradients that come back through
    `ccal.distributed.all_gather` and `all_reduce_sum` are summed over ranks, so a rank
    holds its own part of the gradient of world_size * L, and the mean over ranks is the
    gradient of L. Parameters of a loss, such as a temperature, already have the gradient of L on
    every rank, which the mean does not change.
    """
    if world_size() == 1:
        return list(facts)
    gradients: list[Tensor] = [p.grad for p in parameters if p.grad is not None]
    device = parameters[0].device
    message = torch.cat([g.flatten() for g in gradients] + [torch.tensor(facts, device=device)])
    dist.all_reduce(message)
    message /= world_size()
    *parts, end = message.split([*(g.numel() for g in gradients), len(facts)])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))
    return [float(value) for value in end]
