"""Drafters of which hardly a draft is accepted are told, and no others."""

import pytest

from codraft.core.acceptance import Acceptance, StepLog, curve_point
from codraft.core.schema import AcceptanceResult, DrafterInfo
from codraft.core.silent import silent_failures


def result(steps: int, accepted: int, D: int = 2) -> AcceptanceResult:
    """A drafter whose first draft was accepted in `accepted` of `steps` steps."""
    log = StepLog.of([(i, D, int(i < accepted), False) for i in range(steps)])
    point = curve_point([[Acceptance.from_log(log, D)]])
    assert point is not None
    drafter = DrafterInfo(name="head", mechanism="eagle3", id="path/head", options={})
    return AcceptanceResult(drafter=drafter, basis="steps", curve=[point])


@pytest.mark.parametrize(("steps", "accepted", "told"), [(60, 0, 1), (200, 3, 1), (200, 4, 0), (49, 0, 0), (60, 30, 0)])
def test_a_first_draft_that_is_never_accepted_is_told(steps: int, accepted: int, told: int) -> None:
    found = silent_failures([result(steps, accepted)], "path/target")
    assert len(found) == told
    for sentence in found:
        assert sentence.startswith(f"head had {accepted} of {2 * steps} drafted tokens accepted at D = 2")
        assert "codraft inspect path/target path/head, and whether it was said to look untrained" in sentence


def test_without_a_step_there_is_nothing_to_tell() -> None:
    drafter = DrafterInfo(name="n", mechanism="ngram", options={})
    assert silent_failures([AcceptanceResult(drafter=drafter, basis="steps", curve=[])], "t") == []
