"""Filters and draws."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.errors import SpecError
from codraft.core.spec import Sampling
from codraft.decode.noise import Purpose
from codraft.decode.sampling import choose, draw, probabilities

logit_rows = st.lists(st.integers(-64, 64).map(lambda i: i / 8), min_size=6, max_size=6, unique=True)


@given(logit_rows, st.floats(0.05, 1.0))
def test_top_p_keeps_the_fewest_tokens_that_reach_it(logits: list[float], top_p: float) -> None:
    plain = probabilities(torch.tensor([logits]), Sampling(temperature=1.0))[0]
    kept = probabilities(torch.tensor([logits]), Sampling(temperature=1.0, top_p=top_p))[0]
    order = plain.argsort(descending=True)
    size = int((kept > 0).sum())
    assert set(order[:size].tolist()) == set(torch.nonzero(kept)[:, 0].tolist())
    assert float(plain[order[:size]].sum()) >= top_p - 1e-9 or size == 6
    assert size == 1 or float(plain[order[: size - 1]].sum()) < top_p
    torch.testing.assert_close(kept.sum(), torch.tensor(1.0, dtype=torch.float64))


@pytest.mark.parametrize("top_p", [0.1, 0.5, 0.9, 0.999])
def test_the_nucleus_is_the_same_however_many_tokens_are_looked_at_first(
    top_p: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = torch.randn(5, 300, generator=torch.Generator().manual_seed(0))
    found = []
    for guess in (2, 50, 1024):
        monkeypatch.setattr("codraft.decode.sampling.NUCLEUS_GUESS", guess)
        found.append(probabilities(logits, Sampling(temperature=0.8, top_p=top_p)))
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[1], found[2])


@given(logit_rows, st.integers(1, 6))
def test_top_k_keeps_k_tokens(logits: list[float], top_k: int) -> None:
    kept = probabilities(torch.tensor([logits]), Sampling(temperature=0.7, top_k=top_k))[0]
    assert int((kept > 0).sum()) == top_k
    assert int(kept.argmax()) == int(np.argmax(logits))


@given(logit_rows)
def test_a_low_temperature_draws_the_argmax(logits: list[float]) -> None:
    ordered = sorted(logits)
    if ordered[-1] - ordered[-2] > 0.1:
        row = torch.tensor(logits, dtype=torch.float64)
        assert choose(row, Sampling(temperature=0.001), 0, 0) == choose(row, Sampling(), 0, 0)


def test_draws_follow_the_distribution() -> None:
    """Chi-square on 4 outcomes, 20,000 keyed draws; false alarm below 1e-6 for the fixed seed (3 degrees: 30.7)."""
    p = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    counts = np.bincount([draw(p, 5, 0, i, Purpose.TARGET) for i in range(20_000)], minlength=4)
    expected = 20_000 * p.numpy()
    assert float(((counts - expected) ** 2 / expected).sum()) < 30.7


def test_a_token_of_probability_zero_is_never_drawn() -> None:
    p = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    assert {draw(p, 1, 2, i, Purpose.TARGET) for i in range(200)} == {1}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nothing_is_drawn_from_what_is_no_number(value: float) -> None:
    """By comparisons with NaN every draft would be accepted."""
    logits = torch.zeros(2, 5)
    logits[1, 3] = value
    for sampling in (
        Sampling(temperature=1.0),
        Sampling(temperature=0.5, top_k=2),
        Sampling(temperature=1.0, top_p=0.5),
    ):
        with pytest.raises(SpecError, match="logits that are NaN or all infinite"):
            probabilities(logits, sampling)
    assert probabilities(logits[:1], Sampling(temperature=1.0)).shape == (1, 5)
