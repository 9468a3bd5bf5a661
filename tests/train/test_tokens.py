"""Token files: what goes in comes out, and what is no whole file of ours is refused."""

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file

from codraft.core.errors import SpecError
from codraft.train.tokens import Origin, Row, TokenFile, write_tokens

SMALL, LARGE = 1 << 16, (1 << 16) + 1


def origin(vocab_size: int = 300) -> Origin:
    """Of rows that nobody wrote."""
    return Origin(target="toy", vocab_size=vocab_size, template="chat", sampling=[{"temperature": 0.0}])


def row(ids: list[int], mask: list[bool], category: str | None = None) -> Row:
    """From plain lists."""
    return Row(np.array(ids, dtype=np.int64), np.array(mask, dtype=bool), category)


def rows_of(vocab_size: int) -> st.SearchStrategy[list[Row]]:
    """Up to nine rows of up to 20 tokens, the largest id of the vocabulary among them."""
    token = st.one_of(st.integers(0, vocab_size - 1), st.just(vocab_size - 1))
    pairs = st.lists(st.tuples(token, st.booleans()), min_size=1, max_size=20)
    made = st.tuples(pairs, st.sampled_from([None, "code", "maths"])).map(
        lambda drawn: row([i for i, _ in drawn[0]], [m for _, m in drawn[0]], drawn[1])
    )
    return st.lists(made, max_size=9)


@given(st.sampled_from([2, 300, SMALL, LARGE, 1 << 20]).flatmap(lambda v: st.tuples(st.just(v), rows_of(v))))
def test_rows_come_back_as_they_were_written(drawn: tuple[int, list[Row]]) -> None:
    vocab_size, rows = drawn
    with TemporaryDirectory() as folder:
        path = Path(folder, "t.safetensors")
        write_tokens(path, rows, origin(vocab_size))
        file = TokenFile(path)
        assert len(file) == len(rows)
        for index, expected in enumerate(rows):
            found = file.row(index)
            assert found.ids.tolist() == expected.ids.tolist()
            assert found.mask.tolist() == expected.mask.tolist()
            assert found.category == expected.category
        assert file.lengths.tolist() == [len(r.ids) for r in rows]
        assert file.num_tokens == sum(len(r.ids) for r in rows)
        assert file.num_supervised == sum(int(r.mask.sum()) for r in rows)
        assert sum(file.rows_by_category().values()) == len(rows)
        assert file.origin == origin(vocab_size)


@pytest.mark.parametrize("vocab_size,width", [(SMALL, 2), (LARGE, 4)])
def test_a_token_takes_two_bytes_where_the_vocabulary_allows(tmp_path: Path, vocab_size: int, width: int) -> None:
    sizes = []
    for count in (1000, 3000):
        path = tmp_path / f"{count}.safetensors"
        write_tokens(path, [row([vocab_size - 1] * count, [True] * count)], origin(vocab_size))
        sizes.append(path.stat().st_size)
    assert abs((sizes[1] - sizes[0]) / 2000 - (width + 1 / 8)) < 0.01


@given(st.lists(st.booleans(), max_size=30))
def test_spans_are_the_runs_of_the_mask(mask: list[bool]) -> None:
    spans = row([0] * len(mask), mask).spans()
    rebuilt = [any(first <= t < last for first, last in spans) for t in range(len(mask))]
    assert rebuilt == mask
    assert all(left[1] < right[0] for left, right in pairwise(spans))


def test_empty_rows_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    write_tokens(path, [row([], []), row([1, 2], [False, True])], origin())
    assert len(TokenFile(path)) == 1


@pytest.mark.parametrize("token", [300, -1])
def test_an_id_outside_the_vocabulary_is_refused_and_nothing_is_written(tmp_path: Path, token: int) -> None:
    path = tmp_path / "t.safetensors"
    with pytest.raises(SpecError, match=f"token id {token} is outside the target's vocabulary of 300"):
        write_tokens(path, [row([1, token], [True, True])], origin())
    assert list(tmp_path.iterdir()) == []


def test_equal_rows_give_equal_bytes(tmp_path: Path) -> None:
    contents = set()
    for number in range(8):
        path = tmp_path / f"{number}.safetensors"
        write_tokens(path, [row([1, 2], [False, True], "é")], origin())
        contents.add(path.read_bytes())
    assert len(contents) == 1


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    write_tokens(path, [row([1, 2, 3], [True] * 3)], origin())
    content = path.read_bytes()
    for size in (0, 4, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(SpecError, match="cannot read"):
            TokenFile(path)


def test_a_safetensors_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"weight": np.zeros(3, dtype=np.float32)}, path)
    with pytest.raises(SpecError, match="no token file of codraft"):
        TokenFile(path)


HARM: dict[str, tuple[str, Any]] = {
    "ids as floats": ("tokens", np.ones(5, dtype=np.float32)),
    "an id outside": ("tokens", np.array([1, 2, 300, 4, 5], dtype=np.uint16)),
    "ends in two dimensions": ("ends", np.array([[3], [5]], dtype=np.int64)),
    "no ends": ("ends", np.zeros(0, dtype=np.int64)),
    "an end below zero": ("ends", np.array([-3, 5], dtype=np.int64)),
    "an empty row": ("ends", np.array([5, 5], dtype=np.int64)),
    "ends before the tokens do": ("ends", np.array([2, 4], dtype=np.int64)),
    "a mask of floats": ("mask", np.ones(1, dtype=np.float32)),
    "no mask": ("mask", np.zeros(0, dtype=np.uint8)),
    "a long mask": ("mask", np.zeros(2, dtype=np.uint8)),
    "a category too few": ("category", np.zeros(1, dtype=np.uint16)),
    "a category that has no name": ("category", np.array([0, 2], dtype=np.uint16)),
    "an origin that is no JSON": ("origin", "{"),
    "an origin without a target": ("origin", '{"vocab_size": 300, "template": "chat"}'),
    "an origin with more": ("origin", '{"target": "a", "vocab_size": 300, "template": "chat", "more": 1}'),
    "an origin that is a list": ("origin", "[]"),
    "a vocabulary that is a text": ("origin", '{"target": "a", "vocab_size": "300", "template": "chat"}'),
    "a vocabulary of none": ("origin", '{"target": "a", "vocab_size": 0, "template": "chat"}'),
    "deep nesting": ("origin", "[" * 100_000),
    "categories that are numbers": ("categories", "[1]"),
    "categories that are none": ("categories", "{}"),
}


@pytest.mark.parametrize("harm", HARM)
def test_a_broken_file_is_one_sentence(harm: str, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    write_tokens(path, [row([1, 2, 3], [True] * 3, "a"), row([4, 5], [False, True])], origin())
    with safe_open(path, framework="np") as handle:
        told, arrays = handle.metadata(), {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118
    name, value = HARM[harm]
    (told if isinstance(value, str) else arrays)[name] = value
    save_file(arrays, path, metadata=told)
    with pytest.raises(SpecError, match=str(path)):
        TokenFile(path)


def test_rows_of_more_categories_than_two_bytes_count(tmp_path: Path) -> None:
    path, count = tmp_path / "t.safetensors", (1 << 16) + 2
    write_tokens(path, [row([1], [True], f"c{i:06d}") for i in range(count)], origin())
    assert TokenFile(path).row(count - 1).category == f"c{count - 1:06d}"


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no"):
        TokenFile(tmp_path / "none.safetensors")
