"""What conversions refuse, and what they say: each option that a layout lacks, each faulty file, each engine."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codraft.core.conversion import ConversionRecord
from codraft.core.errors import SpecError
from codraft.formats.checkpoint import open_checkpoint
from codraft.formats.heads import write_eagle3
from codraft.formats.heads.convert import convert
from codraft.formats.heads.plan import Conversion

from tests.checkpoints import Tensor, as_initialised, bf16, write_checkpoint
from tests.formats.heads import made
from tests.formats.heads.test_read import side
from tests.models.inspect.layouts import ALL, spoken
from tests.models.inspect.pairs import DRAFT_IDS, EMBEDDING, VD, H, L, Side, V, layer

SLIDING, FULL = "sliding_attention", "full_attention"


@pytest.fixture
def target(tmp_path: Path) -> str:
    """The target of all layouts, with embedding and output head."""
    return str(spoken(ALL["dflash"]()).target.write(tmp_path / "target"))


def run(base: Side, to: str, folder: Path, target: str | None = None, engine: str | None = None) -> ConversionRecord:
    """One conversion of a base layout into `folder/out`."""
    source = base.write(folder / "head")
    return convert(Conversion(source=str(source), to=to, output=folder / "out", target=target, engine=engine))


def refused(base: Side, to: str, folder: Path, target: str | None = None, engine: str | None = None) -> str:
    """The sentence of a conversion that must not be; nothing is written."""
    with pytest.raises(SpecError) as raised:
        run(base, to, folder, target, engine)
    assert not (folder / "out").exists()
    said = str(raised.value)
    assert "\n" not in said
    return said


def with_keys(name: str, /, **more: Any) -> Side:
    """A base layout with other keys at the top; those of `layers` go where the layers are."""
    base = side(name)
    base.config |= {key: value for key, value in more.items() if key != "layers"}
    part = base.config.get("transformer_layer_config", base.config)
    part |= more.get("layers", {})
    return base


def nested(name: str, part: str, **more: Any) -> Side:
    """A base layout with other keys in a family's own part."""
    return with_keys(name, **{part: {**side(name).config.get(part, {}), **more}})


def two_layers(name: str) -> Side:
    """An EAGLE-3 layout with a plain second layer."""
    base = with_keys(name, layers={"num_hidden_layers": 2})
    base.tensors |= layer("layers.1")
    return base


def normed(name: str) -> Side:
    """An EAGLE-3 layout with norms of queries and keys."""
    base = with_keys(name, layers={"model_type": "qwen3"})
    base.tensors |= {f"layers.0.self_attn.{part}_norm.weight": ("BF16", (8,)) for part in "qk"}
    return base


def featured(name: str, **tensors: Tensor) -> Side:
    """A layout with more tensors."""
    base = side(name)
    base.tensors |= {key.replace("__", "."): tensor for key, tensor in tensors.items()}
    return base


def fc_normed() -> Side:
    """Norms of single features."""
    base = with_keys("eagle3_speculators", fc_norm=True)
    base.tensors |= {f"fc_norm.{i}.weight": ("BF16", (H,)) for i in range(3)}
    return base


def before_fc(name: str) -> Side:
    """A norm of all features."""
    key = {"norm_before_fc": True}
    base = with_keys(name, **key) if name == "eagle3_speculators" else nested(name, "eagle_config", **key)
    base.tensors["input_norm.weight"] = ("BF16", (3 * H,))
    return base


def plain_speculators() -> Side:
    """The library's layout with no option that others lack."""
    return with_keys("eagle3_speculators", norm_before_residual=False)


# (the head, where it shall go, words of the sentence)
LACKING: dict[str, tuple[Side, str, str]] = {
    "norm_before_residual": (side("eagle3_speculators"), "modelopt", "norm_before_residual"),
    "norm_output": (with_keys("eagle3_speculators", norm_before_residual=False, norm_output=True), "modelopt",
                    "norm_output (the normed state is fed back"),
    "norm_output to SafeAILab": (with_keys("eagle3_speculators", norm_before_residual=False, norm_output=True),
                                 "safeailab", "SpecForge's key of this name says something else"),
    "fc_norm": (fc_normed(), "modelopt", "fc_norm"),
    "norm_before_fc": (before_fc("eagle3_modelopt"), "safeailab",
                       "norm_before_fc only by keys of vLLM or TensorRT-LLM"),
    "no norm before the head": (with_keys("eagle3", norm_output=False), "speculators",
                                "an output head without a norm before it"),
    "several layers": (two_layers("eagle3_modelopt"), "safeailab", "2 layers (its one layer is called midlayer)"),
    "norms of queries and keys": (normed("eagle3_speculators"), "safeailab", "norms of queries and keys"),
    "windows": (with_keys("eagle3_speculators", norm_before_residual=False,
                          layers={"layer_types": [SLIDING], "sliding_window": 64}), "modelopt", "sliding windows"),
    "five features": (side("eagle3_deepspec"), "safeailab", "5 of 3 features"),
    "bias of fc": (featured("eagle3", fc__bias=("BF16", (H,))), "speculators", "have no fc.bias"),
    "latent attention": (with_keys("eagle3_modelopt", architectures=["Eagle3DeepseekV2ForCausalLM"]), "speculators",
                         "attention over a latent (MLA)"),
    "unknown switch": (nested("eagle3_modelopt", "eagle_config", eh_proj_before_attn=True), "speculators",
                       "eagle_config.eh_proj_before_attn"),
    "no features": (nested("eagle3_modelopt", "eagle_config", use_aux_hidden_state=False), "speculators",
                    "use_aux_hidden_state false"),
    "reduced vocabulary": (side("dflash_speculators"), "zlab", f"a reduced vocabulary (draft_vocab_size {VD} of {V})"),
    "reduced vocabulary of DSpark": (side("dspark_speculators"), "deepspec", "a reduced vocabulary"),
    "causal everywhere": (with_keys("dflash", is_causal=True), "speculators", "causal true, true by layer"),
    "shifted slots": (with_keys("dspark_speculators", sample_from_anchor=False), "modelopt",
                      "slots that predict their own token"),
    "mask embedding": (featured("dflash", mask_embedding=("BF16", (H,))), "speculators", "have no mask_embedding"),
    "sinks": (featured("dflash", layers__0__self_attn__sinks=("BF16", (8,))), "speculators", "self_attn.sinks"),
    "value scale": (nested("dflash", "dflash_config", attention_value_scale=0.5), "speculators",
                    "dflash_config.attention_value_scale"),
}  # fmt: skip


@pytest.mark.parametrize("name", LACKING)
def test_what_a_layout_cannot_say_is_named(name: str, tmp_path: Path, target: str) -> None:
    base, to, words = LACKING[name]
    for key in ("fc.weight", "layers.0.hidden_norm.weight") if name == "no features" else ():
        base.tensors.pop(key)
    if name == "latent attention":
        parts = ("q_proj", "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj")
        base.tensors = {key: t for key, t in base.tensors.items() if ".self_attn." not in key}
        base.tensors |= {f"layers.0.self_attn.{part}.weight": ("BF16", (H, H)) for part in parts}

    said = refused(base, to, tmp_path, target)

    assert words in said
    assert str(tmp_path / "head") in said


def test_all_that_is_lacking_is_one_sentence(tmp_path: Path, target: str) -> None:
    base = with_keys("eagle3_speculators", norm_output=True, layers={"num_hidden_layers": 2})
    base.tensors |= layer("layers.1")

    said = refused(base, "safeailab", tmp_path, target)

    assert "2 layers" in said
    assert "norm_before_residual only by keys of vLLM: --engine vllm" in said
    assert "norm_output" in said


@pytest.mark.parametrize("name", ["eagle3", "dflash", "dspark_specforge"])
def test_layouts_with_copies_of_the_targets_ends_want_the_target(name: str, tmp_path: Path) -> None:
    to = "deepspec" if name.startswith("dspark") else "speculators"
    said = refused(side(name), to, tmp_path)
    assert "has no embedding (embed_tokens.weight)" in said
    assert "name the target with --target" in said


def test_a_target_of_another_size_is_refused(tmp_path: Path) -> None:
    other = made.write_target(tmp_path / "other")
    said = refused(side("dflash"), "speculators", tmp_path, str(other))
    assert f"model.embed_tokens.weight is [40, 16], and the head needs a embedding of [{V}, {H}]" in said


def test_a_tied_target_gives_its_embedding_as_head(tmp_path: Path) -> None:
    tied = write_checkpoint(
        tmp_path / "tied",
        {"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": L, "tie_word_embeddings": True},
        {"model.embed_tokens.weight": EMBEDDING},
    )
    record = run(side("dflash"), "speculators", tmp_path, str(tied))

    found = made.stored(tmp_path / "out")
    assert found["lm_head.weight"] == found["embed_tokens.weight"]
    assert record.filled == ["embed_tokens.weight", "lm_head.weight"]


def test_a_copy_that_is_not_the_targets_is_not_left_out(tmp_path: Path, target: str) -> None:
    base = side("dspark")
    base.tensors |= {"embed_tokens.weight": EMBEDDING, "lm_head.weight": bf16(np.ones((V, H)))}
    said = refused(base, "specforge", tmp_path, target)
    assert "its output head (lm_head.weight) is not that of" in said
    # Nobody can compare without the target; the layout says whose is used.
    record = run(base, "specforge", tmp_path)
    assert set(record.dropped) == {"embed_tokens.weight", "lm_head.weight"}
    assert all("not compared, since no --target was given" in note for note in record.notes)


def test_a_copy_in_another_type_of_float_is_compared_by_its_numbers(tmp_path: Path, target: str) -> None:
    base = side("dspark")
    values = made.stored(Path(target))["model.embed_tokens.weight"][2]
    wide = (np.frombuffer(values, "<u2").astype("<u4") << 16).view("<f4").reshape(V, H)
    base.tensors |= {"embed_tokens.weight": wide, "lm_head.weight": wide}
    record = run(base, "specforge", tmp_path, target)
    assert all("it holds the same numbers" in note for note in record.notes)


def test_a_copy_that_changed_since_it_was_filled_in_is_not_left_out_again(tmp_path: Path, target: str) -> None:
    run(side("eagle3"), "speculators", tmp_path / "b", target)
    back = Conversion(source=str(tmp_path / "b" / "out"), to="safeailab", output=tmp_path / "c")
    assert "embed_tokens.weight" not in made.stored(convert_to(back))
    path = tmp_path / "b" / "out" / "model.safetensors"
    info = open_checkpoint(str(path.parent)).tensors["embed_tokens.weight"]
    raw = bytearray(path.read_bytes())
    raw[info.start] ^= 1
    path.write_bytes(raw)
    back = Conversion(source=str(path.parent), to="safeailab", output=tmp_path / "d")
    assert "embed_tokens.weight" in made.stored(convert_to(back))


def convert_to(request: Conversion) -> Path:
    """The folder of one conversion."""
    convert(request)
    return request.output


def test_a_config_that_would_be_read_as_another_head_is_never_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = write_eagle3.WRITERS["modelopt"]
    lost = {"modelopt": lambda frame: {**real(frame), "rms_norm_eps": 0.5}}
    monkeypatch.setattr(write_eagle3, "WRITERS", lost)
    said = refused(side("eagle3"), "modelopt", tmp_path)
    assert "it would be read with other values of rms_norm_eps (1e-06 and 0.5)" in said


def test_windows_of_all_layers_become_kinds_of_layers(tmp_path: Path, target: str) -> None:
    base = nested("dflash", "dflash_config", use_swa=True, swa_window_size=32, causal=False)
    base.config |= {"layer_types": [FULL, FULL], "use_sliding_window": False, "sliding_window": None}
    run(base, "speculators", tmp_path, target)

    layers = config_of(tmp_path)["transformer_layer_config"]
    assert (layers["layer_types"], layers["sliding_window"], layers["use_sliding_window"]) == ([SLIDING] * 2, 32, True)
    assert config_of(tmp_path)["sliding_window_non_causal"] is True


def test_an_embedding_that_was_trained_is_not_left_out_unseen(tmp_path: Path, target: str) -> None:
    base = with_keys("dflash_speculators", embed_requires_grad=True, draft_vocab_size=V)
    base.tensors = {key: tensor for key, tensor in base.tensors.items() if key not in ("d2t", "t2d")}
    base.tensors["lm_head.weight"] = EMBEDDING
    assert "embed_requires_grad is true" in refused(base, "zlab", tmp_path)
    run(base, "zlab", tmp_path, target)


def test_faulty_tensors_are_named_before_anything_is_written(tmp_path: Path) -> None:
    base = side("eagle3")
    del base.tensors["norm.weight"]
    base.tensors |= {"extra.weight": ("BF16", (2,)), "fc.weight": ("BF16", (H, 3))}
    for to in ("safeailab", "modelopt"):
        said = refused(base, to, tmp_path)
        assert "1 tensor is missing: norm.weight" in said
        assert "1 tensor is unexpected: extra.weight" in said
        assert f"fc.weight is [{H}, 3], expected [{H}, {3 * H}]" in said


def test_what_looks_untrained_is_named_and_written_all_the_same(tmp_path: Path) -> None:
    base = side("dflash")
    norms = {name: 8 if "self_attn" in name else H for name in base.tensors if "norm" in name}
    base.tensors |= {name: bf16(np.ones(size)) for name, size in norms.items()}
    base.tensors |= as_initialised(base.tensors)
    base.tensors["layers.1.mlp.up_proj.weight"] = np.zeros((128, H), "<f4")
    record = run(base, "zlab", tmp_path)

    assert record.warnings[0] == "matrices that hold one value everywhere: layers.1.mlp.up_proj.weight (1)"
    assert record.warnings[1].startswith("matrices that look as initialised, with no trace of training: fc.weight, ")
    assert record.warnings[2] == "all 10 norms are as initialised, with no trace of training"


@pytest.mark.parametrize(
    ("d2t", "words"),
    [(DRAFT_IDS, "d2t holds target ids and not offsets"), (np.full(VD, V, np.int64), None)],
)
def test_maps_are_looked_into(d2t: Any, words: str | None, tmp_path: Path) -> None:
    base = side("eagle3")
    base.tensors["d2t"] = d2t.astype(np.int64)
    if words is None:
        assert "its map of draft ids is wrong" in refused(base, "modelopt", tmp_path)
    else:
        record = run(base, "modelopt", tmp_path)
        assert any(words in note for note in record.notes)
        assert made.stored(tmp_path / "out")["d2t"][2] == d2t.tobytes()


def test_lists_of_layer_ids_that_disagree_are_refused(tmp_path: Path, target: str) -> None:
    base = nested("eagle3", "eagle_config", eagle_aux_hidden_state_layer_ids=[2, 6, 9])
    assert "means the outputs of layers [1, 5, 8] and eagle_config." in refused(base, "modelopt", tmp_path)
    bare = nested("dflash", "dflash_config")
    del bare.config["dflash_config"]["target_layer_ids"]
    assert "the config names no layer ids" in refused(bare, "speculators", tmp_path, target)


def config_of(folder: Path) -> dict[str, Any]:
    """The config that was written."""
    return made.config_of(folder / "out")


@pytest.mark.parametrize("to", ["safeailab", "speculators"])
@pytest.mark.parametrize(("ids", "named"), [([1, 3, 300], True), ([-3, 3, 5], False), ([30, 31, 32], True)])
def test_layers_that_the_target_does_not_have_are_refused(
    ids: list[int], named: bool, to: str, tmp_path: Path, target: str
) -> None:
    """Also where the layout stays, and below the embedding whatever the target."""
    base = with_keys("eagle3", eagle3_layers_to_capture=ids)
    said = refused(base, to, tmp_path, target if named else None)
    assert f"eagle3_layers_to_capture means the outputs of layers {ids}" in said
    assert (f"they must be in -1..{L - 1}, of the {L} layers" if named else "they must be -1 or above") in said
