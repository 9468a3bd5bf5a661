"""Vocabularies from tokenizer files, and where two of them differ."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.errors import SpecError
from codraft.core.inspection import Vocabulary
from codraft.formats import jsonfile
from codraft.formats import vocab as module
from codraft.formats.sample import sample_ids
from codraft.formats.vocab import (
    Vocab,
    byte_level,
    compare,
    compare_sources,
    difference,
    read_vocab,
    source_vocab,
    special_ids,
)

from tests.checkpoints import write_tokenizer


class Files:
    """A source in memory that counts what is read."""

    def __init__(self, **files: Any) -> None:
        self.label = "m"
        self.bytes_read = 0
        self.files = {
            name.replace("__", "."): content if isinstance(content, bytes) else json.dumps(content).encode()
            for name, content in files.items()
        }

    def sizes(self) -> dict[str, int]:
        """Bytes of each file."""
        return {name: len(content) for name, content in self.files.items()}

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        """A piece of a file."""
        content = self.files[name][start:stop]
        self.bytes_read += len(content)
        return content


def folder_source(folder: Path) -> Files:
    """What lies in a folder."""
    source = Files()
    source.files = {path.name: path.read_bytes() for path in folder.iterdir()}
    return source


def of(source: Files) -> Vocab:
    """The vocabulary, which must be there."""
    found = source_vocab(source)
    assert found is not None
    return found


def vocab(strings: dict[int, str], added: set[int] | None = None) -> Vocab:
    """A vocabulary made by hand."""
    return Vocab(file="tokenizer.json", strings=strings, added=frozenset(added or ()))


def base64_text(token: bytes) -> str:
    """Base64 as text."""
    return base64.b64encode(token).decode()


def field_bytes(number: int, value: bytes | int) -> bytes:
    """A short protobuf field."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


def piece(text: str, kind: int | None = None) -> bytes:
    """A sentencepiece entry with a score, and a type unless it is the normal one."""
    entry = field_bytes(1, text.encode()) + bytes([2 << 3 | 5]) + b"\0\0\x80\xbf"
    return field_bytes(1, entry + (b"" if kind is None else field_bytes(3, kind)))


def tokenizer(folder: Path, data: Any) -> Path:
    """A folder with this tokenizer.json."""
    (folder / "tokenizer.json").write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return folder


def test_a_folder_without_a_tokenizer_file_has_no_vocabulary(tmp_path: Path) -> None:
    assert read_vocab(tmp_path) is None


def test_a_token_table_is_read_by_id_with_added_tokens_on_top(tmp_path: Path) -> None:
    data = {
        "model": {"vocab": {"a": 0, "ü": 1, "old": 2}},
        "added_tokens": [{"id": 2, "content": "<|end|>"}, {"id": 5, "content": "<|pad|>"}],
    }
    assert read_vocab(tokenizer(tmp_path, data)) == {0: "a", 1: "ü", 2: "<|end|>", 5: "<|pad|>"}


def test_a_unigram_list_is_read_in_its_order(tmp_path: Path) -> None:
    data = {"model": {"vocab": [["<unk>", 0.0], ["a", -1.5]]}, "added_tokens": None}
    assert read_vocab(tokenizer(tmp_path, data)) == {0: "<unk>", 1: "a"}


@pytest.mark.parametrize(
    "data",
    [
        "{",
        "[" * 100_000,
        "[]",
        {},
        {"model": {}},
        {"model": {"vocab": 3}},
        {"model": {"vocab": [[]]}},
        {"model": {"vocab": {"a": "x"}}},
        '{"model": {"vocab": {"a": Infinity}}}',
        {"model": {"vocab": {}}, "added_tokens": [{"id": 1}]},
        {"model": {"vocab": {"a": 0, "b": 0}}},
        {"model": {"vocab": {"a": -1}}},
        {"model": {"vocab": {"a": 2**31}}},
        {"model": {"vocab": {"a": 1.0}}},
        {"model": {"vocab": {"a": True}}},
        {"model": {"vocab": {"a": "1"}}},
        {"model": {"vocab": [[3, 0.0]]}},
        {"model": {"vocab": "abc"}},
        {"model": {"vocab": {}}, "added_tokens": [{"id": 1, "content": "a"}, {"id": 1, "content": "b"}]},
        {"model": {"vocab": {}}, "added_tokens": [{"id": "1", "content": "a"}]},
        {"model": {"vocab": {}}, "added_tokens": [{"id": -1, "content": "a"}]},
        {"model": {"vocab": {}}, "added_tokens": 5},
    ],
)
def test_a_tokenizer_file_that_cannot_be_read_is_named(data: Any, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"tokenizer\.json is not a tokenizer file that can be read"):
        read_vocab(tokenizer(tmp_path, data))


def test_a_tokenizer_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match="is not a tokenizer file"):
        read_vocab(tmp_path)


def test_ids_with_other_strings_or_in_one_vocabulary_only_differ() -> None:
    assert difference({0: "a", 1: "b", 2: "c"}, {0: "a", 1: "x", 3: "d"}) == [1, 2, 3]


VOCABS = st.dictionaries(st.integers(0, 20), st.sampled_from("abc"))


@given(VOCABS, VOCABS)
def test_the_difference_is_empty_exactly_for_equal_vocabularies(ours: dict[int, str], theirs: dict[int, str]) -> None:
    assert (difference(ours, theirs) == []) == (ours == theirs)
    assert difference(ours, theirs) == difference(theirs, ours)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.just(2**40)
    | st.just(10**30)
    | st.floats()
    | st.text(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "content", "a"]), inner, max_size=3)
    ),
    max_leaves=6,
)
TOKENIZERS = st.fixed_dictionaries(
    {}, optional={"added_tokens": JSON, "model": JSON | st.fixed_dictionaries({"vocab": JSON, "merges": JSON})}
)
ANY_FILES = st.one_of(
    st.fixed_dictionaries({"tokenizer__json": TOKENIZERS}, optional={"tokenizer_config__json": JSON}),
    st.fixed_dictionaries(
        {"vocab__json": JSON},
        optional={
            "added_tokens__json": JSON,
            "tokenizer_config__json": st.fixed_dictionaries({"added_tokens_decoder": JSON, "eos_token": JSON}),
        },
    ),
    st.fixed_dictionaries({"tekken__json": st.fixed_dictionaries({"config": JSON, "vocab": JSON})}),
    st.fixed_dictionaries({"tokenizer__model": st.binary(max_size=20)}),
    st.fixed_dictionaries({"tokenizer__model": st.binary(max_size=20).map(lambda tail: b"\n" + tail)}),
    st.fixed_dictionaries({"q__tiktoken": st.binary(max_size=20)}),
    st.fixed_dictionaries({"config__json": st.fixed_dictionaries({"eos_token_id": JSON, "text_config": JSON})}),
)


def refusal(read: Callable[[], object]) -> str | None:
    """The sentence of a refusal, None where there is none."""
    try:
        read()
    except SpecError as error:
        return str(error)
    return None


@given(ANY_FILES)
def test_any_content_is_a_vocabulary_or_one_sentence_that_names_the_file(files: dict[str, Any]) -> None:
    source = Files(**files)
    for sentence in (refusal(lambda: source_vocab(source)), refusal(lambda: special_ids(source))):
        assert sentence is None or (sentence.startswith("m/") and "\n" not in sentence and len(sentence) < 400)
    if refusal(lambda: source_vocab(source)) is None and (found := source_vocab(source)):
        assert all(type(i) is int and i >= 0 and isinstance(token, str) for i, token in found.strings.items())
        assert found.added <= found.strings.keys()


WHOLE = {
    "tokenizer__json": json.dumps(
        {"added_tokens": [], "model": {"vocab": {f"t{i}": i for i in range(50)}, "merges": ["a b"]}}
    ).encode(),
    "tokenizer__model": b"".join(piece(f"t{i}") for i in range(50)),
}


@given(st.integers(0, 2000), st.sampled_from(sorted(WHOLE)))
def test_a_truncated_file_is_refused_or_cut_between_two_pieces(length: int, name: str) -> None:
    full, part = Files(**{name: WHOLE[name]}), Files(**{name: WHOLE[name][:length]})
    if refusal(lambda: source_vocab(part)) is None:
        kept = of(part).strings
        assert kept == {i: f"t{i}" for i in range(len(kept))}
        assert kept == of(full).strings or name == "tokenizer__model"


def test_a_source_without_tokenizer_files_has_no_vocabulary() -> None:
    assert source_vocab(Files(config__json={}, tokenizer_config__json={})) is None


def test_merges_are_skipped_only_where_nothing_else_goes_with_them() -> None:
    merges = [["\\", '"'], ["]", "}"], ["}", "}"]]
    model = {"vocab": {"a": 0, '"merges": [': 1, "merges": 2, '"merges"': 3}, "merges": merges}
    added = [{"id": 4, "content": "<x>"}]
    expected = {0: "a", 1: '"merges": [', 2: "merges", 3: '"merges"', 4: "<x>"}
    for data in (
        {"added_tokens": added, "model": model},
        {"added_tokens": added, "model": dict(reversed(model.items()))},
        {"model": model, "added_tokens": added},
        {"model": model, "added_tokens": added, "post": {"merges": []}},
        {"normalizer": {"merges": [1]}, "added_tokens": added, "model": model},
    ):
        for indent in (None, 2):
            raw = json.dumps(data, indent=indent).encode()
            assert of(Files(tokenizer__json=raw)).strings == expected


def test_tokens_of_tokenizer_config_fill_ids_that_tokenizer_json_leaves_free() -> None:
    found = of(
        Files(
            tokenizer__json={"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 1, "content": "<s>"}]},
            tokenizer_config__json={"added_tokens_decoder": {"1": {"content": "<t>"}, "7": {"content": "<pad>"}}},
            added_tokens__json={"<never>": 9},
        )
    )
    assert found == Vocab(file="tokenizer.json", strings={0: "a", 1: "<s>", 7: "<pad>"}, added=frozenset({1, 7}))


def test_vocab_json_is_read_with_the_tokens_that_stand_beside_it() -> None:
    found = of(
        Files(
            vocab__json={"a": 0, "b": 1},
            added_tokens__json={"<x>": 2},
            tokenizer_config__json={"added_tokens_decoder": {"1": {"content": "<b>"}}},
        )
    )
    assert found == Vocab(file="vocab.json", strings={0: "a", 1: "<b>", 2: "<x>"}, added=frozenset({1, 2}))


def test_a_sentencepiece_model_is_read_piece_by_piece() -> None:
    rest = field_bytes(2, b"trainer") + field_bytes(3, b"normalizer")
    raw = piece("<unk>", 2) + piece("<s>", 3) + piece("<0x0A>", 6) + piece("\u2581the") + piece("<user>", 4) + rest
    found = of(Files(tokenizer__model=raw))
    assert found.strings == dict(enumerate(["<unk>", "<s>", "<0x0A>", "\u2581the", "<user>"]))
    assert (found.file, sorted(found.added)) == ("tokenizer.model", [1, 4])


@pytest.mark.parametrize("name", ["tokenizer__model", "tiktoken__model", "qwen__tiktoken"])
def test_tiktoken_lines_are_read_in_the_byte_level_alphabet(name: str) -> None:
    lines = "".join(f"{base64_text(token)} {rank}\n" for rank, token in enumerate([b"a", b" the", b"\n", b"\xc3\xbc"]))
    found = of(Files(**{name: lines.encode()}))
    assert found.strings == {0: "a", 1: "\u0120the", 2: "\u010a", 3: "\u00c3\u00bc"}
    assert found.file == name.replace("__", ".")


def test_a_byte_level_string_is_what_the_tokenizers_library_makes_of_the_bytes() -> None:
    from tokenizers import pre_tokenizers

    text = "a ü\n\t\x00\u2581日本"
    pre = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    assert byte_level(text.encode()) == pre.pre_tokenize_str(text)[0][0]
    assert sorted(byte_level(bytes(range(256)))) == sorted(pre_tokenizers.ByteLevel.alphabet())


def test_tekken_ranks_count_from_behind_the_special_tokens() -> None:
    data = {
        "config": {"default_num_special_tokens": 2, "default_vocab_size": 4},
        "vocab": [
            {"rank": rank, "token_bytes": base64_text(token)} for rank, token in enumerate([b" a", b"b", b"cut"])
        ],
        "special_tokens": [{"rank": 0, "token_str": "<unk>"}, {"rank": 1, "token_str": "<s>"}],
    }
    found = of(Files(tekken__json=data))
    assert found == Vocab(
        file="tekken.json", strings={0: "<unk>", 1: "<s>", 2: "\u0120a", 3: "b"}, added=frozenset({0, 1})
    )
    assert difference(found.strings, of(Files(tekken__json={**data, "special_tokens": None})).strings) == [0, 1]


def test_a_git_lfs_pointer_is_not_a_vocabulary_and_two_of_them_are_not_equal() -> None:
    source = Files(tokenizer__json=b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(SpecError, match=r"^m/tokenizer.json is a Git LFS pointer"):
        compare_sources(source, source)


def test_a_file_too_large_for_a_tokenizer_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonfile, "TOKENIZER_LIMIT_BYTES", 10)
    source = Files(tokenizer__json=b" " * 11)
    with pytest.raises(SpecError, match="11 bytes, and at most 10 are read"):
        source_vocab(source)
    assert source.bytes_read == 0


BASE = {i: f"t{i}" for i in range(10)}


def test_equal_vocabularies_are_equal_whatever_rows_both_embeddings_have() -> None:
    found = compare(vocab(BASE), vocab(BASE), 16, 16)
    assert (found.verdict, found.num_differing, found.num_without_row, found.shared_strings) == ("equal", 0, 0, 10)
    assert compare(vocab(BASE), vocab(BASE)).verdict == "equal"
    assert compare(vocab(BASE), vocab(BASE)).safe_padding is None


def test_padding_is_safe_as_long_as_every_id_has_a_row_in_both() -> None:
    """Qwen2.5: 151,936 rows for the small ones, 152,064 for the large ones, 151,665 ids."""
    found = compare(vocab(BASE), vocab(BASE), 20, 12)
    assert (found.verdict, found.safe_padding, found.num_without_row) == ("padded", True, 0)
    short = compare(vocab(BASE), vocab(BASE), 20, 8)
    assert (short.verdict, short.safe_padding, short.num_without_row) == ("padded", False, 2)


def test_a_few_tokens_that_one_side_added_are_named() -> None:
    more = {**BASE, 10: "<think>", 11: "</think>"}
    for target, drafter in ((BASE, more), (more, BASE)):
        found = compare(vocab(target), vocab(drafter, {10, 11}), 16, 12)
        assert (found.verdict, found.num_differing, found.num_differing_added) == ("extended", 2, 2)
        assert found.extra == ["<think>", "</think>"]
        assert (found.safe_padding, found.shared_strings) == (True, 10)
    assert compare(vocab(more), vocab(BASE), 16, 11).safe_padding is False
    assert found.examples[0] == {"id": 10, "target": "<think>", "drafter": None, "added": True}


def test_the_same_strings_under_other_ids_are_permuted_though_the_sizes_agree() -> None:
    swapped = {**BASE, 3: "t4", 4: "t3"}
    found = compare(vocab(BASE), vocab(swapped), 10, 10)
    assert (found.verdict, found.num_differing, found.shared_strings) == ("permuted", 2, 10)
    assert found.safe_padding is False
    assert found.examples == [
        {"id": 3, "target": "t3", "drafter": "t4", "added": False},
        {"id": 4, "target": "t4", "drafter": "t3", "added": False},
    ]


def test_other_strings_of_the_same_number_are_different() -> None:
    found = compare(vocab(BASE), vocab({**BASE, 5: "<tool>", 11: "x"}, {5}), 12, 12)
    assert (found.verdict, found.num_target, found.num_drafter) == ("different", 10, 11)
    assert (found.num_differing, found.num_differing_added, found.shared_strings) == (2, 1, 9)
    assert [example["id"] for example in found.examples] == [5, 11]


@given(VOCABS, VOCABS, st.none() | st.integers(0, 25), st.none() | st.integers(0, 25))
def test_every_verdict_means_what_it_says(
    ours: dict[int, str], theirs: dict[int, str], rows_target: int | None, rows_drafter: int | None
) -> None:
    found = compare(vocab(ours), vocab(theirs), rows_target, rows_drafter)
    clash = [i for i in ours.keys() & theirs.keys() if ours[i] != theirs[i]]
    assert found.num_differing == len(difference(ours, theirs))
    assert (found.verdict in ("equal", "padded")) == (ours == theirs)
    assert (found.verdict == "extended") == (ours != theirs and not clash)
    if found.verdict == "permuted":
        assert {ours[i] for i in clash} <= set(theirs.values())
        assert {theirs[i] for i in clash} <= set(ours.values())
    if found.verdict == "padded":
        assert None not in (rows_target, rows_drafter)
        assert rows_target != rows_drafter
    if found.safe_padding:
        assert rows_target is not None
        assert rows_drafter is not None
        assert not clash
        assert all(i < min(rows_target, rows_drafter) for i in ours | theirs)
    mirrored = compare(vocab(theirs), vocab(ours), rows_drafter, rows_target)
    assert (mirrored.verdict, mirrored.safe_padding) == (found.verdict, found.safe_padding)


def test_examples_are_short_and_can_be_written_to_any_file() -> None:
    found = compare(vocab({0: "\ud800", 1: "a" * 1000}), vocab({0: "b", 1: "c"}))
    assert found.examples[0]["target"] == "\\ud800"
    assert len(found.examples[1]["target"]) == 80


def checkpoint(**more: Any) -> Files:
    """A source with a small tokenizer.json."""
    return Files(tokenizer__json={"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": []}, **more)


def test_files_of_equal_bytes_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "parse", lambda files: pytest.fail("parsed"))
    for rows_target, rows_drafter in ((4, 4), (4, None), (None, None)):
        found = compare_sources(checkpoint(), checkpoint(), rows_target, rows_drafter, [0, 1])
        assert (found.verdict, found.num_differing, found.num_target) == ("equal", 0, None)
        assert (found.affected_share, found.file_target, found.file_drafter) == (
            0.0,
            "tokenizer.json",
            "tokenizer.json",
        )


def test_files_of_equal_bytes_are_parsed_where_rows_differ() -> None:
    found = compare_sources(checkpoint(), checkpoint(), 4, 3)
    assert (found.verdict, found.safe_padding, found.num_target) == ("padded", True, 2)


def test_a_token_added_beside_equal_files_is_found() -> None:
    config = {"added_tokens_decoder": {"2": {"content": "<pad>"}}}
    found = compare_sources(checkpoint(), checkpoint(tokenizer_config__json=config))
    assert (found.verdict, found.extra) == ("extended", ["<pad>"])


def test_without_a_tokenizer_file_nothing_is_known_but_what_was_read() -> None:
    found = compare_sources(checkpoint(), Files(config__json={}), 4, 4, [0])
    assert found == Vocabulary(
        verdict="unknown", num_target=None, num_drafter=None, rows_target=4, rows_drafter=4, num_differing=None,
        examples=[], shared_strings=None, safe_padding=None, file_target="tokenizer.json",
    )  # fmt: skip


def test_special_ids_come_from_generation_config_then_config_then_the_tokenizers() -> None:
    source = Files(
        generation_config__json={"eos_token_id": [7, 5], "pad_token_id": None},
        config__json={"eos_token_id": 2, "bos_token_id": 1, "pad_token_id": -1, "text_config": {"unk_token_id": [0]}},
        tokenizer_config__json={
            "pad_token": {"content": "<pad>"},
            "bos_token": "<never>",
            "added_tokens_decoder": {"9": {"content": "<pad>"}},
        },
    )
    assert special_ids(source) == {"eos": [5, 7], "bos": 1, "unk": 0, "pad": 9}
    assert special_ids(Files()) == {}


def test_special_tokens_with_other_ids_are_told() -> None:
    ours = checkpoint(config__json={"eos_token_id": 1, "bos_token_id": 0, "pad_token_id": 0})
    theirs = checkpoint(config__json={"eos_token_id": [0, 1], "bos_token_id": [0]})
    assert compare_sources(ours, theirs).special == {"eos": {"target": 1, "drafter": [0, 1]}}


@pytest.mark.parametrize("value", ["2", True, [1, None], {"a": 1}, 1.5])
def test_a_special_id_that_is_no_number_is_named(value: Any) -> None:
    with pytest.raises(SpecError, match=r"^m/config.json is not a config file that can be read .* is no token id"):
        special_ids(Files(config__json={"eos_token_id": value}))


def test_the_affected_share_counts_tokens_of_the_sample_that_mean_something_else(tmp_path: Path) -> None:
    target, drafter = tmp_path / "target", tmp_path / "drafter"
    write_tokenizer(target, 260)
    ids = json.loads((target / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    ids["a"], ids["b"] = ids["b"], ids["a"]
    write_tokenizer(drafter, ids)
    ours, theirs = folder_source(target), folder_source(drafter)
    (sample,) = sample_ids(ours, ["aabc"])
    found = compare_sources(ours, theirs, 260, 260, sample)
    assert (found.verdict, found.affected_share) == ("permuted", 0.75)
    assert compare_sources(ours, theirs, sample=[]).affected_share is None
    assert compare_sources(ours, theirs).affected_share is None


def test_ids_without_a_row_in_the_drafter_are_affected(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, 260)
    source = folder_source(tmp_path)
    ((a, z),) = sample_ids(source, ["az"])
    assert a < z
    found = compare_sources(source, source, 260, z, [a, a, a, z])
    assert (found.verdict, found.safe_padding, found.affected_share) == ("padded", False, 0.25)
