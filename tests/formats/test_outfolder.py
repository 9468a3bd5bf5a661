"""A folder of results is whole or absent."""

from pathlib import Path

import pytest

from codraft.core.errors import SpecError
from codraft.formats.outfolder import check_new_folder, new_folder


def test_a_folder_appears_when_the_block_ends_and_with_all_parents(tmp_path: Path) -> None:
    goal = tmp_path / "a" / "b" / "out"
    check_new_folder(goal)
    assert list(tmp_path.iterdir()) == []
    with new_folder(goal) as folder:
        (folder / "file").write_text("x")
        assert not goal.exists()
    assert (goal / "file").read_text() == "x"
    assert (goal.stat().st_mode & 0o777) == 0o755
    assert [path.name for path in goal.parent.iterdir()] == ["out"]


def test_an_error_leaves_nothing_not_even_parents(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), new_folder(tmp_path / "a" / "b" / "out") as folder:
        (folder / "file").write_text("x")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_is_filled_also_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    check_new_folder(tmp_path / "link")
    with new_folder(tmp_path / "link") as folder:
        (folder / "file").write_text("x")
    assert (tmp_path / "real" / "file").exists()
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize(("name", "words"), [("file", "it is a file"), ("full", "the folder holds files already")])
def test_what_is_there_is_refused_and_stays(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    with pytest.raises(SpecError, match=words):
        check_new_folder(tmp_path / name)
    # Also where it came there meanwhile.
    with pytest.raises(SpecError, match="cannot write"), new_folder(tmp_path / name) as folder:
        (folder / "other").write_text("theirs")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["file", "full", "full/file"]
    assert (tmp_path / "file").read_text() == (tmp_path / "full" / "file").read_text() == "mine"


def test_a_place_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for act in (check_new_folder, lambda path: new_folder(path).__enter__()):
        with pytest.raises(SpecError, match="cannot write"):
            act(tmp_path / "file" / "out")
