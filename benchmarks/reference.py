"""AL of the drafters that come with codraft, on prompts that none was trained on, beside what needs no training.

    python benchmarks/reference.py [PROMPTS] [STREAMS.jsonl]

PROMPTS is as for `codraft accept` (default spec-bench:96). STREAMS keeps the target's answers from one run to the next.
Greedy, float32, all D = 1..8 by replay. `bigram` drafts the token that most often followed the last one in the training
text: the least that a trained drafter must beat; `ngram` copies.
"""

import sys
from pathlib import Path

import numpy as np

from codraft.core.schema import DrafterInfo
from codraft.core.spec import parse_drafter
from codraft.decode.drafter import Drafter, Features, Unrolled
from codraft.drafters.beside import Beside
from codraft.drafters.ngram import NgramDrafter
from codraft.drafters.registry import build
from codraft.formats.shipped import MODELS, PREFIX, shipped
from codraft.replay.measure import curve, domain_masks, replay, replay_together
from codraft.replay.prompts import load_prompts
from codraft.replay.streams import Writing, load_streams, save_streams, write_streams
from codraft.train.tokens import TokenFile
from common import GREEDY, finish, load, show

TOKENS = MODELS / f"{PREFIX}answers.safetensors"
DEPTHS = range(1, 9)
AT, MARGIN = 4, 0.15
NEW_TOKENS = 128
# What each was meant to reach at D = 4; dspark is to pass dflash.
AIMS = {"external": 2.2, "eagle3": 2.0, "mtp": 1.8, "dflash": 1.7}
HEADS = ("external", "eagle3", "mtp", "dflash", "dspark")


class Bigram(NgramDrafter):
    """For each token the one that followed it most often in the target's answers; itself again where none did."""

    def __init__(self, data: TokenFile) -> None:
        super().__init__(parse_drafter("ngram,name=bigram"))  # type: ignore[arg-type]
        self.info = DrafterInfo(name="bigram", mechanism="ngram", options={})
        V = data.origin.vocab_size
        pairs = []
        for index in range(len(data)):
            row = data.row(index)
            wanted = np.flatnonzero(row.mask[1:]) + 1
            pairs.append(row.ids[wanted - 1] * V + row.ids[wanted])
        codes, counts = np.unique(np.concatenate(pairs), return_counts=True)
        order = np.argsort(counts, kind="stable")
        self.next_V = np.arange(V)
        # The last write wins: the most frequent.
        self.next_V[codes[order] // V] = codes[order] % V

    def unroll(self, prompt_ids: object, output_ids: object, features: Features, D: int) -> Unrolled:
        """Draft i stands on the stream's own token before it, as after hits it does."""
        tokens = np.asarray(output_ids)
        hit_T = self.next_V[tokens[:-1]] == tokens[1:]
        padded = np.concatenate([hit_T, np.zeros(D, dtype=bool)])
        hit_AD = np.lib.stride_tricks.sliding_window_view(padded, D)[: len(tokens) - 1]
        return Unrolled(np.full(len(tokens) - 1, D, dtype=np.int64), hit_AD)


def main() -> int:
    """Print figures and the record."""
    source = sys.argv[1] if len(sys.argv) > 1 else "spec-bench:96"
    kept = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    model, card, codec = load("float32")
    if kept is not None and kept.exists():
        held = load_streams(kept, codec, card.eos_ids, card.vocab_size, max(DEPTHS))
    else:
        how = Writing(
            sampling=GREEDY, max_new_tokens=NEW_TOKENS, tail=max(DEPTHS), batch=8, window=model.window, skip_long=True
        )
        prompts = load_prompts([source])
        held = write_streams(model, codec, prompts.conversations, how, name=source, progress=show("write streams"))
        if kept is not None:
            save_streams(kept, held, "demo")
    streams = held.measurable
    beside = Beside.of(card, GREEDY, "float32", lambda: model)
    plain: list[Drafter] = [build(parse_drafter("ngram"), beside), Bigram(TokenFile(TOKENS))]
    learnt = [build(parse_drafter(f"{name}:{folder}"), beside) for name, folder in shipped().items()]
    logs = {d.info.name: replay(None, d, streams, GREEDY, card.eos_ids, DEPTHS) for d in plain}
    found = replay_together(model, learnt, streams, GREEDY, card.eos_ids, DEPTHS, show("replay"))
    logs |= {d.info.name: log for d, log in zip(learnt, found, strict=True)}
    figures: dict[str, object] = {"prompts": source, "streams": len(streams), "output_tokens": held.num_tokens}
    AL: dict[str, float] = {}
    masks = domain_masks(streams)
    for name, log in logs.items():
        points = curve(log.by_depth, streams)
        figures[f"AL {name}"] = {str(p.D): round(p.AL, 3) for p in points}
        at = next(p for p in points if p.D == AT)
        figures[f"AL({AT}) {name} 95 %"] = None if at.AL_ci95 is None else [round(x, 3) for x in at.AL_ci95]
        AL[name] = at.AL
        figures[f"AL({AT}) {name} by domain"] = {
            domain: round(next(p.AL for p in curve(log.by_depth, streams, select) if p.D == AT), 2)
            for domain, (_, select) in masks.items()
            if not domain.startswith("context ")
        }
    AL |= {name: 0.0 for name in HEADS if name not in AL}
    floor = max(AL["ngram"], AL["bigram"]) + MARGIN
    goals = {f"{name} at least {MARGIN} above ngram and bigram": AL[name] >= floor for name in HEADS}
    goals |= {f"{name} reaches {aim}": AL[name] >= aim for name, aim in AIMS.items()}
    goals["dspark above dflash"] = AL["dspark"] > AL["dflash"]
    return finish("reference", figures, goals, model.dtype)


if __name__ == "__main__":
    sys.exit(main())
