"""Prompts by name, folder and category: what is found, what is downloaded, and what is refused."""

import gzip
import hashlib
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from codraft.core.errors import CapabilityError, SpecError
from codraft.replay import promptsets
from codraft.replay.prompts import load_one, load_prompts
from codraft.replay.promptsets import OPEN_SETS, RAW, OpenSet, fetch_open_set, is_placeholder, locate

from tests.served import Served, serving

SENTINEL = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
ROWS = [
    {"question_id": "q1", "category": "coding", "turns": ["a", "b"]},
    {"question_id": "q2", "category": "math", "turns": ["c"]},
    {"question_id": "q3", "category": "coding", "turns": ["d"]},
    {"question_id": "q4", "category": "coding", "turns": ["e"]},
]


def lines(*rows: Any) -> bytes:
    """JSONL."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def write(path: Path, content: bytes) -> Path:
    """A file, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def speed_rows(*turns: list[str], classes: tuple[str, ...] = ("low_entropy", "mixed", "high_entropy")) -> list[Any]:
    """Rows in the columns of SPEED-Bench, classes in turn."""
    return [
        {
            "question_id": f"id-{i}",
            "category": classes[i % len(classes)],
            "sub_category": None,
            "turns": texts,
            "source": "s",
            "src_id": "1",
            "difficulty": None,
            "multiturn": len(texts) > 1,
        }
        for i, texts in enumerate(turns)
    ]


def parquet(path: Path, rows: list[Any]) -> Path:
    """A parquet file of rows, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = importlib.import_module("pyarrow").Table.from_pylist(rows)
    importlib.import_module("pyarrow.parquet").write_table(table, path)
    return path


def refusal(source: str, base: str = "http://127.0.0.1:9") -> str:
    """The sentence that a source is refused with."""
    with pytest.raises(SpecError) as caught:
        load_one(source, base)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def ids(source: str) -> list[str]:
    """Ids of the rows of a source."""
    return [c.id for c in load_one(source, "http://127.0.0.1:9")]


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to run in, and an empty cache."""
    desk = tmp_path / "desk"
    desk.mkdir()
    monkeypatch.chdir(desk)
    monkeypatch.setenv("CODRAFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return desk


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server with synthetic files at the pinned addresses, whose hashes stand in for the real ones."""
    contents = {
        "spec-bench": lines(*ROWS),
        "mt-bench": lines(*ROWS[:2]),
        "humaneval": gzip.compress(lines({"task_id": "H/0", "prompt": "def f():\n", "entry_point": "f"}), mtime=0),
        "gsm8k": lines({"question": "2 + 2?", "answer": "#### 4"}),
    }
    files = {}
    for name, content in contents.items():
        real = OPEN_SETS[name]
        pin = OpenSet(real.repo, real.commit, real.path, hashlib.sha256(content).hexdigest())
        monkeypatch.setitem(OPEN_SETS, name, pin)
        files[pin.address("")] = content
    with serving(files) as served:
        yield served


def test_the_open_sets_are_pinned_by_commit_and_content() -> None:
    assert set(OPEN_SETS) == {"spec-bench", "mt-bench", "humaneval", "gsm8k"}
    for pin in OPEN_SETS.values():
        assert len(pin.commit) == 40
        assert len(pin.sha256) == 64
        assert int(pin.commit + pin.sha256, 16)
        assert pin.address(RAW) == f"https://raw.githubusercontent.com/{pin.repo}/{pin.commit}/{pin.path}"


@pytest.mark.parametrize(
    ("name", "file", "categories"),
    [
        ("spec-bench", "question.jsonl", ["coding", "math", "coding", "coding"]),
        ("mt-bench", "question.jsonl", ["coding", "math"]),
        ("humaneval", "HumanEval.jsonl.gz", ["code"]),
        ("gsm8k", "test.jsonl", ["maths"]),
    ],
)
def test_a_named_set_is_downloaded_once_into_the_cache(
    name: str, file: str, categories: list[str], served: Served, tmp_path: Path
) -> None:
    first = load_one(name, served.address)
    assert [c.category for c in first] == categories
    assert first[0].where == f"{name}, line 1"
    assert [path.name for path in (tmp_path / "cache" / "prompts" / name).iterdir()] == [file]
    assert load_one(name, served.address) == load_one(name, "http://127.0.0.1:9") == first
    assert served.asked == [OPEN_SETS[name].address("")]


def test_a_count_and_a_category_choose_among_a_named_set(served: Served) -> None:
    fetch_open_set("spec-bench", served.address)
    assert ids("spec-bench:2") == ["q1", "q3"]
    assert ids("spec-bench/coding") == ["q1", "q3", "q4"]
    assert ids("spec-bench/coding:2") == ["q1", "q3"]
    assert ids("spec-bench/coding/:1") == ["q1"]
    assert ids("spec-bench:999999") == ["q1", "q2", "q3", "q4"]


def test_the_name_in_records_is_the_source_as_given(served: Served) -> None:
    for name in ("spec-bench", "mt-bench"):
        fetch_open_set(name, served.address)
    prompts = load_prompts(["mt-bench:1", "spec-bench/math", "demo/code:1"])
    assert prompts.name == "mt-bench:1+spec-bench/math+demo/code:1"
    assert [c.category for c in prompts.conversations] == ["coding", "math", "code"]


def test_rows_of_two_named_sets_are_told_apart_by_name(served: Served) -> None:
    for name in ("spec-bench", "mt-bench"):
        fetch_open_set(name, served.address)
    assert [c.id for c in load_prompts(["mt-bench:1", "spec-bench:1"]).conversations] == [
        "q1",
        "q1 (spec-bench, line 1)",
    ]


def test_without_a_network_the_file_itself_is_asked_for(tmp_path: Path) -> None:
    sentence = refusal("humaneval")
    address = OPEN_SETS["humaneval"].address("http://127.0.0.1:9")
    assert sentence.startswith(f"prompt set 'humaneval' cannot be downloaded from {address} (")
    assert sentence.endswith("Connection refused); give the file itself: --prompts path/to/HumanEval.jsonl.gz")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("how", ["another file", "cut"])
def test_what_is_not_the_pinned_file_is_not_kept(how: str, served: Served, tmp_path: Path) -> None:
    if how == "cut":
        served.cut = True
    else:
        served.files[OPEN_SETS["gsm8k"].address("")] += b"\n"
    assert refusal("gsm8k", served.address).endswith("; give the file itself: --prompts path/to/test.jsonl")
    assert not (tmp_path / "cache").exists()


def test_a_category_that_no_row_has_is_refused_with_those_there(served: Served) -> None:
    assert refusal("spec-bench/cooking", served.address) == (
        "no prompt file spec-bench/cooking, and no row of spec-bench has the category 'cooking'; categories there: "
        "coding, math"
    )


def test_a_category_of_a_file_without_categories(desk: Path) -> None:
    write(desk / "a.jsonl", lines({"prompt": "x"}))
    assert refusal("a.jsonl/code").endswith("the category 'code'; categories there: none")


def test_a_file_comes_before_a_name_and_a_name_before_a_folder(desk: Path, served: Served) -> None:
    for name in ("demo", "spec-bench"):
        (desk / name).mkdir()
    assert len(load_one("demo")) >= 16
    assert len(load_one("spec-bench", served.address)) == 4
    for name in ("demo", "spec-bench"):
        (desk / name).rmdir()
        write(desk / name, lines({"id": "mine", "prompt": "x"}))
        assert ids(name) == ["mine"]


def test_a_file_of_rows_is_found_with_its_category(desk: Path) -> None:
    write(desk / "x" / "a.jsonl", lines(*ROWS))
    assert ids("x/a.jsonl/math") == ["q2"]
    assert ids(f"{desk}/x/a.jsonl/coding:1") == ["q1"]


def test_names_of_files_with_colons_and_spaces_are_files(desk: Path) -> None:
    write(desk / "a b:c.jsonl", lines({"id": "x", "prompt": "p"}))
    assert ids("a b:c.jsonl") == ids("a b:c.jsonl:5") == ["x"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none.jsonl", "no prompt file none.jsonl; give a JSONL file or a built-in set: demo, spec-bench, mt-bench"),
        ("none/code", "no prompt file none/code; give"),
        ("x" * 300, "no prompt file xxx"),
        ("x" * 300 + "/y", "no prompt file xxx"),
        ("~nobody-of-this-name/x", "no prompt file ~nobody"),
        ("nul\0", "no prompt file nul"),
        ("", "no prompt file ; give"),
        ("/", "prompts / is a folder"),
        (".", "prompts . is a folder without a parquet or JSONL file in it"),
        ("./typo", "no prompt file ./typo: prompts . is a folder without"),
        ("demo:1000000000000000000000", "no prompt file demo:1000000000000000000000; give"),
        ("speed-bench", "prompts speed-bench: name a configuration too: speed-bench/ and one of qualitative, throughp"),
        ("speed-bench/throughput_4k", "prompts speed-bench: name a configuration too"),
    ],
)
def test_a_name_without_a_file_is_refused(name: str, words: str) -> None:
    assert refusal(name).startswith(words)


@pytest.mark.parametrize("where", ["speed/qualitative", "other/qualitative"])
def test_a_prepared_folder_is_read_with_turns_and_categories(where: str, desk: Path) -> None:
    parquet(desk / where / "test.parquet", speed_rows(["a", "b"], ["c"], classes=("coding", "math")))
    first, second = load_one(where)
    assert (first.id, first.category, first.num_turns) == ("id-0", "coding", 2)
    assert (second.id, second.category, second.num_turns) == ("id-1", "math", 1)
    assert first.where == f"{where}/test.parquet, row 1"
    assert ids(f"{where}/math") == ids(f"{where}/math/:3") == ["id-1"]
    assert load_one(f"{where}/test.parquet") == load_one(f"./{where}/") == [first, second]


def test_a_throughput_folder_keeps_the_entropy_class_as_category(desk: Path) -> None:
    parquet(desk / "data/speed/throughput_16k/test.parquet", speed_rows(*([str(i)] for i in range(6))))
    assert [c.category for c in load_one("data/speed/throughput_16k:3")] == ["low_entropy", "high_entropy", "mixed"]
    assert ids("data/speed/throughput_16k/low_entropy") == ["id-0", "id-3"]
    assert ids("data/throughput_16k/mixed:1") == ["id-1"]
    assert refusal("data/throughput_16k/lowentropy").endswith("categories there: high_entropy, low_entropy, mixed")


def test_a_file_named_as_a_configuration_is_no_folder(desk: Path) -> None:
    write(desk / "speed" / "qualitative", b"")
    assert refusal("qualitative").startswith("no prompt file qualitative; give")


def test_the_folder_above_the_configurations_asks_for_one(desk: Path) -> None:
    for config in ("throughput_1k", "qualitative"):
        parquet(desk / "speed" / config / "test.parquet", speed_rows(["x"]))
    assert refusal("speed") == (
        "prompts speed is a folder of several configurations; name one of speed/qualitative, speed/throughput_1k"
    )
    assert refusal("speed/throughput_2k").startswith("no prompt file speed/throughput_2k: prompts speed is a folder of")


def test_jsonl_in_the_same_columns_is_the_same_set(desk: Path) -> None:
    rows = speed_rows(["a", "b"], ["c"])
    write(desk / "j" / "qualitative.jsonl", lines(*rows))
    write(desk / "z" / "qualitative.jsonl.gz", gzip.compress(lines(*rows)))
    parquet(desk / "p" / "part.parquet", rows)
    write(desk / "p" / "._part.parquet", b"a file manager's own")
    hashes = {load_prompts([name]).sha256 for name in ("j", "z", "p", "j/qualitative.jsonl")}
    assert len(hashes) == 1


def test_shards_of_a_split_are_read_in_order_and_all_of_them(desk: Path) -> None:
    rows = speed_rows(["a"], ["b"], ["c"])
    for i, part in enumerate((rows[:2], rows[2:])):
        parquet(desk / "q" / f"test-{i:05}-of-00002.parquet", part)
    parquet(desk / "q" / "train-00000-of-00001.parquet", speed_rows(["t"]))
    assert ids("q") == ["id-0", "id-1", "id-2"]
    (desk / "q" / "test-00001-of-00002.parquet").unlink()
    assert refusal("q") == "prompts q is a folder with 1 of the 2 files of its test split; fetch the others too"


def test_several_jsonl_files_in_a_folder_are_named(desk: Path) -> None:
    for name in ("b.jsonl", "a.jsonl"):
        write(desk / "d" / name, lines({"prompt": name}))
    assert refusal("d") == "prompts d is a folder; name a JSONL file in it, one of a.jsonl, b.jsonl"
    assert refusal("d/typo") == (
        "no prompt file d/typo: prompts d is a folder; name a JSONL file in it, one of a.jsonl, b.jsonl"
    )
    write(desk / "d" / "test.jsonl", lines({"id": "t", "prompt": "x"}))
    assert ids("d") == ["t"]


@pytest.mark.parametrize(
    "text",
    [
        SENTINEL,
        SENTINEL.lower(),
        SENTINEL + "\n\nSummarise: {article}",
        "Full benchmark data\nshould be fetched",
        "Note: the data must be fetched from the source using SpecDec-Bench.",
    ],
)
def test_a_placeholder_is_known_by_parts_of_it(text: str) -> None:
    assert is_placeholder(text)


@pytest.mark.parametrize(
    "text", ["How do I run specdec_bench?", "Fetch the full benchmark data.", "x " * 300 + SENTINEL, ""]
)
def test_other_texts_are_no_placeholders(text: str) -> None:
    assert not is_placeholder(text)


def test_unfilled_rows_are_refused_with_their_count(desk: Path) -> None:
    rows = speed_rows([SENTINEL], ["fine"], ["fine"], [SENTINEL + "\n\n{question}", SENTINEL], ["ok", SENTINEL])
    parquet(desk / "speed/throughput_1k/test.parquet", rows)
    assert refusal("speed/throughput_1k:1") == (
        "prompts speed/throughput_1k: 3 of 5 rows are placeholders of SPEED-Bench, to be filled from their sources; "
        "prepare it with the benchmark's own script (specdec_bench: prepare_data.py --dataset speed --config CONFIG) "
        "and give the folder: --prompts path/to/speed/CONFIG"
    )
    assert "throughput_1k/mixed: 1 of 2 rows are placeholders" in refusal("speed/throughput_1k/mixed")
    assert ids("speed/throughput_1k/high_entropy") == ["id-2"]


def test_unfilled_messages_are_refused_too(desk: Path) -> None:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": SENTINEL}]
    write(desk / "a.jsonl", lines({"messages": messages}, {"prompt": "x"}))
    assert "a.jsonl: 1 of 2 rows are placeholders" in refusal("a.jsonl")


def test_parquet_files_that_hold_no_prompts_are_refused(desk: Path) -> None:
    write(desk / "text.parquet", lines({"prompt": "x"}))
    assert refusal("text.parquet").startswith("cannot read text.parquet: not a parquet file of rows (")
    parquet(desk / "wrong.parquet", [{"text": "x", "question": "y"}])
    assert refusal("wrong.parquet").startswith("wrong.parquet has no column of turns, messages, prompt, only text, q")
    parquet(desk / "flat.parquet", [{"turns": "one text"}])
    assert refusal("flat.parquet") == "flat.parquet, row 1: 'turns' must be a non-empty list of texts"
    parquet(desk / "null.parquet", [{"turns": ["x"]}, {"turns": None}])
    assert refusal("null.parquet").startswith("null.parquet, row 2: no prompt in this row")
    parquet(desk / "hole.parquet", [{"turns": ["x", None]}])
    assert refusal("hole.parquet") == "hole.parquet, row 1: turn 2 must be a non-empty text"
    empty = importlib.import_module("pyarrow").table({"turns": []})
    importlib.import_module("pyarrow.parquet").write_table(empty, desk / "empty.parquet")
    assert refusal("empty.parquet") == "prompt file empty.parquet has no rows; give at least one prompt"


def test_humaneval_in_parquet_is_wrapped_as_in_jsonl(desk: Path) -> None:
    row = {"task_id": "H/0", "prompt": "def f():\n", "entry_point": "f", "canonical_solution": "c", "test": "t"}
    parquet(desk / "h.parquet", [row])
    write(desk / "h.jsonl", lines(row))
    assert load_prompts(["h.parquet"]).sha256 == load_prompts(["h.jsonl"]).sha256


def test_speed_bench_by_name_is_fetched_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = parquet(tmp_path / "hub" / "test-00000-of-00001.parquet", speed_rows(["a"], [SENTINEL], ["c"]))
    asked: list[tuple[str, str]] = []

    def fetch(repo: str, pattern: str, *, instead: str) -> list[Path]:
        asked.append((repo, pattern))
        return [file]

    monkeypatch.setattr(promptsets, "fetch_dataset", fetch)
    assert "speed-bench/throughput_1k: 1 of 3 rows are placeholders" in refusal("speed-bench/throughput_1k")
    assert [c.where for c in load_one("speed-bench/throughput_1k/low_entropy:9")] == [
        "speed-bench/throughput_1k, row 1"
    ]
    assert asked == [("nvidia/SPEED-Bench", "throughput_1k/test*.parquet")] * 2
    monkeypatch.setattr(promptsets, "fetch_dataset", lambda repo, pattern, *, instead: [file, file.parent / "b"])
    assert list(locate("speed-bench/throughput_1k").files) == [
        "speed-bench/throughput_1k test-00000-of-00001.parquet",
        "speed-bench/throughput_1k b",
    ]


def test_speed_bench_by_name_is_read_where_it_was_prepared(desk: Path, tmp_path: Path) -> None:
    parquet(tmp_path / "cache/prompts/speed/qualitative/test.parquet", speed_rows(["a"], classes=("coding",)))
    assert [c.where for c in load_one("speed-bench/qualitative/coding")] == ["speed-bench/qualitative, row 1"]
    parquet(desk / "speed-bench/qualitative/test.parquet", speed_rows(["b"]))
    assert [c.where for c in load_one("speed-bench/qualitative")] == ["speed-bench/qualitative/test.parquet, row 1"]


def test_without_pyarrow_nothing_is_fetched_and_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CapabilityError, match=r"^prompt set speed-bench/qualitative is .* pip install 'codraft\[parqu"):
        load_one("speed-bench/qualitative")
