"""Where the files of a session lie, each made when first asked for, and where both sides meet: in JSON files.

vLLM runs in an environment of its own and in the background, one process for all jobs that are ready, while this
process trains heads and decodes.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from codraft.decode.hf.embedded import embedded_folder, perturb
from codraft.decode.hf.load import load_card
from codraft.decode.hf.model import HFModel
from codraft.decode.hf.text import TextCodec
from codraft.replay.measure import curve, replay
from codraft.replay.prompts import load_prompts
from codraft.replay.streams import TokenStream

from engine_tests import mtp_targets
from engine_tests.compare import Step, Way, cut
from engine_tests.live import GREEDY, Decoded, drafter_beside, load
from engine_tests.overfit import Lesson, lessons, overfit
from engine_tests.pairs import Case, Made, Pair

HERE = Path(__file__).resolve().parent
ENGINE_PYTHON = HERE.parent / ".venv-vllm" / "bin" / "python"
# Of the built-in set, for drafters that look up copies or draft on their own; and for heads, which learn them by heart.
PROMPTS = ("chat-3", "code-1", "structured-1", "code_edit-2")
LEARNT = ("chat-3", "chat-4", "code-1", "maths-3")
# For an engine's start and run on a busy machine.
SECONDS_OF_A_JOB = 240


class Desk:
    """One session. `work` is a folder that nothing else writes to."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.shares: dict[str, float] = {}
        self._targets: dict[tuple[Path, str], HFModel] = {}
        self._lessons: dict[tuple[Any, ...], list[Lesson]] = {}
        self._made: dict[str, Made] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        torch.set_num_threads(max(1, (os.cpu_count() or 2) // 2))

    @cached_property
    def target(self) -> Path:
        """The embedded model."""
        return embedded_folder("demo")

    @cached_property
    def texts(self) -> dict[str, list[int]]:
        """First turns of some built-in conversations, as the target's chat template writes them."""
        codec = TextCodec(load_card("demo").tokenizer)
        rows = {row.id: row for row in load_prompts(["demo"]).conversations}
        return {name: codec.prompt_ids(rows[name].opening, name) for name in {*PROMPTS, *LEARNT}}

    def prompts(self, pair: Pair) -> list[list[int]]:
        """What a pair is asked."""
        if pair.prompts == "ids":
            return mtp_targets.prompts()
        return [self.texts[name] for name in (PROMPTS if pair.weights in ("none", "trained") else LEARNT)]

    def folder(self, pair: Pair) -> Path:
        """Of a pair's drafter or target."""
        return self.work / "models" / pair.name

    def model(self, folder: Path, dtype: str) -> HFModel:
        """A target's weights, loaded once."""
        if (folder, dtype) not in self._targets:
            self._targets[folder, dtype] = load(folder, dtype)
        return self._targets[folder, dtype]

    def embedding(self) -> Tensor:
        """[V, H] of the embedded model."""
        weight: Tensor = self.model(self.target, "float32").model.get_input_embeddings().weight.detach()
        return weight

    def shortened(self, dropped: Sequence[int], noise: float) -> Path:
        """A copy of the embedded model without some of its layers and with noise in its matrices."""
        import transformers

        folder = self.work / "models" / "shortened"
        if not folder.exists():
            model = transformers.AutoModelForCausalLM.from_pretrained(self.target, dtype=torch.float32)
            layers = model.model.layers
            model.model.layers = torch.nn.ModuleList(layer for i, layer in enumerate(layers) if i not in dropped)
            for i, layer in enumerate(model.model.layers):
                layer.self_attn.layer_idx = i
            model.config.num_hidden_layers = len(model.model.layers)
            perturb(model, noise)
            model.save_pretrained(folder)
            transformers.AutoTokenizer.from_pretrained(self.target).save_pretrained(folder)
        return folder

    def lessons_of(self, folder: Path, pair: Pair, taps: Sequence[Any] = ()) -> list[Lesson]:
        """What a target writes after a pair's prompts, with features at these taps."""
        prompts = self.prompts(pair)
        key = (folder, tuple(map(tuple, prompts)), pair.limit, tuple(taps))
        if key not in self._lessons:
            self._lessons[key] = lessons(self.model(folder, "float32"), prompts, pair.limit + 8, taps)
        return self._lessons[key]

    def taught(self, made: Made, pair: Pair, depths: Sequence[int]) -> Any:
        """The drafter of these files, its head trained on the pair's own streams."""
        target = self.model(made.target, "float32")
        drafter: Any = drafter_beside(target, made.target, made.spec)
        taught = self.lessons_of(made.target, pair, drafter.taps)
        self.shares[pair.name] = overfit(drafter, target, taught, depths)
        return drafter

    def made(self, pair: Pair) -> Made:
        """A pair's files."""
        if pair.name not in self._made:
            self._made[pair.name] = pair.make(self, pair)
        return self._made[pair.name]

    def start(self, cases: Sequence[Case], label: str) -> None:
        """Have vLLM run these cases in the background, one after the other in one process."""
        jobs = [self.job(case) for case in cases]
        if not jobs:
            return
        file, log = self.work / f"{label}.json", self.work / f"{label}.log"
        file.write_text(json.dumps(jobs))
        environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
        command = [str(ENGINE_PYTHON), str(HERE / "record.py"), str(file)]
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)
        self._processes |= {case.name: process for case in cases}

    def job(self, case: Case) -> dict[str, Any]:
        """What record.py is told."""
        made = self.made(case.pair)
        return {
            "target": str(made.target),
            "dtype": case.dtype,
            "speculative_config": {**made.engine, "num_speculative_tokens": case.D},
            "prompts": self.prompts(case.pair),
            "max_tokens": case.limit,
            "eos_ids": sorted(self.model(made.target, "float32").eos_ids),
            "mend": list(made.mend),
            "out": str(self.record(case)),
        }

    def record(self, case: Case) -> Path:
        """Where vLLM's side of a case is written."""
        return self.work / f"{case.name}.json"

    def theirs(self, case: Case) -> dict[str, Any]:
        """vLLM's record; waits for it. An error of vLLM's is raised with its words."""
        file, process = self.record(case), self._processes[case.name]
        for _ in range(SECONDS_OF_A_JOB):
            if file.exists():
                break
            try:
                process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                continue
            if not file.exists():
                raise RuntimeError(f"vLLM ended with {process.returncode} before {case.name}; see {self.work}")
        else:
            raise RuntimeError(f"vLLM wrote nothing for {case.name} in {SECONDS_OF_A_JOB} s; see {self.work}")
        record: dict[str, Any] = json.loads(file.read_text())
        if "error" in record:
            raise RuntimeError(f"vLLM refuses {case.name}: {record['error']}")
        return record

    def their_ways(self, case: Case) -> list[Way]:
        """vLLM's steps, counted as codraft counts them."""
        eos_ids = self.model(self.made(case.pair).target, "float32").eos_ids
        return [cut(way_of(request), eos_ids) for request in self.theirs(case)["requests"]]

    def ours(self, case: Case) -> Decoded:
        """Our drafter, live on the same prompts."""
        made, pair = self.made(case.pair), case.pair
        target = self.model(made.target, case.dtype)
        drafter = drafter_beside(target, made.target, made.spec)
        return Decoded(target, drafter, self.prompts(pair), case.limit, case.D)

    def replayed_AL(self, case: Case) -> float:
        """What replay makes of the target's own answers to a case's prompts, each as long as it is asked to be."""
        made, target = self.made(case.pair), self.model(self.made(case.pair).target, case.dtype)
        streams = []
        for i, lesson in enumerate(self.lessons_of(made.target, case.pair)):
            prompt, output = lesson.tokens_T[: lesson.first].tolist(), lesson.tokens_T[lesson.first :].tolist()
            streams.append(
                TokenStream(
                    index=i, conversation=str(i), turn=0, category=None, prompt_ids=prompt, output_ids=output,
                    asked=min(case.limit, len(output)),
                )
            )  # fmt: skip
        drafter = drafter_beside(target, made.target, made.spec)
        [point] = curve(replay(target, drafter, streams, GREEDY, target.eos_ids, [case.D]).by_depth, streams)
        return point.AL

    def close(self) -> None:
        """End what is still running."""
        for process in set(self._processes.values()):
            if process.poll() is None:
                process.terminate()
                process.wait()


def way_of(request: dict[str, Any]) -> Way:
    """A request of a record."""
    steps = (Step(step["anchor"], tuple(step["drafted"]), step["accepted"]) for step in request["steps"])
    return Way(tuple(request["output_ids"]), tuple(steps))
