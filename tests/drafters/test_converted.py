"""A converted head computes what the authors' own code computes with the original: in every layout that can hold it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from safetensors.torch import load_file, save_file
from torch import Tensor

from codraft.core.errors import SpecError
from codraft.formats.heads.convert import convert
from codraft.formats.heads.plan import Conversion
from codraft.formats.heads.spellings import LAYOUTS

from tests.checkpoints import write_checkpoint
from tests.drafters import test_dflash, test_dspark, test_eagle3, test_mtp

GOLDEN = Path(__file__).parents[1] / "golden" / "heads"
EMBED, HEAD = "embed_tokens.weight", "lm_head.weight"
# By mechanism: the module whose test compares a golden with our reader's head, and that test.
PROOFS: dict[str, tuple[ModuleType, Callable[[str], None]]] = {
    "eagle3": (test_eagle3, test_eagle3.test_published_code_gives_the_same_logits_at_every_step),
    "dflash": (test_dflash, test_dflash.test_published_code_gives_the_same_block_behind_every_anchor),
    "dspark": (test_dspark, test_dspark.test_published_code_gives_the_same_logits_and_confidences),
    "mtp": (test_mtp, test_mtp.test_published_code_gives_the_same_logits_at_every_step),
}
CASES = [
    (folder.name, layout)
    for folder in sorted(GOLDEN.iterdir())
    if folder.is_dir() and (mechanism := folder.name.partition("_")[0]) in LAYOUTS
    for layout in LAYOUTS[mechanism]
    # What a family's own golden has proved already.
    if layout not in folder.name.partition("_")[2]
]
# The pairs that no layout's words allow, checked so that none is refused unseen.
REFUSED = {
    ("dflash_speculators", "zlab"), ("dspark_speculators", "deepspec"), ("dspark_speculators", "specforge"),
    ("dspark_speculators", "modelopt"), ("dspark_speculators_same_slot", "deepspec"),
    ("dspark_speculators_same_slot", "specforge"), ("dspark_speculators_same_slot", "modelopt"),
    ("dspark_deepspec_bare", "modelopt"), ("dspark_deepspec_gated", "modelopt"),
    ("eagle3_specforge_no_norm", "speculators"), ("eagle3_speculators_qwen3", "safeailab"),
    ("eagle3_speculators_sliding", "safeailab"), ("eagle3_speculators_sliding", "modelopt"),
    ("mtp_deepseek_v3", "speculators"), ("mtp_glm4_moe", "speculators"),
    ("mtp_speculators_qwen3", "native"),
}  # fmt: skip


def prepared(source: Path, folder: Path) -> tuple[Path, dict[str, Tensor]]:
    """A target with the ends that the golden's head borrows or holds a copy of, and the golden with both ends in it."""
    golden, stored = load_file(source / "golden.safetensors"), load_file(source / "model.safetensors")
    ends = {
        name: next(
            (table[key] for table, key in (
                (golden, f"target.{name.removesuffix('.weight')}"), (stored, name), (stored, f"model.{name}"),
                (golden, "target.embed_tokens"), (stored, EMBED), (stored, f"model.{EMBED}")) if key in table), None,
        )
        for name in (EMBED, HEAD)
    }  # fmt: skip
    config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 8}
    target = write_checkpoint(folder / "target", config, {})
    # A head of its own over fewer tokens is not the target's.
    embedding = ends[EMBED]
    assert embedding is not None
    whole = {name: end for name, end in ends.items() if end is not None and end.shape == embedding.shape}
    names = {EMBED: "model.embed_tokens.weight", HEAD: HEAD}
    save_file({names[name]: end.contiguous() for name, end in whole.items()}, target / "model.safetensors")
    more = {f"target.{name.removesuffix('.weight')}": end.contiguous() for name, end in whole.items()}
    return target, {**more, **golden}


@pytest.mark.parametrize(("case", "layout"), CASES)
def test_a_converted_head_gives_the_logits_of_published_code(
    case: str, layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = GOLDEN / case
    target, golden = prepared(source, tmp_path)

    # Modules bring their target's config along.
    named = None if case.startswith("mtp") else str(target)

    def run(engine: str | None) -> Path:
        request = Conversion(source=str(source), to=layout, output=tmp_path / case, target=named, engine=engine)
        convert(request)
        return request.output

    if (case, layout) in REFUSED:
        with pytest.raises(SpecError, match=r"files c|files of MTP hold|has MTP modules of its own"):
            run("vllm" if case.startswith("eagle3") else None)
        return
    try:
        folder = run(None)
    except SpecError as error:
        if "--engine vllm" not in str(error):
            raise
        folder = run("vllm")
    save_file(golden, folder / "golden.safetensors")
    shutil.copy(source / "golden.json", folder / "golden.json")
    # Native modules are written beside the golden's numbers as a file of another name.
    if (folder / "mtp.safetensors").exists():
        (folder / "mtp.safetensors").rename(folder / "model.safetensors")
    module, proof = PROOFS[case.partition("_")[0]]
    monkeypatch.setattr(module, "GOLDEN", tmp_path)
    proof(case)
