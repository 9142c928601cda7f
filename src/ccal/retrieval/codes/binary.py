"""BinaryCodes: embeddings of one model as a few bytes each."""

import os
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from ccal.bounds import Options, check
from ccal.cca import CCALayer
from ccal.errors import InputError
from ccal.files import load_part, save_part
from ccal.model import DualEncoder
from ccal.retrieval.codes.code_index import Packed, check_bits, pack
from ccal.retrieval.codes.heads import (
    Head,
    HeadTraining,
    itq_heads,
    sign_heads,
    train_heads,
    train_through,
    unit_views,
)
from ccal.retrieval.embedding import fingerprint
from ccal.retrieval.items import OtherModelError

_CONFIG, _FORMAT = "codes.json", 1
_UNCORRECTED = " Encode them without the hub correction: model.encode(..., corrected=False)."

Kind = Literal["sign", "itq", "ranking"]


@dataclass(frozen=True)
class BinaryCodes:
    """Turns embeddings of one model into packed bits, by a head for each modality.

    The more bits of two codes are equal, the larger is the cosine of their embeddings, as a rule.
    Codes belong to the model they were fitted for, as an index does.

    Attributes:
        kind: "sign", "itq" or "ranking", see `fit`.
        bits: length of a code.
        heads: the head of each modality.
        model: fingerprint of the model.

    >>> from ccal.encoders import DenseTower
    >>> model = DualEncoder(dim=8, projection="none", a=DenseTower(8, 8), b=DenseTower(8, 8))
    >>> x = torch.randn(100, 8)
    >>> codes = BinaryCodes.fit(model, x, x + 0.1 * torch.randn(100, 8), bits=16)
    >>> codes.encode("a", x[:3]).shape
    (3, 2)
    """

    kind: Kind
    bits: int
    heads: dict[str, Head]
    model: str

    @classmethod
    def fit(
        cls,
        model: DualEncoder,
        x: Tensor | np.ndarray[Any, Any],
        y: Tensor | np.ndarray[Any, Any],
        *,
        bits: int = 128,
        kind: Kind = "itq",
        dims: int | None = None,
        training: HeadTraining | None = None,
        seed: int = 0,
    ) -> Self:
        """Codes for embeddings (n, k) of training pairs, by `model.encode(..., corrected=False)`.

        Args:
            bits: length of a code, a multiple of 8.
            kind: "sign" takes the signs of the leading coordinates; "itq" rotates the leading ones
                so that signs lose little (iterative quantisation, one rotation for both views);
                "ranking" starts from there and trains one matrix a view by the ranking loss.
            dims: coordinates that "itq" and "ranking" begin with; None is half as many as bits.
            training: how "ranking" trains.
            seed: of the first rotation.
        """
        check_bits(bits)
        check("kind", kind, Options(*get_args(Kind)))
        views = unit_views(torch.as_tensor(x), torch.as_tensor(y))
        given, layer = views[0].shape[1], model.projection
        width = layer.k if isinstance(layer, CCALayer) else model.dim
        if given != width:
            raise InputError(
                f"x and y must have the {width} dimensions of this model's space, got {given}."
                + (_UNCORRECTED if given == width + 4 else "")
            )
        if kind == "sign":
            heads = sign_heads(*views, bits)
        else:
            heads = itq_heads(*views, bits, dims=dims, seed=seed)
        if kind == "ranking":
            heads = train_heads(*views, heads, training or HeadTraining())
        named = dict(zip(model.modalities, heads, strict=True))
        return cls(kind, bits, named, fingerprint(model))

    @classmethod
    def fit_through(
        cls,
        model: DualEncoder,
        x: Any,
        y: Any,
        *,
        bits: int = 128,
        dims: int | None = None,
        training: HeadTraining | None = None,
        seed: int = 0,
    ) -> tuple[DualEncoder, Self]:
        """Codes trained end to end: the heads and the towers below them, by the ranking loss.

        `x` and `y` are the training pairs, raw items or features, as `model.encode` takes them.
        Returns the codes with the model they belong to, a copy whose towers have moved.
        """
        check_bits(bits)
        name_x, name_y = model.modalities
        x, y = model.features(name_x, x), model.features(name_y, y)
        views = ((name_x, x), (name_y, y))
        embedded = unit_views(*(model.encode(*view, corrected=False) for view in views))
        start = itq_heads(*embedded, bits, dims=dims, seed=seed)
        tuned, heads = train_through(model, x, y, start, training or HeadTraining())
        named = dict(zip(model.modalities, heads, strict=True))
        return tuned, cls("ranking", bits, named, fingerprint(tuned))

    @property
    def bytes(self) -> int:
        """Length of a packed code."""
        return self.bits // 8

    @property
    def dim(self) -> int:
        """Width k of the embeddings that are encoded."""
        return next(iter(self.heads.values())).weight.shape[0]

    def encode(self, modality: str, embeddings: Tensor | np.ndarray[Any, Any]) -> Packed:
        """Packed codes (n, bytes) of embeddings (n, k), by `model.encode(..., corrected=False)`."""
        if modality not in self.heads:
            raise InputError(f"These codes are of {' and '.join(self.heads)}, not of {modality!r}.")
        rows = torch.as_tensor(embeddings).detach().cpu()
        if rows.ndim != 2 or rows.shape[1] != self.dim or not rows.is_floating_point():
            corrected = rows.ndim == 2 and rows.shape[1] == self.dim + 4
            raise InputError(
                f"embeddings must be floating point of shape (n, {self.dim}), got {rows.dtype} "
                f"{tuple(rows.shape)}." + (_UNCORRECTED if corrected else "")
            )
        return pack(self.heads[modality](rows) > 0)

    def check(self, model: DualEncoder) -> None:
        """Refuse a model that these codes do not belong to."""
        found = fingerprint(model)
        if found != self.model:
            raise OtherModelError(
                f"These codes were fitted for another model (fingerprint {self.model[:12]}; this "
                f"one has {found[:12]}); use that model, or fit codes for this one."
            )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write configuration (JSON) and heads (safetensors) to a folder of their own."""
        tensors = {
            f"{view}.{part}": getattr(head, part).clone()
            for view, head in enumerate(self.heads.values())
            for part in ("weight", "bias")
        }
        form = {"format": _FORMAT, "kind": self.kind, "bits": self.bits, "model": self.model}
        about = {**form, "modalities": list(self.heads)}
        save_part(folder, _CONFIG, about, tensors, key="heads")

    @classmethod
    def load(cls, folder: str | os.PathLike[str], model: DualEncoder | None = None) -> Self:
        """Read what `save` wrote; with a `model`, refuse codes of another one."""
        kind, formats = "set of binary codes", (_FORMAT,)
        with load_part(folder, _CONFIG, kind=kind, formats=formats, key="heads") as (about, parts):
            heads = {
                name: Head(parts[f"{view}.weight"], parts[f"{view}.bias"])
                for view, name in enumerate(about["modalities"])
            }
            check_bits(about["bits"])
            check("kind", about["kind"], Options(*get_args(Kind)))
            widths = {head.weight.shape[1] for head in heads.values()}
            if widths != {about["bits"]}:
                raise InputError(f"{str(folder)!r} says {about['bits']} bits, its heads {widths}.")
            codes = cls(about["kind"], about["bits"], heads, about["model"])
        if model is not None:
            codes.check(model)
        return codes
