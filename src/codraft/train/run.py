"""One run from its first step, or from where it was saved, to its last."""

import math
import time
from dataclasses import dataclass

from codraft.core.errors import SpecError
from codraft.core.schema import AcceptanceResult
from codraft.core.training import Forecast
from codraft.replay.job import Ui
from codraft.train.card import read_facts, refuse_changed, write_drafter, write_table
from codraft.train.checkpoint import Trainable, open_trainable
from codraft.train.distributed import Ranks
from codraft.train.evaluate import depths_on_the_way, evaluate, point_at
from codraft.train.forecast import LearningPoint, forecast, sentence
from codraft.train.job import Bench, TrainJob, prepare, resume
from codraft.train.logs import Log
from codraft.train.state import Progress, save_state, trained

# Before that a learning curve says little.
SECONDS_BEFORE_FORECAST = 20 * 60.0


@dataclass(slots=True)
class Run:
    """A run in progress. `judge` is what replay measures: the drafter itself, or where it is sharded a whole copy."""

    bench: Bench
    progress: Progress
    log: Log
    judge: Trainable
    ui: Ui
    forecast: Forecast | None = None
    wall_s: float = 0.0

    def whole(self) -> None:
        """All steps that are left."""
        bench, job = self.bench, self.bench.job
        steps = bench.loop.steps
        if self.progress.step == 0 and not self.progress.points:
            self.measure()
        with self.ui.stage(f"train {job.mechanism}, {steps} steps") as report:
            while self.progress.step < steps:
                number = self.progress.step
                start = time.perf_counter()
                found = bench.loop.step(number)
                if not math.isfinite(found.loss + found.norm):
                    raise SpecError(
                        f"step {number} diverged: loss {found.loss:g}, gradient {found.norm:g}; {job.output} holds the "
                        "best drafter so far; take lower rates (--lr, --muon-lr) or a longer --warmup in another folder"
                    )
                self.progress.step, self.progress.tokens = number + 1, self.progress.tokens + found.anchors
                self.progress.seconds += time.perf_counter() - start
                self.log.step(found, self.progress)
                done = number + 1
                if done % job.eval_every == 0 or done == steps:
                    self.measure()
                if done % job.save_every == 0 or done % job.eval_every == 0 or done == steps:
                    self.save()
                report(done, steps)
        if bench.ranks.first:
            refuse_changed(job.output)
        self.tabulate()

    def measure(self) -> None:
        """AL by replay; a better one than ever before is written to the output folder."""
        bench, job = self.bench, self.bench.job
        values = trained(bench.loop.module) if bench.ranks.world > 1 else None
        if bench.ranks.first:
            if values is not None and self.judge is not bench.trainable:
                named = {name.removeprefix("lesson.").partition(".")[2]: value for name, value in values.items()}
                self.judge.module.load_state_dict(named, strict=False)
            depths = depths_on_the_way(self.judge.drafter, job.depth, job.select)
            self.take(evaluate(self.judge, bench.held, bench.source, bench.card.eos_ids, depths))
        told = bench.ranks.told((self.progress.best_AL, self.progress.best_step, self.progress.points))
        self.progress.best_AL, self.progress.best_step, self.progress.points = told

    def tabulate(self) -> None:
        """AL at every D of the best drafter, as it was written, where one D alone was measured on the way."""
        bench, job = self.bench, self.bench.job
        depths = list(range(1, job.depth + 1))
        if bench.ranks.first and read_facts(job.output)["held_out"]["AL"].keys() != {str(D) for D in depths}:
            with self.ui.stage("measure the best one at every D"):
                best = open_trainable(job.mechanism, str(job.output), bench.target, bench.card)
                best.module.to(bench.target.device)
                write_table(bench, evaluate(best, bench.held, bench.source, bench.card.eos_ids, depths))
        bench.ranks.wait()

    def take(self, result: AcceptanceResult) -> None:
        """Note an evaluation, and write the drafter where it is the best."""
        job, progress = self.bench.job, self.progress
        point = point_at(result.curve, job.select)
        interval = point.AL_ci95 or (point.AL, point.AL)
        progress.points.append([progress.tokens, point.AL, *interval])
        better = progress.best_AL < point.AL
        if better:
            progress.best_AL, progress.best_step = point.AL, progress.step
            write_drafter(self.bench, self.judge, result, progress, self.forecast)
        self.forecast = self.curve()
        self.log.evaluation(result, progress, self.forecast)
        best = "the best so far" if better else f"best {progress.best_AL:.3f} at step {progress.best_step}"
        line = f"step {progress.step}: AL({point.D}) {point.AL:.3f}, {best}"
        if self.forecast is not None and progress.seconds > SECONDS_BEFORE_FORECAST:
            line += f"; {sentence(self.forecast)}"
        with self.ui.stage(line):
            pass

    def curve(self) -> Forecast | None:
        """What the learning curve says of the end of this run, after the first twenty minutes."""
        if self.progress.seconds < SECONDS_BEFORE_FORECAST or not self.progress.step:
            return None
        points = [
            LearningPoint(int(tokens), AL, (low, high)) for tokens, AL, low, high in self.progress.points if tokens
        ]
        at = int(self.progress.tokens * self.bench.loop.steps / self.progress.step)
        return forecast(points, self.bench.job.select, at) if points else None

    def save(self) -> None:
        """The state, whole or not at all."""
        loop, ranks = self.bench.loop, self.bench.ranks
        save_state(self.bench.job.run, loop.module, loop.optimizers, self.progress, write=ranks.first)
        ranks.wait()


def train(job: TrainJob, ranks: Ranks, ui: Ui) -> Run:
    """A run to its end. One that was killed goes on where it was saved, and ends as it would have ended."""
    start = time.perf_counter()
    bench = prepare(job, ranks, ui)
    progress = resume(bench) or Progress()
    judge = bench.trainable
    if ranks.world > 1 and job.parallel == "fsdp" and ranks.first:
        judge = open_trainable(job.mechanism, str(bench.trainable.folder), bench.target, bench.card)
    run = Run(bench, progress, Log(job.run, progress, writes=ranks.first), judge, ui)
    run.whole()
    run.log.close()
    run.wall_s = time.perf_counter() - start
    return run
