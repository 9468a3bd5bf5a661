"""From a spec to a drafter: the one place that knows mechanisms by name."""

from pathlib import Path

from codraft.core.errors import SpecError
from codraft.core.spec import DrafterSpec, ExternalSpec, NgramSpec, Sampling
from codraft.decode.drafter import Drafter
from codraft.decode.target import Target
from codraft.drafters.external import ExternalDrafter
from codraft.drafters.ngram import NgramDrafter
from codraft.formats.vocab import difference, read_vocab


def build(spec: DrafterSpec, target: Target, target_folder: Path | None, sampling: Sampling, dtype: str) -> Drafter:
    """A drafter ready for `target`; a pair that cannot work is a SpecError."""
    if isinstance(spec, NgramSpec):
        return NgramDrafter(spec)
    return build_external(spec, target, target_folder, sampling, dtype)


def build_external(
    spec: ExternalSpec, target: Target, target_folder: Path | None, sampling: Sampling, dtype: str
) -> ExternalDrafter:
    """Load the drafter model and hold its vocabulary against the target's."""
    from codraft.decode.hf.load import load_model, resolve_folder

    if spec.draft == "sample" and sampling.greedy:
        raise SpecError(f"drafter '{spec.name}': draft=sample needs --temperature above 0; greedy drafts fit greedy decoding")
    folder = resolve_folder(spec.path)
    if target_folder is not None:
        check_vocabulary(spec.name, folder, target_folder)
    model = load_model(spec.path, dtype).model
    if model.vocab_size != target.vocab_size and (target_folder is None or read_vocab(folder) is None):
        raise SpecError(
            f"drafter '{spec.name}': vocabulary of {model.vocab_size} against the target's {target.vocab_size}, and no "
            "tokenizer.json to compare; an external drafter needs the target's vocabulary"
        )
    return ExternalDrafter(spec, model, target.vocab_size, sampling)


def check_vocabulary(name: str, drafter_folder: Path, target_folder: Path) -> None:
    """Refuse a drafter whose ids mean other strings than the target's."""
    ours, theirs = read_vocab(target_folder), read_vocab(drafter_folder)
    if ours is None or theirs is None:
        return
    differing = difference(ours, theirs)
    if differing:
        shown = "; ".join(
            f"id {i} is {ours.get(i)!r} for the target, {theirs.get(i)!r} for the drafter" for i in differing[:3]
        )
        raise SpecError(
            f"drafter '{name}': its tokenizer differs from the target's in {len(differing)} ids ({shown}); an external "
            "drafter needs the target's vocabulary"
        )
