"""A head that looks untrained is named wherever a drafter is loaded, and a trained one is not."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from codraft.core.spec import Sampling, parse_drafters
from codraft.replay.generate import GenerateJob, run_generation
from codraft.replay.job import AcceptJob, Workbench
from codraft.replay.prompts import Conversation

from tests.mechanisms import Mechanisms
from tests.study.desk import ListUi


@pytest.mark.parametrize("mechanism", ["eagle3", "dflash", "dspark"])
def test_a_head_whose_norms_are_as_made_is_named_where_it_is_loaded(
    mechanism: str, mechanisms: Mechanisms, tmp_path: Path
) -> None:
    shutil.copytree(mechanisms.heads[mechanism], tmp_path / "fresh")
    file = tmp_path / "fresh" / "model.safetensors"
    tensors = load_file(file)
    save_file({name: torch.ones_like(t) if "norm" in name else t for name, t in tensors.items()}, file)
    fresh, trained = f"{mechanism}:{tmp_path / 'fresh'}", f"{mechanism}:{mechanisms.heads[mechanism]},name=other"

    ui = ListUi()
    job = AcceptJob(
        target=str(mechanisms.target), drafters=parse_drafters([fresh, trained]), depths=[1], prompts=["demo"]
    )
    assert len(Workbench(job, ui).drafters) == 2
    named = [title for title in ui.titles if "untrained" in title]
    assert len(named) == 1
    assert named[0].startswith(f"drafter {tmp_path / 'fresh'} looks untrained: all ")
    assert "norms are as initialised" in named[0]

    ui = ListUi()
    conversation = Conversation("one", None, "here", ({"role": "user", "content": "abc"},))
    run_generation(
        GenerateJob(target=str(mechanisms.target), conversations=[conversation], drafter=parse_drafters([fresh])[0],
                    D=1, max_new_tokens=2, sampling=Sampling()), ui,
    )  # fmt: skip
    assert [title for title in ui.titles if "untrained" in title] == named
