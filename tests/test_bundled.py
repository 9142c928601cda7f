from __future__ import annotations

import pytest
import torch

import ccal
from ccal.bundled import abc_hash, held_out, model_card, pretrained
from ccal.errors import InputError
from ccal.music import collection
from tests.music.tunes import needs_music


def test_the_model_encodes_both_modalities() -> None:
    model = ccal.pretrained("folk-tunes")
    assert not model.training
    sheet = model.encode("sheet", torch.rand(3, 1, 40, 100))
    audio = model.encode("audio", torch.rand(3, 1, 136, 100))
    assert sheet.shape == audio.shape == (3, 32)
    assert torch.isfinite(sheet).all()


def test_the_card_says_where_it_comes_from_and_how_well_it_does() -> None:
    card = model_card("folk-tunes")
    for words in ("Ryan", "O'Neill", "Licence", "MRR", "held out"):
        assert words in card


@needs_music
def test_held_out_tunes_are_tunes_of_the_collections() -> None:
    every = {abc_hash(tune.abc) for name in ("ryan", "oneill") for tune in collection(name)}
    assert len(held_out("folk-tunes")) > 100
    assert held_out("folk-tunes") <= every


def test_other_names_are_refused() -> None:
    with pytest.raises(InputError, match="there are folk-tunes"):
        pretrained("birds")
    with pytest.raises(InputError, match="there are folk-tunes"):
        model_card("../model")
