"""From a spec to a drafter. Past this point nothing asks for a mechanism's name."""

from pathlib import Path

from codraft.core.errors import SpecError
from codraft.core.spec import DrafterSpec, ExternalSpec, NgramSpec, Sampling, SuffixSpec
from codraft.decode.drafter import Drafter
from codraft.drafters.external import ExternalDrafter
from codraft.drafters.ngram import NgramDrafter
from codraft.drafters.suffix import SuffixDrafter
from codraft.formats.vocab import difference, read_vocab


def build(spec: DrafterSpec, vocab_size: int, target_folder: Path, sampling: Sampling, dtype: str) -> Drafter:
    """A drafter for a target with this vocabulary; a pair that cannot work is a SpecError."""
    if isinstance(spec, NgramSpec):
        return NgramDrafter(spec)
    if isinstance(spec, SuffixSpec):
        return SuffixDrafter(spec)
    return build_external(spec, vocab_size, target_folder, sampling, dtype)


def check_spec(spec: DrafterSpec, sampling: Sampling) -> None:
    """Refuse what flags and config files alone show to be impossible."""
    if not isinstance(spec, ExternalSpec):
        return
    if spec.draft == "sample" and sampling.greedy:
        raise SpecError(
            f"drafter '{spec.name}': draft=sample needs --temperature above 0; greedy drafts fit greedy decoding"
        )
    if spec.layers is not None:
        from codraft.decode.hf.load import keep_layers, read_config, resolve_folder

        config = read_config(resolve_folder(spec.path), spec.path)
        keep_layers(config.get_text_config(decoder=True), spec.layers, spec.path)


def build_external(
    spec: ExternalSpec, vocab_size: int, target_folder: Path, sampling: Sampling, dtype: str
) -> ExternalDrafter:
    """Load the drafter model and hold its vocabulary against the target's."""
    from codraft.decode.hf.load import load_model, resolve_folder

    check_spec(spec, sampling)
    folder = resolve_folder(spec.path)
    compared = check_vocabulary(spec.name, folder, target_folder)
    model = load_model(spec.path, dtype, layers=spec.layers)
    if model.vocab_size != vocab_size and not compared:
        raise SpecError(
            f"drafter '{spec.name}': vocabulary of {model.vocab_size} against the target's {vocab_size}, and no "
            "tokenizer.json to compare; an external drafter needs the target's vocabulary"
        )
    return ExternalDrafter(spec, model, vocab_size, sampling)


def check_vocabulary(name: str, drafter_folder: Path, target_folder: Path) -> bool:
    """Refuse a drafter whose ids mean other strings than the target's; False where a tokenizer file is missing."""
    ours, theirs = read_vocab(target_folder), read_vocab(drafter_folder)
    if ours is None or theirs is None:
        return False
    differing = difference(ours, theirs)
    if differing:
        shown = "; ".join(
            f"id {i} is {ours.get(i)!r} for the target, {theirs.get(i)!r} for the drafter" for i in differing[:3]
        )
        raise SpecError(
            f"drafter '{name}': its tokenizer differs from the target's in {len(differing)} ids ({shown}); an external "
            "drafter needs the target's vocabulary"
        )
    return True
