"""Published drafters on their targets, at full size: the right summary, the warnings they deserve, no false error."""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codraft.core.errors import SpecError
from codraft.core.inspection import HeadSummary, InspectionRecord, ModelSummary
from codraft.models.inspect.job import inspect
from codraft.models.inspect.pair import Question

from tests.checkpoints import (
    Layout,
    Tensor,
    as_layout,
    header_bytes,
    layout_bytes,
    llama_tensors,
    random_pieces,
    write_tokenizer,
)

GOLDEN = Path(__file__).parents[2] / "golden"
Fixture = dict[str, Any]
# Values that a drafter may hold a copy of, and those of MTP modules; of all other tensors of a target the headers are
# enough, but for the small models that draft.
SHARED = re.compile(r"(^|\.)(embed_tokens|lm_head)\.weight$|^mtp\.|^model\.layers\.61\.")
SMALL = ("Qwen3-0.6B", "Qwen2.5-0.5B")
# Rows at the end of a vocabulary, where Llama 3 and Qwen have their special tokens.
SPECIALS = 400
# Families as the summary should have them: mixers, FFNs, G, head width, bytes of cache for a token at two bytes, MTP.
# Cache by hand: layers x 2 x KV heads x head width x 2; MLA: layers x (latent + rotated key) x 2; windowed layers not.
FAMILIES: dict[str, tuple[dict[str, int], dict[str, int], int | None, int | None, int, int]] = {
    "Llama-3.1-8B": ({"full": 32}, {"dense": 32}, 4, 128, 32 * 2 * 8 * 128 * 2, 0),
    "Llama-3.1-70B": ({"full": 80}, {"dense": 80}, 8, 128, 80 * 2 * 8 * 128 * 2, 0),
    "Vicuna-13B-v1.3": ({"full": 40}, {"dense": 40}, 1, 128, 40 * 2 * 40 * 128 * 2, 0),
    "Qwen2.5-0.5B": ({"full": 24}, {"dense": 24}, 7, 64, 24 * 2 * 2 * 64 * 2, 0),
    "Qwen2.5-72B": ({"full": 80}, {"dense": 80}, 8, 128, 80 * 2 * 8 * 128 * 2, 0),
    "Qwen3-0.6B": ({"full": 28}, {"dense": 28}, 2, 128, 28 * 2 * 8 * 128 * 2, 0),
    "Qwen3-8B": ({"full": 36}, {"dense": 36}, 4, 128, 36 * 2 * 8 * 128 * 2, 0),
    "Qwen3-32B": ({"full": 64}, {"dense": 64}, 8, 128, 64 * 2 * 8 * 128 * 2, 0),
    "Qwen3-30B-A3B": ({"full": 48}, {"moe": 48}, 8, 128, 48 * 2 * 4 * 128 * 2, 0),
    "Qwen3-Next-80B-A3B": ({"linear": 36, "full": 12}, {"moe": 48}, 8, 256, 12 * 2 * 2 * 256 * 2, 0),
    "Qwen3.5-27B": ({"linear": 48, "full": 16}, {"dense": 64}, 6, 256, 16 * 2 * 4 * 256 * 2, 1),
    "Qwen3.5-35B-A3B": ({"linear": 30, "full": 10}, {"moe": 40}, 8, 256, 10 * 2 * 2 * 256 * 2, 1),
    "DeepSeek-V3": ({"mla": 61}, {"dense": 3, "moe": 58}, 128, 192, 61 * (512 + 64) * 2, 1),
    "Kimi-K2.5": ({"mla": 61}, {"dense": 1, "moe": 60}, 64, 192, 61 * (512 + 64) * 2, 0),
    "gpt-oss-20b": ({"sliding": 12, "full": 12}, {"moe": 24}, 8, 64, 12 * 2 * 8 * 64 * 2, 0),
    "gpt-oss-120b": ({"sliding": 18, "full": 18}, {"moe": 36}, 8, 64, 18 * 2 * 8 * 64 * 2, 0),
    "Nemotron-3-Nano-30B-A3B": (
        {"mamba": 23, "none": 23, "full": 6}, {"none": 29, "moe": 23}, 16, 128, 6 * 2 * 2 * 128 * 2, 1,
    ),
    "MiniMax-M2.5": ({"full": 62}, {"moe": 62}, 6, 128, 62 * 2 * 8 * 128 * 2, 0),
    "SmolLM2-135M": ({"full": 30}, {"dense": 30}, 3, 64, 30 * 2 * 3 * 64 * 2, 0),
    "Gemma-3-270M": ({"sliding": 15, "full": 3}, {"dense": 18}, 4, 256, 3 * 2 * 1 * 256 * 2, 0),
    "Gemma-2-2B": ({"sliding": 13, "full": 13}, {"dense": 26}, 2, 256, 13 * 2 * 4 * 256 * 2, 0),
    "Mistral-7B-v0.1": ({"sliding": 32}, {"dense": 32}, 4, 128, 0, 0),
    "Mixtral-8x7B": ({"full": 32}, {"moe": 32}, 4, 128, 32 * 2 * 8 * 128 * 2, 0),
    "GLM-4.5-Air": ({"full": 46}, {"dense": 1, "moe": 45}, 12, 128, 46 * 2 * 8 * 128 * 2, 1),
    "Phi-3-mini": ({"sliding": 32}, {"dense": 32}, 1, 96, 0, 0),
    "Llama-4-Scout-17B-16E": ({"chunked": 36, "full": 12}, {"moe": 48}, 5, 128, 12 * 2 * 8 * 128 * 2, 0),
    "LFM2-1.2B": ({"conv": 10, "full": 6}, {"dense": 16}, 4, 64, 6 * 2 * 8 * 64 * 2, 0),
    "Falcon-7B": ({"full": 32}, {"dense": 32}, 71, 64, 32 * 2 * 1 * 64 * 2, 0),
    "GPT-2": ({"full": 12}, {"dense": 12}, 1, 64, 12 * 2 * 12 * 64 * 2, 0),
    "Kimi-Linear-48B-A3B": ({"linear": 20, "mla": 7}, {"dense": 1, "moe": 26}, 32, 192, 7 * (512 + 64) * 2, 0),
}  # fmt: skip
# Targets that a head of this one was not made for, and what gives each away.
WRONG = {
    "Llama-3.1-8B": {"Llama-3.1-70B": "hidden.mismatch", "Qwen3-8B": "vocab.size"},
    "Qwen3-8B": {"Qwen3-32B": "hidden.mismatch", "Llama-3.1-8B": "vocab.size"},
    "Vicuna-13B-v1.3": {"Llama-3.1-8B": "hidden.mismatch", "Qwen3-32B": "vocab.size"},
    "gpt-oss-20b": {"Qwen3-8B": "hidden.mismatch", "Llama-3.1-8B": "hidden.mismatch"},
    "gpt-oss-120b": {"Qwen3-8B": "hidden.mismatch", "gpt-oss-20b": "taps.range"},
    "Kimi-K2.5": {"Qwen3-8B": "hidden.mismatch", "DeepSeek-V3": "vocab.size"},
    "Qwen3.5-27B": {"Qwen3.5-35B-A3B": "hidden.mismatch", "Qwen3-32B": "vocab.size"},
    "Qwen3.5-35B-A3B": {"Qwen3.5-27B": "hidden.mismatch", "Qwen3-30B-A3B": "vocab.size"},
}
# Engines run these under the name of what they grew out of.
RUNS_AS = {"peagle": "eagle3", "dflash2": "dflash", "domino": "dflash"}
# gpt-oss-20b and 120b differ in depth alone: a head that names no layers fits both.
UNKNOWABLE = {("nvidia_gpt_oss_120b_short", "gpt-oss-20b")}


@cache
def drafters() -> dict[str, Fixture]:
    """All fixtures by file name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted((GOLDEN / "drafters").glob("*.json"))}


@cache
def targets() -> dict[str, Fixture]:
    """Config and tensors of every target."""
    models = tomllib.loads((GOLDEN / "models.toml").read_text())["model"]
    known: dict[str, Fixture] = {model["name"]: {"config": model["config"]} for model in models}
    for name, more in tomllib.loads((GOLDEN / "drafters" / "targets.toml").read_text()).items():
        config = {**(known.get(name, more)["config"]), **more.get("more", {})}
        if "text" in more:
            config["text_config"] = {**config["text_config"], **more["text"]}
        known[name] = {**more, "config": config}
    return known


def tensors_of(entry: Fixture) -> dict[str, Layout]:
    """Tensors as the fixture lists them."""
    if entry.get("dense"):
        return llama_tensors(entry["config"])
    places = {name: numbers(text) for name, text in (entry.get("places") or {}).items()}
    found: dict[str, Layout] = {}
    for pattern, text in entry.get("tensors", {}).items():
        dtype, _, shape = text.rpartition(" ")
        layout = (dtype or "BF16", tuple(int(size) for size in shape.split("x")))
        names = re.findall(r"\{(\w+)\}", pattern)
        for combination in product(*(places[name] for name in names)):
            found[pattern.format(**dict(zip(names, combination, strict=True)))] = layout
    return found


def numbers(text: str) -> list[int]:
    """ "0-9/3,12" is 0, 3, 6, 9 and 12; what stands behind "!" is left out."""
    kept, _, out = text.partition("!")
    found: list[int] = []
    for part in kept.split(","):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        found += range(int(low), int(high or low) + 1, int(step or 1))
    return sorted(set(found) - set(numbers(out))) if out else found


def values(name: str, layout: Layout, draft_ids: np.ndarray[Any, Any] | None) -> Tensor:
    """The maps of a reduced vocabulary have numbers that make sense."""
    if name == "d2t" and draft_ids is not None:
        return draft_ids - np.arange(len(draft_ids))
    if name == "t2d" and draft_ids is not None:
        marks = np.zeros(layout[1], dtype=bool)
        marks[draft_ids] = True
        return marks
    return layout


def write_weights(path: Path, tensors: Mapping[str, Tensor], seeds: Mapping[str, str] | Callable[[str], bool]) -> None:
    """A sparse safetensors file. `seeds`: whose values a tensor has where not its own, or which tensors have any."""
    with path.open("wb") as handle:
        at = handle.write(header_bytes(tensors))
        for name, tensor in tensors.items():
            dtype, size = as_layout(tensor)[0], layout_bytes(as_layout(tensor))
            if isinstance(tensor, np.ndarray):
                handle.seek(at)
                handle.write(tensor.tobytes())
            elif not callable(seeds) or seeds(name):
                for offset, data in random_pieces(name if callable(seeds) else seeds.get(name, name), dtype, size):
                    handle.seek(at + offset)
                    handle.write(data)
            at += size
        handle.truncate(at)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Writes a target once."""
    root = tmp_path_factory.mktemp("targets")

    def write(name: str) -> Path:
        folder, entry = root / name, targets()[name]
        if not folder.exists():
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(entry["config"]))
            if tensors := tensors_of(entry):
                write_weights(
                    folder / "model.safetensors",
                    tensors,
                    lambda tensor: name in SMALL or (bool(SHARED.search(tensor)) and ".experts." not in tensor),
                )
        return folder

    return write


@pytest.fixture(scope="module")
def drafter(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Writes a drafter once."""
    root = tmp_path_factory.mktemp("drafters")

    def write(key: str) -> Path:
        folder, entry = root / key, drafters()[key]
        if not folder.exists():
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(entry["config"]))
            layouts = tensors_of(entry)
            ids = None
            if "d2t" in layouts:
                vocab, count = vocab_size(entry["config"]), layouts["d2t"][1][0]
                # Bytes and special tokens are kept, which in these vocabularies stand at both ends.
                some = np.random.default_rng(0).permutation(vocab - SPECIALS - 256)[: count - SPECIALS - 256] + 256
                ids = np.sort(np.concatenate([np.arange(256), some, np.arange(vocab - SPECIALS, vocab)])).astype(
                    np.int64
                )
            tensors = {name: values(name, layout, ids) for name, layout in layouts.items()}
            write_weights(folder / "model.safetensors", tensors, entry.get("copies", {}))
        return folder

    return write


def vocab_size(config: Mapping[str, Any]) -> int:
    """The target's vocabulary as the drafter states it."""
    size = {**config, **config.get("transformer_layer_config", {})}["vocab_size"]
    assert isinstance(size, int)
    return size


def codes(record: InspectionRecord, severity: str) -> list[str]:
    """Codes of findings of this severity, sorted, once each."""
    return sorted({finding.code for finding in record.findings if finding.severity == severity})


def told(record: InspectionRecord, severity: str) -> str:
    """The findings in words, for a failed assertion."""
    return "\n".join(f"{f.code}: {f.message}" for f in record.findings if f.severity == severity)


@pytest.fixture(scope="module")
def published(target: Callable[[str], Path], drafter: Callable[[str], Path]) -> Callable[[str], InspectionRecord]:
    """Inspects a drafter on its own target, once."""

    @cache
    def run(key: str) -> InspectionRecord:
        entry = drafters()[key]
        return inspect(str(target(entry["target"])), str(drafter(key)), Question(**entry["asked"]))

    return run


@pytest.mark.parametrize("key", list(drafters()))
def test_a_published_drafter_meets_no_error_and_exactly_its_warnings_on_its_target(
    key: str, published: Callable[[str], InspectionRecord]
) -> None:
    record = published(key)
    assert codes(record, "error") == [], told(record, "error")
    assert codes(record, "warning") == drafters()[key]["warnings"], told(record, "warning")


@pytest.mark.parametrize("key", list(drafters()))
def test_the_summary_of_a_published_drafter_is_right(key: str, published: Callable[[str], InspectionRecord]) -> None:
    entry, summary = drafters()[key], published(key).drafter
    assert isinstance(summary, HeadSummary)
    assert {name: getattr(summary, name) for name in entry["summary"]} == entry["summary"]
    if "published_gb" in entry:
        assert sum(summary.weight_bytes.values()) / 1e9 == pytest.approx(entry["published_gb"], rel=0.005)


@pytest.mark.parametrize(
    ("key", "other"),
    [(key, other) for key, entry in drafters().items() for other in WRONG[entry["target"]]],
)
def test_a_drafter_on_a_target_it_was_not_made_for_is_an_error(
    key: str, other: str, tmp_path: Path, drafter: Callable[[str], Path]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(targets()[other]["config"]))
    record = inspect(str(tmp_path), str(drafter(key)), Question(**drafters()[key]["asked"]))
    expected = WRONG[drafters()[key]["target"]][other]
    known = set(codes(record, "error"))
    assert (expected in known) is ((key, other) not in UNKNOWABLE), told(record, "error")


@pytest.mark.parametrize("key", list(drafters()))
def test_a_drafter_under_another_method_is_an_error(key: str, tmp_path: Path, drafter: Callable[[str], Path]) -> None:
    entry = drafters()[key]
    ours = entry["summary"]["mechanism"]
    (tmp_path / "config.json").write_text(json.dumps(targets()[entry["target"]]["config"]))
    folders = str(tmp_path), str(drafter(key))
    wrong = [name for name in ("eagle3", "dflash", "dspark") if name not in (ours, RUNS_AS.get(ours))]
    for method in wrong[:2]:
        assert "method.mismatch" in codes(inspect(*folders, Question(method=method)), "error")
    assert "method.head_as_model" in codes(inspect(*folders, Question(method="external")), "error")
    with pytest.raises(SpecError, match=f"is a drafter's head \\({ours}"):
        inspect(folders[1])


def test_a_pickled_head_is_known_by_its_config_and_its_weights_are_not_opened(
    tmp_path: Path, target: Callable[[str], Path]
) -> None:
    entry = drafters()["safeailab_llama31_8b"]
    (tmp_path / "config.json").write_text(json.dumps(entry["config"]))
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02no pickle")
    record = inspect(str(target(entry["target"])), str(tmp_path), Question(method="eagle3"))
    assert codes(record, "error") == []
    assert codes(record, "warning") == sorted([*entry["warnings"], "weights.pickled"])
    assert isinstance(record.drafter, HeadSummary)
    assert (record.drafter.mechanism, record.drafter.draft_vocab_size) == ("eagle3", 32000)


@pytest.mark.parametrize(
    ("big", "small", "verdict", "notes"),
    [
        ("Qwen3-32B", "Qwen3-0.6B", "equal", []),
        ("Qwen2.5-72B", "Qwen2.5-0.5B", "padded", ["vocab.padded"]),
    ],
)
def test_a_small_model_of_the_family_is_an_external_drafter_without_a_fault(
    big: str, small: str, verdict: str, notes: list[str], tmp_path: Path, target: Callable[[str], Path]
) -> None:
    """The tokenizer is a stand-in of 1000 tokens, the same in both; rows of the embeddings are the published ones."""
    folders = target(big), target(small)
    for folder in folders:
        write_tokenizer(folder, 1000)
    record = inspect(str(folders[0]), str(folders[1]), Question(method="external", depth=5))
    assert codes(record, "error") == codes(record, "warning") == [], told(record, "warning")
    assert record.vocabulary is not None
    assert record.vocabulary.verdict == verdict
    assert [code for code in codes(record, "note") if code.startswith("vocab.")] == notes
    for method in ("eagle3", "dflash"):
        wrong = inspect(str(folders[0]), str(folders[1]), Question(method=method))
        assert "method.model_as_head" in codes(wrong, "error")


@pytest.mark.parametrize(
    ("name", "modules"),
    [("DeepSeek-V3", 11_610_067_968), ("Qwen3.5-35B-A3B", 844_640_768), ("Nemotron-3-Nano-30B-A3B", 1_335_325_824)],
)
def test_a_native_mtp_module_is_found_where_its_family_keeps_it(
    name: str, modules: int, target: Callable[[str], Path]
) -> None:
    record = inspect(str(target(name)), None, Question(method="mtp", depth=1))
    assert codes(record, "error") == codes(record, "warning") == [], told(record, "error") + told(record, "warning")
    assert record.target.mtp_layers == 1
    assert record.target.parameters is not None
    assert record.target.parameters.mtp == modules


@pytest.mark.parametrize("name", ["Qwen3-8B", "Qwen3.5-35B-A3B", "Nemotron-3-Nano-30B-A3B"])
def test_parameters_are_counted_from_the_headers_where_they_are_complete(
    name: str, target: Callable[[str], Path]
) -> None:
    found = inspect(str(target(name))).target.parameters
    assert found is not None
    assert found.basis == "headers"


@pytest.mark.parametrize("name", ["Llama-3.1-8B", "Qwen3-32B", "gpt-oss-120b"])
def test_mtp_without_a_module_is_an_error(name: str, target: Callable[[str], Path]) -> None:
    assert codes(inspect(str(target(name)), None, Question(method="mtp")), "error") == ["mtp.none"]


@pytest.mark.parametrize("name", list(FAMILIES))
def test_a_target_alone_has_its_summary_and_no_error(name: str, tmp_path: Path, target: Callable[[str], Path]) -> None:
    if name == "DeepSeek-V3":  # its 47,000 headers are read above
        (tmp_path / "config.json").write_text(json.dumps(targets()[name]["config"]))
    record = inspect(str(tmp_path if name == "DeepSeek-V3" else target(name)))
    assert codes(record, "error") == codes(record, "warning") == [], told(record, "error") + told(record, "warning")
    found = record.target
    assert isinstance(found, ModelSummary)
    mixers, ffns, G, head_dim, cache, mtp = FAMILIES[name]
    assert (found.mixers, found.ffns) == (mixers, ffns)
    assert (found.G, found.head_dim, found.kv_bytes_per_token["bf16"], found.mtp_layers) == (G, head_dim, cache, mtp)


def test_there_are_ten_drafters_and_fifteen_families_or_more() -> None:
    mechanisms = {entry["summary"]["mechanism"] for entry in drafters().values()}
    assert mechanisms == {"eagle3", "peagle", "dflash", "dflash2", "dspark", "domino"}
    assert len(drafters()) >= 10
    kinds = {
        (config.get("text_config") or config)["model_type"] for config in (targets()[n]["config"] for n in FAMILIES)
    }
    assert len(kinds) >= 15
    assert all(entry["source"] and isinstance(entry["assumed"], list) for entry in drafters().values())
