"""The row linter: every row is kept, or dropped for one reason; what a kept row says is what its users said."""

import gzip
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.errors import SpecError
from codraft.replay.promptsets import is_placeholder
from codraft.train.data.raw import RawRow, read_source
from codraft.train.data.rows import DROPS, REPAIRS, Finding, count, lint, lint_row

PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
SHAPE_KEYS = ("messages", "conversations", "conversation", "turns", "prompt", "instruction", "question")
OTHER_KEYS = ("input", "output", "tools", "category", "id", "system", "task_id", "entry_point")
ROLE_WORDS = ["user", "human", "assistant", "gpt", "system", "tool", "Observation", "narrator", 7, None]


def one(value: Any) -> Finding:
    """What becomes of a lone row."""
    return lint_row(RawRow("f, line 1", 1, value), set())


def said(finding: Finding) -> list[str]:
    """Roles and texts of a kept row, its further turns last."""
    assert finding.conversation is not None
    opening = [f"{m['role']}: {m['content']}" for m in finding.conversation.opening]
    return [*opening, *finding.conversation.followups]


def messages(*pairs: tuple[str, Any], **more: Any) -> dict[str, Any]:
    """A chat row."""
    return {"messages": [{"role": role, "content": content} for role, content in pairs], **more}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
contents = st.one_of(
    st.sampled_from(["Hi", " ", "", PLACEHOLDER, "<think>x</think> y"]),
    st.lists(st.fixed_dictionaries({"type": st.sampled_from(["text", "image_url"]), "text": st.just("part")})),
    json_values,
)
chat_messages = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(ROLE_WORDS),
        "from": st.sampled_from(ROLE_WORDS),
        "content": contents,
        "value": contents,
        "tool_calls": json_values,
        "reasoning_content": json_values,
    },
)
turn_lists = st.lists(st.one_of(chat_messages, st.text(max_size=5), json_values), max_size=5)
junk_rows = st.one_of(
    json_values,
    st.dictionaries(
        st.sampled_from([*SHAPE_KEYS, *OTHER_KEYS]),
        st.one_of(turn_lists, contents, json_values),
        max_size=4,
    ),
)
lines = st.one_of(junk_rows.map(lambda row: json.dumps(row).encode()), st.binary(max_size=20))


@given(st.lists(lines, max_size=12))
def test_rows_in_are_kept_or_dropped_for_one_reason_each(junk: list[bytes]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "junk.jsonl")
        path.write_bytes(b"\n".join([*junk, b'{"prompt": "so that there is a row"}']))
        rows = read_source(str(path))
    findings = lint(rows)
    info = count(findings)
    assert len(findings) == len(rows) == info.rows == info.kept + sum(info.dropped.values())
    assert set(info.dropped) <= set(DROPS)
    assert set(info.repaired) <= set(REPAIRS)
    for finding in findings:
        assert (finding.conversation is None) == (finding.reason is not None)
        assert finding.conversation is not None or not finding.repairs
        for text in said(finding) if finding.conversation else []:
            assert text.strip()
            assert not is_placeholder(text)


@pytest.mark.parametrize(
    "row",
    [
        messages(("user", "One?"), ("assistant", "1"), ("user", "Two?")),
        {"conversations": [{"from": "human", "value": "One?"}, {"from": "gpt", "value": "1"}]},
        {"conversation": [{"role": "user", "content": "One?"}]},
        {"turns": ["One?", "Two?"]},
        {"prompt": "One?"},
        {"prompt": [{"role": "user", "content": "One?"}]},
        {"instruction": "One?", "input": "", "output": "1"},
        {"question": "One?", "answer": "1"},
    ],
)
def test_every_shape_is_read(row: dict[str, Any]) -> None:
    assert said(one(row))[0] == "user: One?"


def test_answers_of_the_file_are_never_used() -> None:
    found = one(messages(("user", "One?"), ("assistant", "SECRET"), ("user", "Two?"), ("assistant", "SECRET")))
    assert said(found) == ["user: One?", "Two?"]
    assert found.repairs == ("answers_dropped",)
    assert one({"instruction": "One?", "output": "SECRET"}).repairs == ("answers_dropped",)


def test_bare_turns_are_answered_one_by_one() -> None:
    assert said(one({"turns": ["One?", "Two?"]})) == ["user: One?", "Two?"]
    assert one({"turns": ["One?", "Two?"]}).repairs == ()


def test_an_instruction_has_its_input_behind_it_and_its_system_text_before() -> None:
    found = one({"system_prompt": "Be short.", "instruction": "Translate.", "input": "Guten Tag"})
    assert said(found) == ["system: Be short.", "user: Translate.\n\nGuten Tag"]


def test_a_bare_function_header_gets_a_request_around_it() -> None:
    found = one({"task_id": "x/1", "prompt": "def f():\n", "entry_point": "f"})
    assert "Complete this Python function" in said(found)[0]


@pytest.mark.parametrize(
    "row,repair,texts",
    [
        (messages(("assistant", "Hello"), ("user", "Hi")), "assistant_first", ["user: Hi"]),
        (messages(("user", "a"), ("user", "b")), "users_joined", ["user: a\n\nb"]),
        (messages(("user", "a"), ("user", ""), ("user", "b")), "users_joined", ["user: a\n\nb"]),
        (messages(("user", [{"type": "text", "text": "a"}, "b"])), "parts_joined", ["user: ab"]),
        (messages(("system", " "), ("user", "a")), "blank_turn", ["user: a"]),
        ({"messages": [{"from": "human", "value": "a"}]}, "sharegpt_keys", ["user: a"]),
        (
            messages(("user", "a"), ("assistant", "<think>b</think>c"), ("user", "d")),
            "reasoning_ignored",
            ["user: a", "d"],
        ),
        (
            {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "reasoning_content": "b"}]},
            "reasoning_ignored",
            ["user: a"],
        ),
    ],
)
def test_what_is_mended_is_counted(row: dict[str, Any], repair: str, texts: list[str]) -> None:
    found = one(row)
    assert repair in found.repairs
    assert said(found) == texts


@pytest.mark.parametrize(
    "row,reason",
    [
        ({}, "empty"),
        ({"messages": []}, "empty"),
        ({"prompt": "  "}, "empty"),
        ({"turns": [" "]}, "empty"),
        (messages(("user", "")), "empty"),
        ([], "broken_json"),
        ("text", "broken_json"),
        ({"text": "plain"}, "unknown_shape"),
        ({"messages": "text"}, "malformed"),
        ({"messages": ["text"]}, "malformed"),
        ({"messages": [{"content": "text"}]}, "malformed"),
        (messages(("narrator", "text")), "unknown_role"),
        (messages(("user", None)), "null_content"),
        ({"prompt": None}, "null_content"),
        (messages(("user", [{"type": "image_url", "image_url": "x"}])), "not_text"),
        (messages(("user", 5)), "not_text"),
        (messages(("user", "a"), ("tool", "b")), "tools"),
        (messages(("user", "a"), tools=[{"name": "search"}]), "tools"),
        ({"messages": [{"role": "assistant", "content": None, "tool_calls": [1]}]}, "tools"),
        (messages(("user", "a"), ("system", "b")), "late_system"),
        ({"turns": [PLACEHOLDER]}, "placeholder"),
        (messages(("system", "a")), "no_supervised_token"),
        (messages(("assistant", "a")), "no_supervised_token"),
    ],
)
def test_what_is_no_use_is_dropped_for_its_reason(row: Any, reason: str) -> None:
    assert one(row).reason == reason


@pytest.mark.parametrize("none", [None, [], "", "[]", "null"])
def test_a_column_of_tools_that_names_none_is_no_tool(none: Any) -> None:
    assert one(messages(("user", "a"), tools=none)).reason is None


def test_a_row_that_reads_like_an_earlier_one_is_dropped() -> None:
    rows = [{"prompt": "Name  two rivers.\n"}, messages(("user", "name two RIVERS.")), {"turns": ["Other"]}]
    findings = lint(RawRow("f", n, row) for n, row in enumerate(rows, start=1))
    assert [f.reason for f in findings] == [None, "duplicate", None]


def test_a_dropped_row_does_not_make_a_later_one_a_duplicate() -> None:
    rows = [messages(("user", "a"), ("system", "b")), {"prompt": "a"}]
    assert [f.reason for f in lint(RawRow("f", 1, row) for row in rows)] == ["late_system", None]


def test_files_are_read_as_lines_gzipped_lines_or_one_array(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "category": "x"}, {"prompt": "b", "category": "y"}]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "a.jsonl").write_text("\ufeff" + text + "\n\n", encoding="utf-8")
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=1))
    for name in ("a.jsonl", "a.jsonl.gz", "a.json"):
        assert [row.value for row in read_source(str(tmp_path / name))] == rows
    assert [row.value for row in read_source(f"{tmp_path}/a.jsonl/y")] == rows[1:]
    assert [row.value for row in read_source(f"{tmp_path}/a.jsonl:1")] == rows[:1]


def test_a_line_with_half_a_character_is_dropped_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "\\ud83d"}\n{"prompt": "\\ud83d\\ude00"}\n')
    assert [f.reason for f in lint(read_source(str(path)))] == ["broken_json", None]


def test_a_file_that_is_missing_or_cut_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"prompt": "a"}\n' * 100)[:30])
    with pytest.raises(SpecError, match="not a whole gzip file"):
        read_source(str(tmp_path / "a.jsonl.gz"))
    with pytest.raises(SpecError, match="no prompt file"):
        read_source(str(tmp_path / "none" / "a.jsonl"))
    (tmp_path / "e.jsonl").write_text("\n")
    with pytest.raises(SpecError, match="has no rows"):
        read_source(str(tmp_path / "e.jsonl"))
