"""codraft's drafters beside a real vLLM on the CPU, token by token in float32.

The same target, drafter and prompts on both sides. Per request steps, drafted and accepted are equal, and so is every
drafted token; a first difference is excused only where our two best logits are a tie.
"""

import pytest

from engine_tests.compare import compare, pooled_AL
from engine_tests.conftest import ROWS, Row
from engine_tests.desk import Desk
from engine_tests.pairs import CASES, Case

EXACT = [case for case in CASES if case.dtype == "float32"]
ROUNDED = [case for case in CASES if case.dtype != "float32"]
# Of the steps that agree before rounding parts the texts, and of AL on texts that parted, which a head that learned
# other ones by heart drafts worse; a wrong layer or norm leaves no step and no acceptance.
ALIKE, APART = 0.25, 0.4
# Ties end the comparison of a request; more of them than this and little would have been compared.
COMPARED = 0.9
# vLLM goes on counting behind an accepted EOS, which replay does not.
SERVED = 0.02


def named(case: Case) -> str:
    """For pytest's lists."""
    return case.name


@pytest.mark.parametrize("case", EXACT, ids=named)
def test_drafts_are_those_of_vllm(desk: Desk, case: Case) -> None:
    ours = desk.ours(case)
    theirs = desk.their_ways(case)
    result = compare(ours.ways, theirs, ours.margins)
    steps, drafted, accepted = (sum(way.counts[i] for way in ours.ways) for i in range(3))
    ROWS.append(
        Row(
            case,
            (len(ours.ways), steps, drafted, accepted),
            (pooled_AL(ours.ways), pooled_AL(theirs)),
            len(result.differences),
            len(result.excused),
            f"{result.compared}/{result.total}",
        )
    )
    for excused in result.excused:
        print(f"{case.name}: excused: {excused}")
    assert not result.differences, "\n".join(str(difference) for difference in result.differences)
    assert result.compared >= COMPARED * result.total


@pytest.mark.parametrize("case", EXACT, ids=named)
def test_the_recorder_saw_what_vllm_counted(desk: Desk, case: Case) -> None:
    """Its counters hold steps with a draft only, and count on behind an accepted EOS."""
    record = desk.theirs(case)
    steps = [step for request in record["requests"] for step in request["steps"] if step["drafted"]]
    seen = (len(steps), sum(len(step["drafted"]) for step in steps), sum(step["accepted"] for step in steps))
    names = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
    assert seen == tuple(record["counters"][f"vllm:spec_decode_{name}"] for name in names)


@pytest.mark.parametrize("case", [case for case in EXACT if case.pair.weights == "overfitted"], ids=named)
def test_overfitted_heads_are_accepted_often_enough_to_exercise_commit_and_rollback(desk: Desk, case: Case) -> None:
    ways = desk.their_ways(case)
    AL = pooled_AL(ways)
    assert min(2.0, 1 + 0.8 * case.D) < AL, desk.shares
    accepted = {step.accepted for way in ways for step in way.steps}
    assert len(accepted) > 1, "every step accepted the same, so nothing was rolled back"


@pytest.mark.parametrize("case", [case for case in EXACT if case.pair.weights == "trained"], ids=named)
def test_counters_of_vllm_give_the_AL_that_replay_gives(desk: Desk, case: Case) -> None:
    """As a user would read them: 1 + accepted / drafts. Replay never ran the drafter in a loop."""
    counters = desk.theirs(case)["counters"]
    served = 1 + counters["vllm:spec_decode_num_accepted_tokens"] / counters["vllm:spec_decode_num_drafts"]
    assert served == pytest.approx(desk.replayed_AL(case), rel=SERVED)


@pytest.mark.parametrize("case", ROUNDED, ids=named)
def test_acceptance_in_bfloat16_is_reported(desk: Desk, case: Case) -> None:
    """Both sides round at other places: at a near-tie texts part, and a head that knows its streams by heart is lost
    from there on. The table says how many steps agree before, and AL of each side's own text."""
    ours, theirs = desk.ours(case), desk.their_ways(case)
    result = compare(ours.ways, theirs, ours.margins)
    AL = (pooled_AL(ours.ways), pooled_AL(theirs))
    steps, drafted, accepted = (sum(way.counts[i] for way in ours.ways) for i in range(3))
    parted = len(result.differences) + len(result.excused)
    counts = (len(ours.ways), steps, drafted, accepted)
    ROWS.append(Row(case, counts, AL, parted, 0, f"{result.compared}/{result.total}"))
    assert result.compared >= ALIKE * result.total, "more than rounding differs"
    assert abs(AL[0] / AL[1] - 1) < APART, "both texts are the target's, and drafts should fare alike"
