"""Step times of every mechanism, learned ones included, in one profile."""

from pathlib import Path

from codraft.core.spec import Sampling, parse_drafters
from codraft.measure.profile import ProfileJob, run_profile

from tests.mechanisms import Mechanisms
from tests.study.desk import ListUi


def test_a_profile_times_the_drafting_of_every_mechanism(mechanisms: Mechanisms, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "abc abc"}\n{"prompt": "xyz"}\n')
    job = ProfileJob(
        target=str(mechanisms.target),
        drafters=parse_drafters(mechanisms.drafters),
        prompts=[str(prompts)],
        batches=[2],
        contexts=[20],
        depths=[3],
        rounds=1,
        sampling=Sampling(),
        dtype="float64",
    )
    plain, drafted = run_profile(job, ListUi()).points
    assert (plain.D, plain.t_draft_s) == (0, {})
    assert drafted.D == 3
    assert list(drafted.t_draft_s) == mechanisms.names
    assert all(seconds > 0 for seconds in drafted.t_draft_s.values())
