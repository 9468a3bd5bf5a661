"""Studies of tests/study take no time for step times and pages, unless a test asks for the real ones."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from codraft.study.spec import StudySpec
from codraft.study.store import Store

from tests.study.desk import counting, instant_kernels, instant_steps, question, run


@pytest.fixture(scope="session")
def spec(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> StudySpec:
    """What the studies here are asked."""
    return question(tiny_model_dir, tmp_path_factory.mktemp("question"))


@pytest.fixture
def real_steps() -> None:
    """Asked for by a test that times real steps."""


@pytest.fixture
def real_page() -> None:
    """Asked for by a test that writes the real page."""


@pytest.fixture(autouse=True)
def instant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here waits for a clock or draws a figure."""
    make_instant(
        monkeypatch, steps="real_steps" not in request.fixturenames, page="real_page" not in request.fixturenames
    )


def make_instant(patch: pytest.MonkeyPatch, *, steps: bool = True, page: bool = True) -> None:
    patch.setattr("codraft.study.timing.time_kernels", instant_kernels)
    if steps:
        patch.setattr("codraft.study.timing.time_steps", instant_steps)
    if page:
        patch.setattr("codraft.study.run.write_page", write_short_page)


def write_short_page(folder: Path) -> None:
    (folder / "report.html").write_text("page")


@pytest.fixture
def makes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of records, as they are made."""
    made: list[str] = []
    monkeypatch.setattr(Store, "cached", counting(made))
    return made


@pytest.fixture(scope="session")
def finished(spec: StudySpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study of `spec`, done; not to be touched."""
    return made_once(spec, tmp_path_factory)


@pytest.fixture(scope="session")
def finished_for_two(spec: StudySpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same at B = 1 and 2."""
    return made_once(replace(spec, batch=[1, 2]), tmp_path_factory)


def made_once(spec: StudySpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies") / "s"
    with pytest.MonkeyPatch.context() as patch:
        make_instant(patch)
        run(spec, folder)
    return folder


@pytest.fixture
def done(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished study, to do with as one likes."""
    shutil.copytree(finished, tmp_path / "s")
    return tmp_path / "s"
