"""Launch files: what each engine is given for each mechanism, and what is said instead."""

import subprocess

import pytest
import yaml  # type: ignore[import-untyped]

from codraft.core.schema import DrafterInfo
from codraft.core.spec import MECHANISMS, ExternalSpec, NgramSpec, options_of
from codraft.engines.launch import ENGINES

from tests.engines.reading import TITLES, after, assert_parses, entry, files, said, trtllm_config, vllm_config, words


def test_every_engine_has_a_rule_or_a_reason_for_every_mechanism() -> None:
    for engine in ENGINES:
        assert set(engine.rules) == set(MECHANISMS), engine.title


def test_the_first_line_says_what_was_timed_and_that_this_engine_was_not() -> None:
    for name, text in files(entry(1)).items():
        first = text.splitlines()[0]
        assert first == f"# timed with torch on AMD EPYC, 2 cores, cpu, not verified on {TITLES[name]}"


def test_the_timed_engine_itself_is_not_called_unverified() -> None:
    texts = files(entry(1), basis={"engine": "vllm", "machine": "one GPU"})
    assert texts["vllm.sh"].splitlines()[0] == "# timed with vllm on one GPU"
    assert texts["sglang.sh"].splitlines()[0].endswith("not verified on SGLang")


def test_the_first_line_stays_one_line_whatever_the_machine_is_called() -> None:
    texts = files(entry(1), basis={"engine": "torch", "machine": "a\nrm -rf x\u2028" + "long " * 60})
    assert_parses(texts)
    for name, text in texts.items():
        assert text.splitlines()[0].endswith(f"not verified on {TITLES[name]}")
        assert "\nrm" not in text


def test_off_is_the_plain_command() -> None:
    texts = files(entry(8))
    assert_parses(texts)
    assert words(texts["vllm.sh"]) == ["vllm", "serve", "org/target", "$@"]
    assert words(texts["sglang.sh"]) == ["python3", "-m", "sglang.launch_server", "--model-path", "org/target", "$@"]
    assert words(texts["trtllm.sh"]) == ["trtllm-serve", "org/target", "$@"]
    assert yaml.safe_load(texts["trtllm.yaml"]) == {}
    for text in texts.values():
        assert "this file: plain decoding, speculation is off" in said(text)
        assert "lost:" not in said(text)


def test_the_whole_schedule_stands_in_every_file() -> None:
    for text in files(entry(1, "ngram", 6), entry(8, "ngram", 2), entry(32)).values():
        assert "B = 1: ngram with D = 6 B = 2..8: ngram with D = 2 B = 9..32: plain decoding" in said(text)
        assert "above B = 32: not measured" in said(text)


def test_ngram_on_each_engine() -> None:
    texts = files(entry(1, "ngram", 5))
    assert_parses(texts)
    assert vllm_config(texts["vllm.sh"]) == {
        "method": "ngram",
        "num_speculative_tokens": 5,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 4,
    }
    sglang = words(texts["sglang.sh"])
    assert after(sglang, "--speculative-algorithm") == "NGRAM"
    assert after(sglang, "--speculative-num-draft-tokens") == "6"
    assert after(sglang, "--speculative-ngram-max-bfs-breadth") == "1"
    assert "NGRAM is not the measured rule" in said(texts["sglang.sh"])
    assert yaml.safe_load(texts["trtllm.yaml"]) == {
        "disable_overlap_scheduler": True,
        "speculative_config": {
            "decoding_type": "NGram",
            "max_draft_len": 5,
            "max_matching_ngram_size": 4,
            "is_use_oldest": False,
            "is_keep_all": True,
            "is_public_pool": False,
        },
    }
    assert after(words(texts["trtllm.sh"]), "--config") == "$(dirname -- $0)/trtllm.yaml"
    assert "n_min has no counterpart" in said(texts["trtllm.yaml"])


def test_ngram_says_which_vllm_runner_takes_another_occurrence() -> None:
    latest = said(files(entry(1, "ngram", 5))["vllm.sh"])
    assert "takes the earliest occurrence, measured was the latest" in latest
    assert "takes the latest occurrence" not in latest
    drafter = DrafterInfo(name="ngram", mechanism="ngram", options=options_of(NgramSpec(occurrence="earliest")))
    texts = files(entry(1, "ngram", 5), drafters=[drafter])
    assert "takes the latest occurrence, measured was the earliest" in said(texts["vllm.sh"])
    assert trtllm_config(texts["trtllm.yaml"])["is_use_oldest"] is True


def test_suffix_runs_on_vllm_alone() -> None:
    texts = files(entry(1, "suffix", 8))
    assert_parses(texts)
    assert vllm_config(texts["vllm.sh"]) == {
        "method": "suffix",
        "num_speculative_tokens": 8,
        "suffix_decoding_max_tree_depth": 24,
        "suffix_decoding_max_cached_requests": 10000,
        "suffix_decoding_max_spec_factor": 1.0,
        "suffix_decoding_min_token_prob": 0.1,
    }
    assert "arctic-inference" in said(texts["vllm.sh"])
    for name in ("sglang.sh", "trtllm.sh"):
        assert "no suffix decoding" in said(texts[name])
        assert "speculation is off" in said(texts[name])
        assert "speculative" not in " ".join(words(texts[name]))
    assert yaml.safe_load(texts["trtllm.yaml"]) == {}


def test_an_external_drafter_on_each_engine() -> None:
    texts = files(entry(1, "external", 3))
    assert_parses(texts)
    assert vllm_config(texts["vllm.sh"]) == {
        "method": "draft_model",
        "model": "org/small",
        "num_speculative_tokens": 3,
        "draft_sample_method": "greedy",
    }
    sglang = words(texts["sglang.sh"])
    assert after(sglang, "--speculative-algorithm") == "STANDALONE"
    assert after(sglang, "--speculative-draft-model-path") == "org/small"
    assert after(sglang, "--speculative-num-steps") == "3"
    assert after(sglang, "--speculative-eagle-topk") == "1"
    assert after(sglang, "--speculative-num-draft-tokens") == "4"
    assert trtllm_config(texts["trtllm.yaml"]) == {
        "decoding_type": "Draft_Target",
        "max_draft_len": 3,
        "speculative_model": "org/small",
    }


def test_sampled_drafts_are_asked_of_vllm_and_missed_elsewhere() -> None:
    spec = ExternalSpec(path="org/small", draft="sample")
    drafter = DrafterInfo(name="external", mechanism="external", id="org/small", options=options_of(spec))
    texts = files(entry(1, "external", 3), drafters=[drafter])
    assert vllm_config(texts["vllm.sh"])["draft_sample_method"] == "probabilistic"
    assert "measured were drafts drawn from p_draft" in said(texts["sglang.sh"])
    assert "measured were drafts drawn from p_draft" in said(texts["trtllm.yaml"])


def test_the_first_layers_of_a_model_are_not_served_as_the_whole_model() -> None:
    drafter = DrafterInfo(name="short", mechanism="external", id="org/target", options={"draft": "greedy", "layers": 8})
    texts = files(entry(1, "short", 3), drafters=[drafter])
    assert_parses(texts)
    for text in texts.values():
        assert "short (external): it is the first 8 layers of org/target, and no engine runs part" in said(text)
    assert words(texts["vllm.sh"]) == ["vllm", "serve", "org/target", "$@"]


@pytest.mark.parametrize(
    "mechanism, method, algorithm, decoding_type",
    [
        ("eagle3", "eagle3", "EAGLE3", "Eagle3"),
        ("mtp", "mtp", "NEXTN", "MTP"),
        ("dflash", "dflash", "DFLASH", "DFlash"),
        ("dspark", "dspark", None, None),
    ],
)
def test_a_learned_head_is_named_or_refused(
    mechanism: str, method: str, algorithm: str | None, decoding_type: str | None
) -> None:
    texts = files(entry(1, mechanism, 7))
    assert_parses(texts)
    model = f"org/{mechanism}"
    assert vllm_config(texts["vllm.sh"]) == {"method": method, "model": model, "num_speculative_tokens": 7}
    sglang = words(texts["sglang.sh"])
    if algorithm is None:
        assert "--speculative-algorithm" not in sglang
        assert yaml.safe_load(texts["trtllm.yaml"]) == {}
        assert "nothing is written for it; speculation is off" in said(texts["sglang.sh"])
    else:
        assert after(sglang, "--speculative-algorithm") == algorithm
        assert after(sglang, "--speculative-num-draft-tokens") == "8"
        assert trtllm_config(texts["trtllm.yaml"])["decoding_type"] == decoding_type
        assert "unverified" in said(texts["sglang.sh"])
        assert "unverified" in said(texts["trtllm.yaml"])


def test_mtp_inside_the_target_names_no_model() -> None:
    drafter = DrafterInfo(name="mtp", mechanism="mtp", options={})
    texts = files(entry(1, "mtp", 1), drafters=[drafter])
    assert vllm_config(texts["vllm.sh"]) == {"method": "mtp", "num_speculative_tokens": 1}
    assert "--speculative-draft-model-path" not in words(texts["sglang.sh"])
    assert trtllm_config(texts["trtllm.yaml"]) == {"decoding_type": "MTP", "max_draft_len": 1}


def test_a_drafter_without_the_model_it_needs_is_not_served() -> None:
    drafter = DrafterInfo(name="external", mechanism="external", options={})
    for text in files(entry(1, "external", 3), drafters=[drafter]).values():
        assert "external: its record names no model; speculation is off here" in said(text)


def test_an_option_the_engine_lacks_is_named() -> None:
    drafter = DrafterInfo(name="ngram", mechanism="ngram", options={"n_min": 2, "n_max": 3, "colour": "red"})
    for text in files(entry(1, "ngram", 2), drafters=[drafter]).values():
        assert "option colour=red has no counterpart here" in said(text)


def test_D_by_load_becomes_vllm_ranges_a_trtllm_cutoff_and_a_stated_loss_on_sglang() -> None:
    texts = files(entry(1, "ngram", 7), entry(4, "ngram", 7), entry(16, "ngram", 3), entry(64))
    assert_parses(texts)
    config = vllm_config(texts["vllm.sh"])
    assert config["num_speculative_tokens"] == 7
    assert config["num_speculative_tokens_per_batch_size"] == [[1, 4, 7], [5, 16, 3], [17, 64, 0]]
    assert "lost:" not in said(texts["vllm.sh"])
    assert "above the last range its D holds on" in said(texts["vllm.sh"])
    assert trtllm_config(texts["trtllm.yaml"])["max_draft_len"] == 7
    assert trtllm_config(texts["trtllm.yaml"])["max_concurrency"] == 16
    assert "lost: at B = 5..16 the decision is ngram with D = 3, this file runs ngram with D = 7" in said(
        texts["trtllm.yaml"]
    )
    assert after(words(texts["sglang.sh"]), "--speculative-num-draft-tokens") == "8"
    assert "lost: at B = 17..64 the decision is plain decoding, this file runs ngram with D = 7" in said(
        texts["sglang.sh"]
    )


def test_one_D_at_every_load_needs_no_ranges() -> None:
    texts = files(entry(1, "ngram", 4), entry(8, "ngram", 4))
    assert "num_speculative_tokens_per_batch_size" not in vllm_config(texts["vllm.sh"])
    assert "max_concurrency" not in trtllm_config(texts["trtllm.yaml"])
    assert "ngram with D = 4 at every load" in said(texts["vllm.sh"])


def test_drafting_that_starts_at_a_higher_load_is_kept_by_vllm_and_lost_elsewhere() -> None:
    texts = files(entry(1), entry(8, "external", 2))
    assert vllm_config(texts["vllm.sh"])["num_speculative_tokens_per_batch_size"] == [[1, 1, 0], [2, 8, 2]]
    for name in ("sglang.sh", "trtllm.sh"):
        assert "speculative" not in " ".join(words(texts[name]))
        assert "lost: at B = 2..8 the decision is external with D = 2, this file runs plain decoding" in said(
            texts[name]
        )


def test_suffix_keeps_one_D_where_the_decision_has_several() -> None:
    """vLLM 0.32 asserts that its suffix proposer is asked for exactly the configured length."""
    texts = files(entry(1, "suffix", 8), entry(8, "suffix", 4), entry(16))
    config = vllm_config(texts["vllm.sh"])
    assert config["num_speculative_tokens"] == 8
    assert "num_speculative_tokens_per_batch_size" not in config
    assert "lost: at B = 2..8 the decision is suffix with D = 4" in said(texts["vllm.sh"])
    assert "lost: at B = 9..16 the decision is plain decoding" in said(texts["vllm.sh"])


def test_two_drafters_keep_the_first_loads_choice_and_say_what_is_lost() -> None:
    texts = files(entry(1, "external", 4), entry(8, "ngram", 3), entry(32))
    assert_parses(texts)
    config = vllm_config(texts["vllm.sh"])
    assert (config["method"], config["num_speculative_tokens"]) == ("draft_model", 4)
    assert config["num_speculative_tokens_per_batch_size"] == [[1, 1, 4], [2, 32, 0]]
    loss = "lost: at B = 2..8 the decision is ngram with D = 3"
    assert f"{loss}, this file runs plain decoding" in said(texts["vllm.sh"])
    assert f"{loss}, this file runs plain decoding" in said(texts["trtllm.yaml"])
    assert f"{loss}, this file runs external with D = 4" in said(texts["sglang.sh"])
    assert trtllm_config(texts["trtllm.yaml"])["max_concurrency"] == 1


def test_two_drafters_after_off_stay_off() -> None:
    texts = files(entry(1), entry(2, "external", 4), entry(8, "ngram", 3))
    assert words(texts["vllm.sh"]) == ["vllm", "serve", "org/target", "$@"]
    assert "lost: at B = 3..8 the decision is ngram with D = 3, this file runs plain decoding" in said(texts["vllm.sh"])


def test_demo_is_replaced_by_its_hub_id_and_said() -> None:
    drafter = DrafterInfo(name="external", mechanism="external", id="demo", options={"draft": "greedy"})
    texts = files(entry(1, "external", 2), target="demo", drafters=[drafter])
    assert words(texts["vllm.sh"])[2] == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert vllm_config(texts["vllm.sh"])["model"] == "HuggingFaceTB/SmolLM2-135M-Instruct"
    for text in texts.values():
        assert "'demo' is codraft's embedded copy of HuggingFaceTB/SmolLM2-135M-Instruct" in said(text)


def test_demo_noisy_cannot_be_served() -> None:
    drafter = DrafterInfo(name="external", mechanism="external", id="demo-noisy", options={"draft": "greedy"})
    texts = files(entry(1, "external", 2), drafters=[drafter])
    for text in texts.values():
        assert "external: 'demo-noisy' is a perturbed copy" in said(text)
        assert "speculation is off" in said(text)
    assert words(texts["vllm.sh"]) == ["vllm", "serve", "org/target", "$@"]


def test_a_target_that_cannot_be_served_gives_scripts_that_fail_with_the_reason() -> None:
    texts = files(entry(1, "ngram", 2), target="demo-noisy")
    assert_parses(texts)
    for name, text in texts.items():
        assert "this file starts nothing" in said(text)
        if name.endswith(".sh"):
            result = subprocess.run(["bash"], input=text.encode(), capture_output=True, check=False)
            assert result.returncode == 1
            assert b"cannot be served" in result.stderr


def test_a_pinned_hub_model_gives_its_revision_apart() -> None:
    drafter = DrafterInfo(name="external", mechanism="external", id="org/small@v1.2", options={})
    texts = files(entry(1, "external", 2), target="org/target@abc123", drafters=[drafter])
    vllm = words(texts["vllm.sh"])
    assert (vllm[2], after(vllm, "--revision")) == ("org/target", "abc123")
    assert vllm_config(texts["vllm.sh"])["model"] == "org/small"
    assert vllm_config(texts["vllm.sh"])["revision"] == "v1.2"
    sglang = words(texts["sglang.sh"])
    assert after(sglang, "--speculative-draft-model-revision") == "v1.2"
    assert "revision abc123 of org/target is not pinned here" in said(texts["trtllm.sh"])
    assert "revision v1.2 of org/small is not pinned here" in said(texts["trtllm.sh"])


def test_modules_in_a_layout_that_no_engine_reads_are_not_served() -> None:
    drafter = DrafterInfo(name="mtp", mechanism="mtp", id="org/head", options={"layout": "speculators"})
    texts = files(entry(1, "mtp", 3), drafters=[drafter])
    assert_parses(texts)
    for text in texts.values():
        assert "org/head is in the layout of the speculators library, in which no engine reads MTP modules" in said(
            text
        )
    assert words(texts["vllm.sh"]) == ["vllm", "serve", "org/target", "$@"]
