"""Staff lines as paper, scanners and cameras leave them: moved, blurred, thick or faint, noisy."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ccal.bounds import Number, check


@dataclass(frozen=True)
class Wear:
    """How far a piece of a staff line may be changed at most; zeros leave it as it is.

    Args:
        scale: share by which the staff is larger or smaller, below 0.5.
        stretch: share by which notes are wider or narrower apart, below 0.7.
        rows: pixels by which the staff is higher or lower.
        tilt: pixels by which it is at both ends, up at one and down at the other.
        bend: pixels by which it is at both ends, up or down at both.
        blur: standard deviation of the blur, in pixels.
        ink: share by which lines are thicker or thinner; faint ink fades by its square.
        noise: standard deviation of the noise, where black is 1.
        shade: how dark the paper is at most.
    """

    scale: float = 0.08
    stretch: float = 0.35
    rows: float = 1.0
    tilt: float = 1.0
    bend: float = 0.5
    blur: float = 0.9
    ink: float = 0.5
    noise: float = 0.06
    shade: float = 0.15

    def __post_init__(self) -> None:
        for name, value in self.__dict__.items():
            below = {"scale": 0.5, "stretch": 0.7}.get(name, float("inf"))
            check(name, value, Number(at_least=0, below=below))

    @property
    def margin(self) -> float:
        """Columns that a piece needs on each side, for each of its own."""
        return 0.5 / ((1 - self.scale) * (1 - self.stretch)) - 0.5

    def __call__(self, sheet: Tensor, columns: int, anchor: float) -> Tensor:
        """Pieces (n, 1, rows, columns), ink 1, from the middles of wider ones.

        Draws from torch's global generator. What was in column `anchor` of the middle stays there.
        """
        return self.printed(at_places(sheet, *self.places(sheet, columns, anchor)))

    def places(self, sheet: Tensor, columns: int, anchor: float) -> tuple[Tensor, Tensor]:
        """Columns and rows (n, rows, columns) of wide pieces from which moved ones are taken."""
        n, _, rows, wide = sheet.shape
        size = 1 + _within(self.scale, n, 1, 1)
        across = (torch.arange(columns) + 0.5 - anchor).expand(n, rows, columns)
        along = across / (columns / 2)
        x = across / (size * (1 + _within(self.stretch, n, 1, 1)))
        y = (torch.arange(rows) + 0.5 - rows / 2).view(rows, 1) / size
        y = y + _within(self.rows, n, 1, 1) + _within(self.tilt, n, 1, 1) * along
        y = y + _within(self.bend, n, 1, 1) * along**2
        return x + anchor + (wide - columns) / 2, y + rows / 2

    def printed(self, sheet: Tensor) -> Tensor:
        """The same pieces with other ink on other paper."""
        n = len(sheet)
        each = (n, 1, 1, 1)
        thick = functional.max_pool2d(sheet, 3, 1, 1)
        thin = -functional.max_pool2d(-sheet, 3, 1, 1)
        change = _within(self.ink, *each)
        sheet = sheet + change.clamp(min=0) * (thick - sheet)
        sheet = sheet - (-change).clamp(min=0) * (sheet - thin)
        for axis in (2, 3):
            sheet = _blurred(sheet, self.blur * torch.rand(*each), axis)
        faint = self.ink * torch.rand(*each)
        sheet = (1 - faint) * sheet + faint * sheet**2
        paper = torch.rand(n, 1, 2, 3) * self.shade * torch.rand(*each) ** 2
        paper = functional.interpolate(paper, sheet.shape[2:], mode="bilinear", align_corners=True)
        sheet = paper + (1 - paper) * sheet
        sheet = sheet + self.noise * torch.rand(*each) ** 2 * torch.randn_like(sheet)
        return sheet.clamp(0, 1)


def at_places(sheet: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Pieces (n, 1, rows, columns) of sheets (n, 1, height, width) at columns `x` and rows `y`."""
    height, width = sheet.shape[2:]
    grid = torch.stack([x * 2 / width - 1, y * 2 / height - 1], dim=3)
    return functional.grid_sample(sheet, grid, align_corners=False, padding_mode="border")


def _blurred(values: Tensor, sigma: Tensor, axis: int) -> Tensor:
    """Smoothed along an axis by a Gaussian of 5 pixels, of another width for each (n, 1, 1, 1)."""
    sides = [(torch.exp(-((at / sigma.clamp(min=1e-3)) ** 2) / 2)) for at in (1, 2)]
    total = values
    for at, weight in zip((1, 2), sides, strict=True):
        last = values.shape[axis] - 1
        around = torch.arange(last + 1)
        near = values.index_select(axis, (around - at).clamp(min=0))
        total = total + weight * (near + values.index_select(axis, (around + at).clamp(max=last)))
    return total / (1 + 2 * sum(sides))


def _within(limit: float, *size: int) -> Tensor:
    """Uniform between -limit and limit."""
    return (2 * torch.rand(*size) - 1) * limit
