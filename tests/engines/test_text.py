"""Launch files as text: odd names arrive whole, bad input is refused, and every file parses."""

import json
import re
import string
import subprocess
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codraft.core.errors import SpecError
from codraft.core.schema import DrafterInfo, ScheduleEntry
from codraft.core.spec import MECHANISMS, NgramSpec, SuffixSpec, options_of

from tests.engines.reading import after, assert_parses, entry, files, trtllm_config, vllm_config, words


@pytest.mark.parametrize(
    "path",
    [
        "models/with space",
        "it's",
        'say "hi"',
        "$(touch /tmp/x) `y` ${HOME} !z",
        "back\\slash",
        "./a@b",
        "line\nbreak",
        "Grüße/模型",
        "emoji \U0001f600",
        "bell\x07 del\x7f nel\x85 bom\ufeff",
        "# not a comment: [x, y] {z}",
    ],
)
def test_odd_names_arrive_as_they_are(path: str) -> None:
    drafter = DrafterInfo(name="external", mechanism="external", id=path, options={"draft": "greedy"})
    texts = files(entry(1, "external", 2), target=path, drafters=[drafter])
    assert_parses(texts)
    assert vllm_config(texts["vllm.sh"])["model"] == path
    assert trtllm_config(texts["trtllm.yaml"])["speculative_model"] == path
    for name, place in (("vllm.sh", 2), ("sglang.sh", 4), ("trtllm.sh", 1)):
        assert seen_by_bash(texts[name])[place] == path


def seen_by_bash(script: str) -> list[str]:
    """The words that bash itself makes of the command: every program in it is replaced by one that prints them."""
    shown = "show() { printf '%s\\0' \"$@\"; }\n"
    body = re.sub(r"^(vllm|python3|trtllm-serve) ", r"show \1 ", script, flags=re.MULTILINE)
    result = subprocess.run(["bash", "-c", shown + body], capture_output=True, check=True)
    return result.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize("path", ["", "-rf", "nul\0", "half \ud800"])
def test_a_name_that_no_command_line_can_hold_is_refused(path: str) -> None:
    with pytest.raises(SpecError, match="cannot stand on a command line"):
        files(entry(1), target=path)


@pytest.mark.parametrize(
    "schedule, sentence",
    [
        ([], "the schedule is empty"),
        ([entry(0)], "max_batch must rise from 1"),
        ([entry(4), entry(4)], "max_batch must rise from 1; 4 follows 4"),
        ([entry(1, "nobody", 2)], "no drafter is named 'nobody'; known: dflash, "),
        ([entry(1, "ngram", 0)], "drafter ngram with D = 0"),
        ([entry(1, None, 2)], "drafter None with D = 2"),
    ],
)
def test_a_schedule_that_no_decision_holds_is_refused(schedule: list[ScheduleEntry], sentence: str) -> None:
    with pytest.raises(SpecError, match=re.escape(sentence)):
        files(*schedule)


def test_an_unknown_mechanism_and_a_basis_without_a_machine_are_refused() -> None:
    drafter = DrafterInfo(name="x", mechanism="oracle", options={})
    with pytest.raises(SpecError, match="has the mechanism 'oracle'; launch files know: dflash"):
        files(entry(1, "x", 2), drafters=[drafter])
    with pytest.raises(SpecError, match="basis has no machine"):
        files(entry(1), basis={"engine": "torch"})


# Names and paths as users write them, shell and YAML characters included; what no path can hold is refused elsewhere.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20).filter(
    lambda text: not text.startswith("-")
)
NAME = st.text(string.ascii_letters + string.digits + "_.+-", min_size=1, max_size=8)


@st.composite
def decisions(draw: st.DrawFn) -> tuple[list[ScheduleEntry], list[DrafterInfo]]:
    drafters = [
        DrafterInfo(
            name=name,
            mechanism=mechanism,
            id=draw(st.none() | TEXTS | st.sampled_from(["demo", "demo-noisy", "a/b@c"])),
            options=draw(
                st.sampled_from(
                    [{}, options_of(NgramSpec()), options_of(SuffixSpec()), {"draft": "sample"}, {"layers": 3}]
                )
            ),
        )
        for name, mechanism in draw(st.dictionaries(NAME, st.sampled_from(MECHANISMS), min_size=1, max_size=3)).items()
    ]
    batches = sorted(draw(st.sets(st.integers(1, 512), min_size=1, max_size=5)))
    chosen = [draw(st.none() | st.sampled_from([d.name for d in drafters])) for _ in batches]
    schedule = [
        entry(batch, name, draw(st.integers(1, 64)) if name else 0) for batch, name in zip(batches, chosen, strict=True)
    ]
    return schedule, drafters


@settings(derandomize=True, deadline=None, max_examples=40)
@given(decisions(), TEXTS, TEXTS)
def test_any_decision_gives_files_that_parse_and_the_same_ones_twice(
    decision: tuple[list[ScheduleEntry], list[DrafterInfo]], target: str, machine: str
) -> None:
    schedule, drafters = decision
    basis = {"engine": "torch", "machine": f"cpu {machine}"}
    texts = files(*schedule, target=target, drafters=drafters, basis=basis)
    assert_parses(texts)
    assert texts == files(*schedule, target=target, drafters=drafters, basis=basis)
    for text in texts.values():
        text.encode()


@settings(derandomize=True, deadline=None, max_examples=200)
@given(decisions())
def test_vllm_ranges_cover_every_load_once_and_stay_within_D(
    decision: tuple[list[ScheduleEntry], list[DrafterInfo]],
) -> None:
    """The conditions that vLLM 0.32 checks: from 1, without overlap, first <= last, D in 0..num_speculative_tokens."""
    schedule, drafters = decision
    arguments = words(files(*schedule, drafters=drafters)["vllm.sh"])
    if "--speculative-config" not in arguments:
        return
    config = json.loads(after(arguments, "--speculative-config"))
    ranges = config.get("num_speculative_tokens_per_batch_size", [[1, schedule[-1].max_batch, None]])
    assert [ranges[0][0], ranges[-1][1]] == [1, schedule[-1].max_batch]
    assert all(left[1] + 1 == right[0] for left, right in pairwise(ranges))
    assert all(first <= last for first, last, _ in ranges)
    if len(ranges) > 1:
        assert max(D for _, _, D in ranges) == config["num_speculative_tokens"] > 0
