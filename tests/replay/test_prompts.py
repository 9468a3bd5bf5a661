"""Prompt sets: the shapes of rows, and every slip named by file and line."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.errors import SpecError
from codraft.replay.prompts import (
    Conversation,
    check_messages,
    conversation,
    first_turns,
    load_prompts,
    split_count,
    typed_prompts,
)


def jsonl(path: Path, *rows: Any) -> str:
    """A JSONL file's name."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def prompts_of(conversations: list[Conversation]) -> list[str]:
    """The first message of each."""
    return [c.opening[0]["content"] for c in conversations]


def test_turns_are_one_user_message_and_its_followups() -> None:
    row = {"question_id": 81, "category": "writing", "turns": ["one", "two", "three"], "reference": ["x"]}
    assert conversation(row, "f, line 1", "1") == Conversation(
        "81", "writing", "f, line 1", ({"role": "user", "content": "one"},), ("two", "three")
    )
    assert conversation(row, "f, line 1", "1").num_turns == 3


def test_messages_open_the_conversation_as_they_are() -> None:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    made = conversation({"messages": messages}, "here", "7")
    assert (made.id, made.category, made.opening, made.num_turns) == ("7", None, tuple(messages), 1)


def test_a_prompt_is_one_user_message() -> None:
    assert conversation({"task_id": "H/0", "prompt": "def f():"}, "here", "1") == Conversation(
        "H/0", None, "here", ({"role": "user", "content": "def f():"},)
    )


HUMANEVAL = {"task_id": "H/0", "prompt": '\n\ndef f(x):\n    """{x}"""\n', "entry_point": "f", "test": "t"}
WRAPPED = (
    "Complete this Python function. Answer with the whole function in one code block.\n\n"
    '```python\ndef f(x):\n    """{x}"""\n```'
)


def test_a_humaneval_row_asks_for_its_function() -> None:
    assert conversation(HUMANEVAL, "here", "1") == Conversation(
        "H/0", "code", "here", ({"role": "user", "content": WRAPPED},)
    )
    assert conversation({**HUMANEVAL, "category": "python"}, "here", "1").category == "python"


@pytest.mark.parametrize("missing", ["task_id", "entry_point"])
@pytest.mark.parametrize("how", ["absent", "null"])
def test_a_prompt_without_all_keys_of_humaneval_stays_as_it_is(missing: str, how: str) -> None:
    row = {key: value for key, value in HUMANEVAL.items() if key != missing}
    made = conversation(row if how == "absent" else {**row, missing: None}, "here", "1")
    assert (made.opening[0]["content"], made.category) == (HUMANEVAL["prompt"], None)


def test_a_gsm8k_row_asks_its_question() -> None:
    row = {"question": "2 + 2?", "answer": "It is 4.\n#### 4"}
    assert conversation(row, "here", "9") == Conversation(
        "9", "maths", "here", ({"role": "user", "content": "2 + 2?"},)
    )
    made = conversation({**row, "id": "q", "category": "sums"}, "here", "9")
    assert (made.id, made.category) == ("q", "sums")


@pytest.mark.parametrize("own", [{"turns": ["mine"]}, {"messages": [{"role": "user", "content": "mine"}]}])
def test_turns_and_messages_come_before_the_shapes_of_benchmarks(own: dict[str, Any]) -> None:
    made = conversation({**HUMANEVAL, "question": "q", "answer": "a", **own}, "here", "1")
    assert (prompts_of([made]), made.category) == (["mine"], None)


def test_a_prompt_comes_before_a_question() -> None:
    assert prompts_of([conversation({"prompt": "mine", "question": "q", "answer": "a"}, "here", "1")]) == ["mine"]


def test_first_turns_drop_what_follows_and_nothing_else() -> None:
    made = conversation({"id": "a", "category": "c", "turns": ["one", "two"]}, "here", "1")
    alone = conversation({"id": "a", "category": "c", "turns": ["one"]}, "here", "1")
    assert first_turns([made, alone]) == [alone, alone]


def test_typed_prompts_are_numbered_by_their_flag() -> None:
    one, two = typed_prompts(["a", "b"])
    assert (one.where, one.id, two.where, two.id) == ("--prompt 1", "1", "--prompt 2", "2")
    assert prompts_of([one, two]) == ["a", "b"]
    with pytest.raises(SpecError, match=r"^--prompt 2: 'prompt' must be a non-empty text"):
        typed_prompts(["a", " "])


def test_an_id_of_null_is_no_id() -> None:
    assert conversation({"id": None, "uid": "u1", "prompt": "x"}, "here", "5").id == "u1"
    assert conversation({"id": None, "prompt": "x"}, "here", "5").id == "5"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"text": "x", "k": 1}, "no prompt in this row; it needs 'turns', 'messages' or 'prompt', and holds text, k"),
        ({}, "no prompt in this row; it needs 'turns', 'messages' or 'prompt', and holds nothing"),
        ({"question": "x"}, "no prompt in this row"),
        ({"question": "x", "answer": "y", "context": "z"}, "no prompt in this row"),
        ({"question": " ", "answer": "y"}, "'question' must be a non-empty text"),
        ({"task_id": "H/0", "entry_point": "f", "prompt": " "}, "'prompt' must be a non-empty text"),
        ({"turns": []}, "'turns' must be a non-empty list"),
        ({"turns": "x"}, "'turns' must be a non-empty list"),
        ({"turns": ["x", " "]}, "turn 2 must be a non-empty text"),
        ({"turns": ["x", 3]}, "turn 2 must be a non-empty text"),
        ({"prompt": ""}, "'prompt' must be a non-empty text"),
        ({"prompt": None}, "'prompt' must be a non-empty text"),
        ({"messages": []}, "'messages' must be a non-empty list"),
        ({"messages": {"role": "user"}}, "'messages' must be a non-empty list"),
        ({"messages": ["x"]}, "message 1 needs a 'role', one of system"),
        ({"messages": [{"role": "human", "content": "x"}]}, "message 1 needs a 'role'"),
        ({"messages": [{"role": "user"}]}, "content of message 1 must be a non-empty text"),
        (
            {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]},
            "'messages' ends with the assistant",
        ),
    ],
)
def test_a_row_that_is_no_prompt_is_refused_where_it_stands(row: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError) as caught:
        conversation(row, "f.jsonl, line 3", "3")
    assert str(caught.value).startswith("f.jsonl, line 3: ")
    assert words in str(caught.value)


def test_messages_that_end_with_the_assistant_pass_the_check_for_streams() -> None:
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    assert check_messages(messages, "here") == messages


@pytest.mark.parametrize(
    ("source", "name", "count"),
    [
        ("demo", "demo", None),
        ("demo:4", "demo", 4),
        ("a/b.jsonl:12", "a/b.jsonl", 12),
        ("C:\\x.jsonl", "C:\\x.jsonl", None),
        ("a:b:3", "a:b", 3),
        ("demo:", "demo:", None),
        ("demo:--5", "demo:--5", None),
        ("demo:\u00b2", "demo:\u00b2", None),
        ("demo:+5", "demo:+5", None),
    ],
)
def test_a_count_is_what_follows_the_last_colon_if_it_is_a_number(source: str, name: str, count: int | None) -> None:
    assert split_count(source) == (name, count)


@pytest.mark.parametrize("source", ["demo:0", "demo:-3"])
def test_fewer_than_one_row_is_refused(source: str) -> None:
    with pytest.raises(SpecError, match="N must be at least 1"):
        split_count(source)


@given(st.text())
def test_any_text_splits_or_is_refused(source: str) -> None:
    try:
        name, count = split_count(source)
    except SpecError:
        return
    assert source == (name if count is None else source)
    assert source.startswith(name)


def test_the_built_in_set_is_found_and_every_row_has_a_category() -> None:
    prompts = load_prompts(["demo"])
    assert prompts.name == "demo"
    assert len(prompts.conversations) >= 16
    assert all(c.category for c in prompts.conversations)
    assert len({c.id for c in prompts.conversations}) == len(prompts.conversations)
    assert prompts.conversations[0].where == "demo, line 1"


def test_no_source_and_an_empty_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no prompts given"):
        load_prompts([])
    with pytest.raises(SpecError, match="has no rows"):
        load_prompts([jsonl(tmp_path / "a.jsonl")])


def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path) -> None:
    name = jsonl(tmp_path / "a.jsonl", {"prompt": "x"}, {"promt": "y"})
    with pytest.raises(SpecError, match=r"a\.jsonl, line 2: no prompt"):
        load_prompts([name])


def test_a_count_takes_rows_spread_evenly_over_the_file(tmp_path: Path) -> None:
    name = jsonl(tmp_path / "a.jsonl", *({"prompt": str(i)} for i in range(10)))
    assert prompts_of(load_prompts([f"{name}:4"]).conversations) == ["0", "2", "5", "7"]
    assert prompts_of(load_prompts([f"{name}:1"]).conversations) == ["0"]
    assert len(load_prompts([f"{name}:99"]).conversations) == 10
    assert len(load_prompts([f"{name}:{10**18 - 1}"]).conversations) == 10


def test_sources_are_joined_in_order_and_named_together(tmp_path: Path) -> None:
    a, b = jsonl(tmp_path / "a.jsonl", {"prompt": "1"}), jsonl(tmp_path / "b.jsonl", {"prompt": "2"})
    prompts = load_prompts([b, a])
    assert prompts.name == f"{b}+{a}"
    assert prompts_of(prompts.conversations) == ["2", "1"]


def test_rows_of_two_files_are_two_conversations_even_where_their_ids_agree(tmp_path: Path) -> None:
    a = jsonl(tmp_path / "a.jsonl", {"prompt": "1"}, {"id": 7, "prompt": "2"})
    b = jsonl(tmp_path / "b.jsonl", {"prompt": "3"}, {"id": 7, "prompt": "4"}, {"id": 8, "prompt": "5"})
    ids = [c.id for c in load_prompts([a, b]).conversations]
    assert ids == ["1", "7", f"1 ({b}, line 1)", f"7 ({b}, line 2)", "8"]


def test_the_same_row_taken_twice_is_one_conversation(tmp_path: Path) -> None:
    a = jsonl(tmp_path / "a.jsonl", {"prompt": "1"})
    assert [c.id for c in load_prompts([a, a]).conversations] == ["1", "1"]


def test_the_hash_tells_contents_not_names(tmp_path: Path) -> None:
    a = jsonl(tmp_path / "a.jsonl", {"turns": ["1", "2"], "category": "x"})
    b = jsonl(tmp_path / "b.jsonl", {"turns": ["1", "2"], "category": "x"})
    c = jsonl(tmp_path / "c.jsonl", {"turns": ["1", "3"], "category": "x"})
    d = jsonl(tmp_path / "d.jsonl", {"turns": ["1", "2"], "category": "y"})
    hashes = [load_prompts([name]).sha256 for name in (a, b, c, d)]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3


def test_gzipped_rows_are_the_same_prompts(tmp_path: Path) -> None:
    plain = jsonl(tmp_path / "a.jsonl", {"prompt": "x"}, {"turns": ["y", "z"]})
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(Path(plain).read_bytes()))
    zipped = load_prompts([f"{plain}.gz"])
    assert zipped.sha256 == load_prompts([plain]).sha256
    assert zipped.conversations[1].where == f"{plain}.gz, line 2"
