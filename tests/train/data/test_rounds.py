"""Dialogues and their bookkeeping: noise of its own for every answer, and a conversation's number stays its number."""

from hypothesis import given
from hypothesis import strategies as st

from codraft.core.spec import Sampling
from codraft.replay.prompts import Conversation, user
from codraft.train.data.prepare import Material
from codraft.train.data.rounds import Plan, dialogues
from codraft.train.data.rows import Finding

PLAN = Plan(
    sampling=Sampling(temperature=0.5),
    max_new_tokens=4,
    window=None,
    eos_ids=frozenset([0]),
    also=Sampling(temperature=1.0),
    also_share=0.5,
)


def conversation(number: int, turns: int) -> Conversation:
    """With so many user turns."""
    return Conversation(str(number), None, f"f, line {number}", (user("a"),), ("b",) * (turns - 1))


@given(st.lists(st.integers(1, 4), max_size=8))
def test_no_two_answers_share_their_noise_or_their_key(turns: list[int]) -> None:
    made = dialogues([conversation(n, count) for n, count in enumerate(turns)], PLAN)
    wanted = [d.wanted([1], turn, 4) for d in made for turn in range(d.source.num_turns)]
    assert len({w.index for w in wanted}) == len({w.key for w in wanted}) == len(wanted)
    assert sum(d.prefix == "answer" for d in made) == len(turns)
    assert sum(d.prefix == "sampled" for d in made) == round(len(turns) / 2)


@given(st.lists(st.booleans(), max_size=6), st.lists(st.booleans(), max_size=6), st.data())
def test_a_number_drops_the_conversation_that_had_it(rows: list[bool], turns: list[bool], data: st.DataObject) -> None:
    def finding(n: int, keep: bool) -> Finding:
        return Finding(str(n), n, conversation(n, 1) if keep else None, None if keep else "empty")

    material = Material(
        rows=[finding(n, keep) for n, keep in enumerate(rows)],
        turns=[finding(100 + n, keep) for n, keep in enumerate(turns)],
    )
    before = material.conversations
    numbers = data.draw(st.sets(st.sampled_from(range(len(before)))) if before else st.just(set[int]()))
    material.drop(dict.fromkeys(numbers, "limit"))
    assert material.conversations == [c for n, c in enumerate(before) if n not in numbers]
    assert [f.reason for f in material.findings()].count("limit") == len(numbers)
