"""EAGLE-3 beside a tiny real target, through the files that users have: losslessness, replay and live, refusals."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from codraft.core.errors import SpecError
from codraft.core.spec import Eagle3Spec, Sampling
from codraft.decode.drafter import Request
from codraft.decode.hf.model import HFModel
from codraft.decode.loop import decode
from codraft.drafters.eagle3 import Eagle3Head, build
from codraft.drafters.registry import check, check_sampling
from codraft.drafters.rollout import Rollout
from codraft.drafters.serial import SerialDrafter
from codraft.drafters.weights import headers_of
from codraft.replay.measure import replay

from tests.drafters.heads import assert_replay_is_live, pooled_AL, randomize, streams_of
from tests.drafters.pairs import (
    HIDDEN,
    V,
    beside,
    cross_entropy,
    prompts,
    stream_features,
    tiny_target,
    train,
    write_head,
)
from tests.drafters.test_eagle3 import SHAPE, head_of

TARGET = tiny_target()
CONFIG: dict[str, Any] = {**SHAPE, "hidden_size": HIDDEN, "vocab_size": V, "intermediate_size": 48, "head_dim": 8}
DRAFT_IDS = torch.tensor([i for i in range(V) if i % 5])
GREEDY = Sampling()


def tensors_of(config: Mapping[str, Any], seed: int = 3, *, reduced: bool = False) -> dict[str, Tensor]:
    """Random tensors of a head, under the names of SafeAILab's files."""
    extra = ["lm_head.weight"] if reduced else []
    module = Eagle3Head(head_of(config), (1, 3, 4), TARGET, extra)
    randomize(module, seed)
    tensors = {name.replace("layers.0.", "midlayer."): tensor for name, tensor in module.state_dict().items()}
    if reduced:
        tensors["d2t"] = DRAFT_IDS - torch.arange(len(DRAFT_IDS))
        marks = torch.zeros(V, dtype=torch.bool)
        marks[DRAFT_IDS] = True
        tensors["t2d"] = marks
    return tensors


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_head(tmp_path_factory.mktemp("eagle3"), CONFIG, tensors_of(CONFIG))


@pytest.fixture(scope="module")
def reduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = {**CONFIG, "draft_vocab_size": len(DRAFT_IDS)}
    return write_head(tmp_path_factory.mktemp("reduced"), config, tensors_of(config, reduced=True))


def drafter_of(folder: Path, draft: str = "greedy", sampling: Sampling = GREEDY) -> SerialDrafter:
    return build(Eagle3Spec(path=str(folder), draft=draft), beside(TARGET, sampling))  # type: ignore[arg-type]


@pytest.mark.parametrize("which", ["folder", "reduced"])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=0.9, seed=4)], ids=["greedy", "sampled"])
def test_text_is_plain_decodings_and_replay_takes_the_steps_of_live(
    which: str, sampling: Sampling, request: pytest.FixtureRequest
) -> None:
    drafter = drafter_of(request.getfixturevalue(which), sampling=sampling)
    streams = streams_of(TARGET, prompts(), sampling, 20, 5)
    assert_replay_is_live(TARGET, drafter, streams, sampling, [1, 2, 5])


@pytest.mark.parametrize("marked", [True, False])
def test_a_map_of_absolute_ids_means_what_offsets_mean(reduced: Path, marked: bool, tmp_path: Path) -> None:
    config = {**CONFIG, "draft_vocab_size": len(DRAFT_IDS)}
    tensors = {**tensors_of(config, reduced=True), "d2t": DRAFT_IDS}
    absolute = write_head(tmp_path, config, {name: t for name, t in tensors.items() if marked or name != "t2d"})
    one, other = drafter_of(reduced), drafter_of(absolute)
    for drafter in (one, other):
        assert drafter.picker.target_ids is not None
        assert torch.equal(drafter.picker.target_ids, DRAFT_IDS)
    assert drafts(one) == drafts(other)


def test_a_sequence_is_drafted_alike_alone_and_in_a_batch(folder: Path) -> None:
    requests = [Request(i, prompt, 18) for i, prompt in enumerate(prompts())]
    together = decode(TARGET, drafter_of(folder), requests, GREEDY, 3)
    for request, one in zip(requests, together, strict=True):
        assert decode(TARGET, drafter_of(folder), [request], GREEDY, 3)[0].steps == one.steps


def test_drawn_drafts_are_replayed_as_live_decoding_accepts_them(reduced: Path) -> None:
    """Replay is exact; live decoding over many seeds comes within three standard errors of it."""
    sampling = Sampling(temperature=0.7, seed=11)
    drafter = drafter_of(reduced, "sample", sampling)
    count = 120
    asked, D = 10, 3
    same = [prompts()[2]] * count
    streams = streams_of(TARGET, same, sampling, asked, D)
    logs = replay(TARGET, drafter, streams, sampling, TARGET.eos_ids, [D])
    live = decode(TARGET, drafter, [Request(count + i, p, asked) for i, p in enumerate(same)], sampling, D)
    accepted = torch.tensor([sum(a for _, _, a, _ in one.steps) for one in live], dtype=torch.float64)
    steps = torch.tensor([len(one.steps) for one in live], dtype=torch.float64)
    replayed = sum(float((log.weight_N * log.accepted_N).sum()) for log in logs.by_depth[D]) / sum(
        float(log.weight_N.sum()) for log in logs.by_depth[D]
    )
    ratio = accepted.sum() / steps.sum()
    error = float((accepted - ratio * steps).std() / steps.mean() / count**0.5)
    assert abs(float(ratio) - replayed) < 3 * error


def test_an_overfitted_head_accepts_everything(tmp_path: Path) -> None:
    """Eight short streams, the roll-out that replay reads as the training pass: AL = D + 1."""
    D = 2
    streams = streams_of(TARGET, prompts(), GREEDY, 7, D)
    module = drafter_of(write_head(tmp_path, CONFIG, tensors_of(CONFIG))).head
    assert isinstance(module, Eagle3Head)
    features = [stream_features(TARGET, stream, module.taps) for stream in streams]
    tokens = [torch.tensor([*stream.prompt_ids, *stream.output_ids]) for stream in streams]

    def loss(i: int) -> Tensor:
        rollout, parts = Rollout(module, module.fuse(features[i]), tokens[i]), []
        for k in range(D):
            logits = module.logits(0, rollout.step())
            rows = rollout.rows_N[rollout.rows_N + 2 + k < len(tokens[i])]
            parts.append(cross_entropy(logits[: len(rows)], tokens[i][rows + 2 + k]))
        return torch.stack(parts).sum()

    train(module, loss, len(streams), 150)
    saved = {name.replace("layers.0.", "midlayer."): t for name, t in module.state_dict().items()}
    drafter = drafter_of(write_head(tmp_path / "trained", CONFIG, saved))
    logs = replay(TARGET, drafter, streams, GREEDY, TARGET.eos_ids, [1, D])
    assert pooled_AL(logs.by_depth[1]) == 2
    full = [log for log in logs.by_depth[D] if not log.cut_N.any()]
    assert full
    assert pooled_AL(full) == D + 1
    assert_replay_is_live(TARGET, drafter, streams, GREEDY, [D])


def config_with(**changes: Any) -> dict[str, Any]:
    return {**CONFIG, **changes}


def test_what_cannot_work_is_refused_in_one_sentence(tmp_path: Path) -> None:
    tensors = tensors_of(CONFIG)
    short = {name: t for name, t in tensors.items() if name != "midlayer.hidden_norm.weight"}
    norm, two = torch.ones(8, dtype=torch.float64), {**tensors, "fc.weight": tensors["fc.weight"][:, : 2 * HIDDEN]}
    cut = {**tensors, "fc.weight": tensors["fc.weight"][:, :-1]}
    cases: list[tuple[dict[str, Any], dict[str, Tensor], list[str]]] = [
        (CONFIG, short, ["layers.0.hidden_norm.weight", "missing"]),
        (CONFIG, cut, ["fc.weight", str(3 * HIDDEN - 1), str(3 * HIDDEN)]),
        (CONFIG, {**tensors, "extra.weight": torch.zeros(1)}, ["extra.weight"]),
        (config_with(vocab_size=V + 8), tensors, [f"vocab_size is {V + 8}", str(V)]),
        (config_with(eagle_aux_hidden_state_layer_ids=[1, 3, 9]), tensors, ["[0, 2, 8]", "0..7"]),
        (config_with(rope_scaling={"rope_type": "dynamic", "factor": 2.0}), tensors, ["dynamic"]),
        (config_with(eagle_config={"eh_proj_before_attn": True}), tensors, ["eagle_config.eh_proj_before_attn (True)"]),
        (config_with(hidden_act="tanh"), tensors, ["tanh", "silu"]),
        (
            config_with(target_hidden_size=2 * HIDDEN),
            {**tensors, "fc.weight": torch.zeros((HIDDEN, 6 * HIDDEN), dtype=torch.float64)},
            [f"width {2 * HIDDEN}", f"hidden size is {HIDDEN}"],
        ),
        # One key counts inputs of layers, the other outputs.
        (
            config_with(eagle_aux_hidden_state_layer_ids=[1, 3, 4], eagle3_layers_to_capture=[1, 3, 4]),
            tensors,
            ["means the outputs of layers [0, 2, 3]", "[1, 3, 4]"],
        ),
        (CONFIG, two, ["fc takes 2 features", "no layer ids"]),
        # What the config has switched off would be left out of the graph.
        (CONFIG, {**tensors, "midlayer.self_attn.q_norm.weight": norm}, ["q_norm.weight is there", "switched off"]),
        (CONFIG, {**tensors, "midlayer.mlp.up_proj.bias": torch.zeros(48)}, ["up_proj.bias is there", "mlp_bias"]),
        (config_with(model_type="qwen2"), tensors, ["biases on queries, keys and values", "missing"]),
        (
            config_with(eagle_config={"use_input_layernorm_in_first_layer": False}),
            tensors,
            ["input_layernorm.weight is there", "use_input_layernorm_in_first_layer switched off"],
        ),
        # Two names of one tensor.
        (CONFIG, {**tensors, "layers.0.hidden_norm.weight": torch.ones(HIDDEN)}, ["which are one tensor of the head"]),
        (config_with(draft_vocab_size=9), {**tensors, "lm_head.weight": torch.zeros((9, HIDDEN))}, ["d2t"]),
    ]
    for number, (config, stored, words) in enumerate(cases):
        with pytest.raises(SpecError) as caught:
            drafter_of(write_head(tmp_path / str(number), config, stored))
        for word in words:
            assert word in str(caught.value), (number, str(caught.value))
        assert "\n" not in str(caught.value)


def test_marks_that_contradict_the_map_are_refused(tmp_path: Path) -> None:
    tensors = tensors_of(config_with(draft_vocab_size=len(DRAFT_IDS)), reduced=True)
    marks = torch.zeros(V, dtype=torch.bool)
    marks[DRAFT_IDS] = True
    config = config_with(draft_vocab_size=len(DRAFT_IDS))
    drafter_of(write_head(tmp_path / "same", config, {**tensors, "t2d": marks}))
    marks[DRAFT_IDS[0]], marks[0] = False, True
    with pytest.raises(SpecError, match=r"t2d marks .* ids are in only one of them"):
        drafter_of(write_head(tmp_path / "other", config, {**tensors, "t2d": marks}))


def test_a_pickled_tensor_of_another_dtype_is_named(tmp_path: Path) -> None:
    folder = write_head(tmp_path, CONFIG, tensors_of(CONFIG))
    (folder / "model.safetensors").unlink()
    torch.save({**tensors_of(CONFIG), "fc.weight": torch.zeros((HIDDEN, 3 * HIDDEN)).to(torch.float8_e4m3fn)},
               folder / "pytorch_model.bin")  # fmt: skip
    with pytest.raises(SpecError, match="float8_e4m3fn"):
        drafter_of(folder)
    assert {info.dtype for info in headers_of({"a": torch.zeros(1).to(torch.float8_e4m3fn)}).values()} == {
        "float8_e4m3fn"
    }


def test_what_a_head_turns_by_goes_to_the_targets_device(folder: Path) -> None:
    target = tiny_target()
    target.device, target.dtype = "meta", "bfloat16"
    inverse = build(Eagle3Spec(path=str(folder)), beside(target)).head.rotary.inverse  # type: ignore[attr-defined]
    assert (inverse.device.type, inverse.dtype) == ("meta", torch.float32)


def test_a_head_that_nobody_trained_is_noted(tmp_path: Path) -> None:
    """Of random weights, and of a pickle nothing is said; rows of unequal size are what training leaves."""
    random = tensors_of(CONFIG)
    rows = {
        name: tensor * torch.linspace(0.1, 3, len(tensor), dtype=tensor.dtype)[:, None] if tensor.dim() == 2 else tensor
        for name, tensor in random.items()
    }
    for stored, noted in ((random, True), (rows, False)):
        made = beside(TARGET)
        build(Eagle3Spec(path=str(write_head(tmp_path / str(noted), CONFIG, stored))), made)
        assert any("looks untrained" in note and "fc.weight" in note for note in made.notes) is noted


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["fc.weight", "norm.weight"])
def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, name: str, value: float) -> None:
    tensors = tensors_of(CONFIG)
    tensors[name].view(-1)[3] = value
    with pytest.raises(SpecError, match=f"{name} holds NaN or infinity"):
        drafter_of(write_head(tmp_path, CONFIG, tensors))


def test_another_mechanisms_head_is_named(tmp_path: Path) -> None:
    config = {**CONFIG, "architectures": ["DFlashDraftModel"], "dflash_config": {"mask_token_id": 3}}
    with pytest.raises(SpecError, match="is a head of dflash"):
        drafter_of(write_head(tmp_path, config, {"fc.weight": torch.zeros(1)}))


def test_plain_tensors_of_a_pickle_are_read_and_code_in_one_is_not(tmp_path: Path) -> None:
    safe = write_head(tmp_path / "safe", CONFIG, tensors_of(CONFIG))
    for name in ("plain", "armed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text((safe / "config.json").read_text())
    torch.save(tensors_of(CONFIG), tmp_path / "plain" / "pytorch_model.bin")
    torch.save({"fc.weight": print}, tmp_path / "armed" / "pytorch_model.bin")
    one, other = drafter_of(safe), drafter_of(tmp_path / "plain")
    for found, expected in zip(drafts(one), drafts(other), strict=True):
        assert found == expected
    with pytest.raises(SpecError, match="convert it to safetensors"):
        drafter_of(tmp_path / "armed")


def drafts(drafter: SerialDrafter) -> list[list[int]]:
    out = TARGET.forward([prompts()[0]], TARGET.new_cache(1, 64), taps=drafter.taps)
    drafter.prefill([Request(0, prompts()[0], 9)], [5], out.features)
    return drafter.propose([5], 4).tokens


def test_drawn_drafts_need_a_temperature() -> None:
    with pytest.raises(SpecError, match="draft=sample needs --temperature"):
        check_sampling(Eagle3Spec(path="x", draft="sample"), GREEDY)


def test_its_memory_is_its_own_weights_and_one_layers_keys(folder: Path) -> None:
    drafter = drafter_of(folder)
    own = sum(t.numel() * t.element_size() for t in tensors_of(CONFIG).values())
    assert drafter.device_bytes(2, 10) == own + 2 * 10 * 2 * 2 * 8 * 8
    assert isinstance(TARGET, HFModel)


@pytest.mark.parametrize("kind", ["numbered", "sparse", "shapes", "doubled"])
def test_a_pickle_of_other_things_than_tensors_by_name_is_refused(tmp_path: Path, kind: str) -> None:
    tensors = tensors_of(CONFIG)
    folder = write_head(tmp_path, CONFIG, tensors)
    (folder / "model.safetensors").unlink()
    kinds: dict[str, dict[Any, Tensor]] = {
        "numbered": dict(enumerate(tensors.values())),
        "sparse": {name: tensor.to_sparse() for name, tensor in tensors.items()},
        "shapes": {name: tensor.to("meta") for name, tensor in tensors.items()},
        "doubled": {**tensors, **{f"model.{name}": tensor for name, tensor in tensors.items()}},
    }
    torch.save(kinds[kind], folder / "pytorch_model.bin")
    said = "which are one tensor of the head" if kind == "doubled" else "holds more than plain tensors by name"
    with pytest.raises(SpecError, match=said):
        drafter_of(folder)


def never() -> Any:
    """The target is not asked for."""
    raise AssertionError


@pytest.mark.parametrize("kind", ["map", "marks alone", "a NaN in a norm", "a NaN in a matrix"])
def test_what_a_few_reads_show_is_refused_before_the_target_is_loaded(tmp_path: Path, kind: str) -> None:
    config = {**CONFIG, "draft_vocab_size": len(DRAFT_IDS)}
    tensors = tensors_of(config, reduced=True)
    if kind == "map":
        tensors["d2t"] = torch.full_like(tensors["d2t"], -3)
    elif kind == "marks alone":
        config, tensors = CONFIG, tensors_of(CONFIG)
        tensors["t2d"] = torch.ones(V, dtype=torch.bool)
    else:
        name = "norm.weight" if kind.endswith("norm") else "fc.weight"
        tensors[name].view(-1)[0] = torch.nan
    folder = write_head(tmp_path, config, tensors)
    with pytest.raises(SpecError) as raised:
        check([Eagle3Spec(path=str(folder))], replace(beside(TARGET, GREEDY), load=never))
    assert "\n" not in str(raised.value)


def test_a_pickle_is_read_by_the_names_that_all_families_share(tmp_path: Path, reduced: Path) -> None:
    """Also the maps of its vocabulary, which are asked for first."""
    config = {**CONFIG, "draft_vocab_size": len(DRAFT_IDS)}
    tensors = tensors_of(config, reduced=True)
    folder = write_head(tmp_path, config, tensors)
    (folder / "model.safetensors").unlink()
    torch.save({f"model.{name}": tensor for name, tensor in tensors.items()}, folder / "pytorch_model.bin")
    pickled, plain = drafter_of(folder), drafter_of(reduced)
    assert isinstance(pickled.head, Eagle3Head)
    assert isinstance(plain.head, Eagle3Head)
    ours, theirs = pickled.head.state_dict(), plain.head.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert torch.equal(pickled.picker.target_ids, plain.picker.target_ids)  # type: ignore[arg-type]
