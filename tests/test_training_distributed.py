"""Two real processes (gloo) against one, with shares of different size, hard negatives, masks and learnable γ."""

from __future__ import annotations

import multiprocessing
import os
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from retriever.errors import RetrieverError
from retriever.similarity import DOT, Similarity, similarity_from_name
from retriever.training import distributed
from retriever.training.cached import backward
from retriever.training.loss import ContrastiveLoss
from tests.server import free_port

DIM = 6
QUERIES_EACH = 4
PASSAGES = (11, 7)
"""Passages of the two processes: their four positives first, then hard negatives, more in the first process."""
CASES = {
    "learnable": (similarity_from_name("learnable", 0.3, 0.8), 0),
    "learnable, cached": (similarity_from_name("learnable", 0.3, 0.8), 3),
    "dot": (DOT, 0),
}


class TwoLayers(nn.Module):
    """Enough of an encoder: two layers, one parameter that no text uses and one that only the first process uses."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = nn.Linear(DIM, 8), nn.Linear(8, DIM)
        self.unused = nn.Parameter(torch.ones(2))
        self.sometimes = nn.Parameter(torch.full((DIM,), 0.2))

    def forward(self, rows: Tensor) -> Tensor:
        vectors = self.second(torch.tanh(self.first(rows)))
        # Marks rows of the first process, see `batch`.
        return vectors + self.sometimes if float(rows[0, 0]) > 0 else vectors


def batch() -> tuple[list[Tensor], list[Tensor], Tensor, Tensor]:
    """Queries and passages by process, targets and exclusions of the whole batch."""
    generator = torch.Generator().manual_seed(0)
    queries = [torch.randn(QUERIES_EACH, DIM, generator=generator) for _ in PASSAGES]
    passages = [torch.randn(n, DIM, generator=generator) for n in PASSAGES]
    for mark, *tensors in zip((1.0, -1.0), queries, passages, strict=True):
        for tensor in tensors:
            tensor[:, 0] = mark
    targets = torch.cat([torch.arange(QUERIES_EACH), PASSAGES[0] + torch.arange(QUERIES_EACH)])
    excluded = torch.rand(2 * QUERIES_EACH, sum(PASSAGES), generator=generator) < 0.2
    excluded[torch.arange(len(targets)), targets] = False
    return queries, passages, targets, excluded


def gradients(model: nn.Module, loss: nn.Module) -> dict[str, Tensor | None]:
    return {name: p.grad for module in (model, loss) for name, p in module.named_parameters()}


def one_process(similarity: Similarity) -> tuple[float, dict[str, Tensor | None]]:
    queries, passages, targets, excluded = batch()
    model, loss = TwoLayers(), ContrastiveLoss(similarity, 1.5)
    vectors = [torch.cat([model(share) for share in side]) for side in (queries, passages)]
    value = loss(*vectors, targets, excluded)
    value.backward()
    return value.item(), gradients(model, loss)


def one_of_two(rank: int, port: int, out: Path) -> None:
    """What each process runs; it knows its place from torchrun's variables alone."""
    torch.set_num_threads(1)
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in places.items()})
    joined = distributed.init_from_environment("cpu")
    queries, passages, targets, excluded = batch()
    own = slice(rank * QUERIES_EACH, (rank + 1) * QUERIES_EACH)
    results = {}
    for name, (similarity, chunk) in CASES.items():
        model, loss = TwoLayers(), ContrastiveLoss(similarity, 1.5)

        def share_of_loss(q: Tensor, d: Tensor, loss: ContrastiveLoss = loss) -> Tensor:
            return loss(q, distributed.gather(d), targets[own], excluded[own])

        sides = [
            [partial(model, rows) for rows in side[rank].split(chunk or len(side[rank]))]
            for side in (queries, passages)
        ]
        value = backward(*sides, share_of_loss)
        distributed.average_gradients([*model.parameters(), *loss.parameters()])
        results[name] = (value.item(), gradients(model, loss))
    patience = torch.distributed.group.WORLD._get_backend(torch.device("cpu")).options._timeout
    said = distributed.from_first(lambda: [f"from {rank}"])
    distributed.close()
    facts = {"world": (joined.rank, joined.size, joined.is_first), "said": said, "patience": patience}
    torch.save({**facts, "started first": distributed.started_first(), "results": results}, out / f"{rank}.pt")


def test_two_processes_equal_one(tmp_path: Path) -> None:
    port = free_port()
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=one_of_two, args=(rank, port, tmp_path)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0]
    saved = [torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in range(2)]
    assert [one["world"] for one in saved] == [(0, 2, True), (1, 2, False)]
    assert [one["said"] for one in saved] == [["from 0"], ["from 0"]]
    # After the group is left, each is (0, 1) to itself, and only one of them should print the result.
    assert [one["started first"] for one in saved] == [True, False]
    # The first process mines and scores while the others wait: torch's half an hour would end that.
    assert min(one["patience"] for one in saved) >= timedelta(hours=12)
    for name, (similarity, _) in CASES.items():
        expected, wanted = one_process(similarity)
        values, found = zip(*(one["results"][name] for one in saved), strict=True)
        assert sum(values) / 2 == pytest.approx(expected, abs=1e-6)
        assert wanted["sometimes"].abs().max() > 1e-2
        for parameter, gradient in wanted.items():
            if gradient is None:
                assert parameter == "unused"
                assert [one[parameter] for one in found] == [None, None]
            else:
                assert torch.allclose(found[0][parameter], gradient, rtol=0, atol=1e-6), (name, parameter)
                assert torch.equal(found[0][parameter], found[1][parameter])


def test_a_single_process_needs_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert distributed.init_from_environment() == distributed.World(0, 1) == distributed.world()
    rows = torch.ones(2, 3, requires_grad=True)
    assert distributed.gather(rows) is rows
    assert distributed.from_first(lambda: 3) == 3 and distributed.started_first()
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.tensor([1.0, 2.0])
    distributed.average_gradients([weight])
    assert weight.grad.tolist() == [1.0, 2.0]
    distributed.close()


def test_half_an_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RetrieverError, match="WORLD_SIZE is set but RANK is not; start with torchrun"):
        distributed.init_from_environment()
