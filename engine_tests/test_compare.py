"""The judge itself: what it calls a difference, what it excuses, and what it must not."""

from engine_tests.compare import Margins, Step, Way, compare, cut, pooled_AL

WIDE = Margins(draft=lambda p, i: 1.0, text=lambda p: 1.0)
NARROW = Margins(draft=lambda p, i: 1e-6, text=lambda p: 1e-6)
OURS = Way((5, 6, 7, 8, 9), (Step(0, (6, 7, 1), 2), Step(3, (9, 2, 2), 1)))


def other(drafts: tuple[tuple[int, ...], tuple[int, ...]], accepted: tuple[int, int] = (2, 1)) -> Way:
    return Way(OURS.output_ids, tuple(Step(p, d, a) for p, d, a in zip((0, 3), drafts, accepted, strict=True)))


def test_equal_ways_agree_in_every_step() -> None:
    result = compare([OURS], [OURS], [WIDE])
    assert (result.compared, result.total, result.differences, result.excused) == (2, 2, [], [])
    assert pooled_AL([OURS]) == 2.5


def test_a_drafted_token_that_differs_is_named_even_where_it_was_rejected() -> None:
    result = compare([OURS], [other(((6, 7, 1), (9, 2, 3)))], [WIDE])
    (difference,) = result.differences
    assert (difference.kind, difference.position, difference.ours, difference.theirs) == ("draft", 3, 2, 3)
    assert result.compared == 1


def test_a_tie_excuses_the_draft_and_ends_the_comparison_of_that_request_alone() -> None:
    theirs = other(((6, 4, 4), (1, 1, 1)), (1, 0))
    result = compare([OURS, OURS], [theirs, OURS], [NARROW, WIDE])
    assert not result.differences
    assert len(result.excused) == 1
    assert (result.compared, result.total) == (2, 4)


def test_text_that_parts_is_asked_of_the_target() -> None:
    theirs = Way((5, 6, 7, 3, 3), (Step(0, (6, 7, 1), 2), Step(3, (3, 3, 3), 1)))
    assert [d.kind for d in compare([OURS], [theirs], [WIDE]).differences] == ["text"]
    assert compare([OURS], [theirs], [NARROW]).compared == 1
    assert len(compare([OURS], [theirs], [NARROW]).excused) == 1


def test_counting_is_never_excused() -> None:
    shorter = other(((6, 7), (9, 2, 2)))
    fewer = Way(OURS.output_ids, OURS.steps[:1])
    elsewhere = Way(OURS.output_ids, (Step(0, (6, 7, 1), 2), Step(2, (9, 2, 2), 1)))
    miscounted = other(((6, 7, 1), (9, 2, 2)), (2, 0))
    for theirs in (shorter, fewer, elsewhere, miscounted):
        result = compare([OURS], [theirs], [NARROW])
        assert [d.kind for d in result.differences] == ["count"], theirs
        assert not result.excused


def test_an_accepted_eos_ends_its_step_as_codraft_counts() -> None:
    way = Way((5, 6, 0), (Step(0, (6, 0, 4), 3),))
    assert cut(way, frozenset({0})).steps == (Step(0, (6, 0), 2),)
    rejected = Way((5, 6, 7), (Step(0, (6, 0, 4), 1),))
    assert cut(rejected, frozenset({0})) == rejected
