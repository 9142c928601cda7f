"""The main job in one minute: left halves of handwritten digits find their right halves.

Linear CCA and a small CCAL network learn a common space from the training digits of scikit-learn;
then every left half of a test digit looks for its right half among all of them, and the reverse.
"""

from __future__ import annotations

import sys
import time

import torch
from torch import Tensor, nn

from ccal.cca import CCA, CCALayer
from ccal.losses import PairwiseRankingLoss
from ccal.ranks import counterpart_ranks

__all__ = ["main"]

EPOCHS = 120
BATCH = 500


def halves() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Train and test pairs: left and right half (n, 32) of 8 x 8 digits, 1,297 and 500 of them."""
    from sklearn.datasets import load_digits

    pixels = torch.tensor(load_digits().images, dtype=torch.float32) / 16
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    left, right = pixels[order, :, :4].flatten(1), pixels[order, :, 4:].flatten(1)
    return (left[500:], right[500:]), (left[:500], right[:500])


def tower(dim: int) -> nn.Sequential:
    """A small network from half a digit to `dim` features."""
    return nn.Sequential(
        nn.Linear(32, 128), nn.BatchNorm1d(128), nn.ELU(), nn.Dropout(0.3), nn.Linear(128, dim)
    )


class Network(nn.Module):
    """Two towers that meet in a CCA layer."""

    def __init__(self, dim: int = 24) -> None:
        super().__init__()
        self.left, self.right = tower(dim), tower(dim)
        self.cca = CCALayer(dim, power=1.0)

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings (n, dim) of pairs."""
        x, y = self.cca(self.left(left), self.right(right))
        return x, y


def train(network: Network, left: Tensor, right: Tensor) -> None:
    """CCAL with the pairwise ranking loss, then one refit of the projections on all pairs."""
    optimiser = torch.optim.Adam(network.parameters(), lr=2e-3, weight_decay=1e-4)
    loss_function = PairwiseRankingLoss(margin=0.3, direction="both")
    started = time.perf_counter()
    for epoch in range(1, EPOCHS + 1):
        network.train()
        losses = []
        for batch in torch.randperm(len(left)).split(BATCH):
            if len(batch) < BATCH // 2:
                continue
            loss = loss_function(*network(left[batch], right[batch]))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        rate = epoch / (time.perf_counter() - started)
        progress = (
            f"training CCAL: epoch {epoch}/{EPOCHS}, loss {sum(losses) / len(losses):.4f}, "
            f"{rate:.1f} epochs/s, {(EPOCHS - epoch) / rate:.0f} s left "
        )
        if sys.stderr.isatty():
            print(progress, end="\r" if epoch < EPOCHS else "\n", file=sys.stderr, flush=True)
        elif epoch % (EPOCHS // 4) == 0:
            print(progress, file=sys.stderr)
    network.eval()
    with torch.no_grad():
        network.cca.refit((network.left(left), network.right(right)))


def report(name: str, x: Tensor, y: Tensor) -> None:
    """Print R@k and MRR in both directions."""
    for direction, ranks in (
        ("left -> right", counterpart_ranks(x, y)),
        ("right -> left", counterpart_ranks(y, x)),
    ):
        hits = "  ".join(f"{100 * (ranks <= k).double().mean():5.1f}" for k in (1, 5, 10))
        print(f"{name:<28}{direction:<16}{hits}  {100 * (1 / ranks.double()).mean():5.1f}")


def main() -> None:
    """Fit, train, and print a table."""
    torch.manual_seed(0)
    # Matrices this small gain nothing from a second thread, and lose much if its core is busy.
    torch.set_num_threads(1)
    (left, right), (test_left, test_right) = halves()
    print(f"{len(left)} training pairs; each test half looks for its other half among 500.\n")
    linear = CCA(n_components=24, ridge="auto", power="auto").fit(left, right)
    network = Network()
    train(network, left, right)
    with torch.no_grad():
        embedded = network(test_left, test_right)
    print(f"\n{'':<28}{'':<16}  R@1    R@5   R@10    MRR   (%)")
    report("linear CCA", *linear.transform(test_left, test_right))
    report("CCAL + ranking loss", *embedded)


if __name__ == "__main__":
    main()
