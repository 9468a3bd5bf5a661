"""A study on a tiny model: its question, an interface that keeps the stages, step times that take no time."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from codraft.core.schema import AttentionPoint, DecisionRecord, GemmPoint, TimingPoint
from codraft.decode.drafter import Drafter
from codraft.replay.streams import Progress
from codraft.study.run import Study
from codraft.study.spec import StudySpec
from codraft.study.store import Store


class ListUi:
    """Remembers the stages' titles; can be told to fail at one."""

    def __init__(self, fail_at: str | None = None) -> None:
        self.titles: list[str] = []
        self.fail_at = fail_at

    @contextmanager
    def stage(self, title: str) -> Iterator[Progress]:
        if self.fail_at and title.startswith(self.fail_at):
            raise KeyboardInterrupt
        self.titles.append(title)
        yield lambda done, total: None

    def measured(self) -> set[str]:
        """The first words of all stages that do work."""
        return {title.split()[0] for title in self.titles if "used again" not in title}


def question(target: Path, folder: Path, **more: Any) -> StudySpec:
    """Five answers, three drafters, one of them the target itself."""
    prompts = folder / "prompts.jsonl"
    rows = [
        {"id": str(i), "category": "ab"[i % 2], "turns": ["abc abc abc " * (1 + i % 2)] + ["more"] * (i == 0)}
        for i in range(4)
    ]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked: dict[str, Any] = {
        "target": str(target),
        "drafters": ["ngram,n_min=1", "suffix", f"external:{target}"],
        "prompts": [str(prompts)],
        "max_new_tokens": 7,
        "depth": [1, 3],
        "rounds": 2,
        "confirm_prompts": 1,
        "dtype": "float64",
    }
    return StudySpec(**{**asked, **more})


def run(spec: StudySpec, folder: Path, fail_at: str | None = None) -> tuple[DecisionRecord, ListUi]:
    """The study in this folder, from where it stands."""
    ui = ListUi(fail_at)
    return Study(spec, folder, ui).run(), ui


def instant_steps(
    target: Any,
    drafters: Sequence[Drafter],
    texts: Any,
    sampling: Any,
    *,
    B: int,
    S: int,
    depths: Sequence[int],
    rounds: int,
    window: int | None = None,
    progress: Progress | None = None,
) -> list[TimingPoint]:
    """Step times of a machine on which each further token costs a twentieth."""
    verify = {D: 1 + 0.05 * D + 0.01 * B for D in depths}
    return [
        TimingPoint(
            B=B,
            S=S,
            D=D,
            x=B * (1 + D),
            t_verif_s=verify[D],
            t_sys_s=0.1,
            t_draft_s={drafter.info.name: 0.01 * D for drafter in drafters} if D else {},
            num_samples=rounds,
            p10=verify[D],
            p90=verify[D],
        )
        for D in depths
    ]


def instant_kernels(model: Any, progress: Progress | None = None) -> tuple[list[GemmPoint], list[AttentionPoint]]:
    """One point of each kind."""
    spread: dict[str, Any] = {"t_s": 1.0, "p10": 1.0, "p90": 1.0, "num_samples": 3}
    gemm = GemmPoint(layer="q_proj", n=2, k=3, M=1, flops_per_s=12.0, **spread)
    return [gemm], [AttentionPoint(B=1, S=8, D=0, rows=2, flops_per_s=1.0, bytes_per_s=2.0, **spread)]


def counting(made: list[str]) -> Callable[..., Any]:
    """`Store.cached`, noting the name of every record that is made."""
    cached = Store.cached

    def noting(self: Store, name: str, kind: Any, inputs: Any, make: Callable[[], Any]) -> Any:
        def noted() -> Any:
            made.append(name)
            return make()

        return cached(self, name, kind, inputs, noted)

    return noting
