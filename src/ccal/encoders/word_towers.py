"""Towers that read words in order: the paper's word CNN and CNN-RNN (its Tables 8 and 9).

They take word numbers from `ccal.features.WordSequences`: 0 is padding, 1 an unknown word,
and words of the vocabulary start at 2.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ccal.bounds import Whole, check
from ccal.encoders.dense import check_features, initialised
from ccal.encoders.registry import Tower, register_tower
from ccal.errors import InputError

_KERNEL, _POOL = 3, 3
_NO_WORD = 2  # numbers that stand for no word of the vocabulary: padding and unknown


class OneHotConv(nn.Module):
    """A convolution of width 3 over one-hot words, without ever making the one-hot vectors.

    The product of a weight matrix and a one-hot vector is a column of the matrix, so each of the
    three positions of the kernel is a table in which words are looked up, and the output is the
    sum of three lookups. Padding and unknown words are vectors of zeros, as positions beyond the
    ends of the text are: their row 0 of the tables is zero and gets no gradient. There is no bias,
    because batch normalisation follows.

    Shapes: whole numbers (n, length) from 0 to vocabulary - 1 -> (n, maps, length).

    >>> conv = OneHotConv(vocabulary=10, maps=4)
    >>> conv(torch.tensor([[5, 9, 2, 0, 0, 0]])).shape
    torch.Size([1, 4, 6])
    >>> conv(torch.tensor([[0, 1, 0]])).abs().max().item()
    0.0
    """

    def __init__(self, vocabulary: int, maps: int) -> None:
        super().__init__()
        words = vocabulary - _NO_WORD
        tables = [nn.Embedding(1 + words, maps, padding_idx=0) for _ in range(_KERNEL)]
        # He with gain 1, where each one-hot vector counts as `words` inputs.
        bound = (3 / (_KERNEL * words)) ** 0.5
        with torch.no_grad():
            for table in tables:
                table.weight[1:].uniform_(-bound, bound)
        self.tables = nn.ModuleList(tables)

    def forward(self, numbers: Tensor) -> Tensor:
        """(n, length) -> (n, maps, length)."""
        length = numbers.shape[1]
        rows = functional.pad((numbers - (_NO_WORD - 1)).clamp(min=0), (1, 1))
        before, here, after = (
            table(rows[:, start : start + length]) for start, table in enumerate(self.tables)
        )
        output: Tensor = before + here + after
        # Batch normalisation is much slower on a transposed view than the copy takes.
        return output.mT.contiguous()


class _WordTower(Tower):
    """The convolutions that both towers share.

    Shapes: (n, length) -> (n, maps, steps), with steps = length // 3 - 4.
    """

    def __init__(
        self, vocabulary: int, out_features: int, *, length: int, maps: int, hidden: int
    ) -> None:
        super().__init__()
        sizes = {"out_features": out_features, "maps": maps, "hidden": hidden}
        for name, size in sizes.items():
            check(name, size, Whole(at_least=1))
        if vocabulary <= _NO_WORD:
            raise InputError(
                f"vocabulary must be {_NO_WORD + 1} or more, since it counts padding, unknown and "
                f"the words, got {vocabulary}."
            )
        self.steps = length // _POOL - 2 * (_KERNEL - 1)
        if self.steps < 1:
            shortest = _POOL * (1 + 2 * (_KERNEL - 1))
            raise InputError(
                f"length must be {shortest} or more for the convolutions and the pooling to leave "
                f"something, got {length}."
            )
        self.vocabulary, self.out_features = vocabulary, out_features
        self.length, self.maps, self.hidden = length, maps, hidden
        layers = [OneHotConv(vocabulary, maps), nn.BatchNorm1d(maps), nn.ELU(), nn.MaxPool1d(_POOL)]
        for _ in range(2):
            conv = initialised(nn.Conv1d(maps, maps, _KERNEL, bias=False))
            layers += [conv, nn.BatchNorm1d(maps), nn.ELU()]
        self.convolutions = nn.Sequential(*layers)

    def convolve(self, features: Tensor) -> Tensor:
        """(n, length) -> (n, maps, steps)."""
        check_features(features, self.length)
        output: Tensor = self.convolutions(_numbers(features, self.vocabulary))
        return output


@register_tower("word-cnn")
class WordCNN(_WordTower):
    """The paper's word CNN (Table 8): three convolutions over words, then dense layers.

    One-hot words -> convolution 3 (same) -> max-pooling 3 -> two convolutions 3 (valid) -> dense
    layer of `hidden` units -> linear layer. Batch normalisation and ELU follow all convolutions
    and the dense layer; the table leaves them out after the last two convolutions, which would
    then be one linear map with the dense layer. Unknown words are vectors of zeros, like padding.

    `vocabulary` counts padding and unknown: it is `WordSequences.size`. Numbers may come as
    floating-point values.

    Shapes: whole numbers (n, length) from 0 to vocabulary - 1 -> (n, out_features).

    >>> WordCNN(vocabulary=5000)(torch.randint(5000, (2, 30))).shape
    torch.Size([2, 64])
    """

    def __init__(
        self,
        vocabulary: int,
        out_features: int = 64,
        *,
        length: int = 30,
        maps: int = 256,
        hidden: int = 1024,
    ) -> None:
        super().__init__(vocabulary, out_features, length=length, maps=maps, hidden=hidden)
        dense = initialised(nn.Linear(maps * self.steps, hidden, bias=False))
        last = initialised(nn.Linear(hidden, out_features))
        self.head = nn.Sequential(nn.Flatten(), dense, nn.BatchNorm1d(hidden), nn.ELU(), last)

    def forward(self, features: Tensor) -> Tensor:
        """(n, length) -> (n, out_features)."""
        output: Tensor = self.head(self.convolve(features))
        return output


@register_tower("word-crnn")
class WordCRNN(_WordTower):
    """The paper's word CNN-RNN (Table 9): three convolutions over words, then a GRU.

    Convolutions as in `WordCNN`; then a GRU of `hidden` units reads the steps that are left (6 of
    30 words), its outputs are averaged over all of them, those of padding included, and a linear
    layer follows.

    Shapes: whole numbers (n, length) from 0 to vocabulary - 1 -> (n, out_features).

    >>> WordCRNN(vocabulary=5000)(torch.randint(5000, (2, 30))).shape
    torch.Size([2, 64])
    """

    def __init__(
        self,
        vocabulary: int,
        out_features: int = 64,
        *,
        length: int = 30,
        maps: int = 256,
        hidden: int = 512,
    ) -> None:
        super().__init__(vocabulary, out_features, length=length, maps=maps, hidden=hidden)
        self.recurrent = nn.GRU(maps, hidden, batch_first=True)
        self.last = initialised(nn.Linear(hidden, out_features))

    def forward(self, features: Tensor) -> Tensor:
        """(n, length) -> (n, out_features)."""
        states, _ = self.recurrent(self.convolve(features).mT)
        output: Tensor = self.last(states.mean(1))
        return output


def _numbers(features: Tensor, vocabulary: int) -> Tensor:
    """Word numbers as int64; refuses other numbers."""
    if features.is_floating_point() and vocabulary - 1 > 2 / torch.finfo(features.dtype).eps:
        raise InputError(
            f"{features.dtype} cannot hold every number below {vocabulary}; "
            "pass word numbers as integers or float32."
        )
    numbers = features.long()
    wrong = (numbers != features) | (numbers < 0) | (numbers >= vocabulary)
    if wrong.any():
        row, place = wrong.nonzero()[0].tolist()
        raise InputError(
            f"This tower takes word numbers, whole and from 0 to {vocabulary - 1}, got "
            f"{features[row, place].item()} in row {row}, column {place} (from 0)."
        )
    return numbers
