"""plan and doctor: facts about a model, without its weights."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from transformers import AutoConfig

from helpers.data import write_csv
from probescale.models.architecture import Architecture, compute_facts, compute_facts_by_length, read_architecture
from probescale.models.cost import Cost
from probescale.models.facts import Facts, built_in_facts
from probescale.models.families import FAMILIES
from probescale.models.parameters import Parameters
from probescale.models.proof.twin import build_twin_config
from probescale.pipeline.validate import load_config
from probescale.report.examination import examine
from probescale.selection.budget import parse_budget
from probescale.selection.plan_model import plan_model
from probescale.selection.planning import plan


def test_sizes_and_costs_of_roberta_large(cli):
    found = cli("plan", "roberta-large", "--json")
    assert found.code == 0, found.err
    answer = json.loads(found.out)
    assert answer["parameters"]["embeddings"] == 52_000_768
    assert set(answer["parameters"]["layers"]) == {12_596_224}
    by_k = {size["k"]: size for size in answer["sizes"]}
    assert by_k[24]["params"] == 355_359_744
    assert by_k[6]["params"] == 128_627_712
    assert by_k[6]["ratio_layers"] == 0.25
    assert by_k[24]["megabytes"] == pytest.approx(355_359_744 * 4 / 1e6)
    layer = 2 * 128 * 12 * 1024**2 + 4 * 128**2 * 1024
    assert by_k[6]["gflops"] - by_k[5]["gflops"] == pytest.approx(layer / 1e9)


def test_t5_base_is_the_encoder_alone(cli):
    found = cli("plan", "google-t5/t5-base")
    assert "109,628,544 parameters" in found.out
    assert "t5 (encoder alone)" in found.out
    both = cli("plan", "t5-base", "--head", "lm", "--json")
    assert both.code == 0, both.err
    assert json.loads(both.out)["sizes"][0]["params"] == 222_903_552


@pytest.mark.slow
def test_a_well_known_model_is_answered_without_loading_a_library():
    code = "import sys; from probescale.cli import app; app(['plan', 'roberta-large'], standalone_mode=False); "
    code += "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("[]")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["roberta-large", "t5-base", "ModernBERT-base", "gpt2", "deberta-v3-small", "bart-base"]
)
def test_stored_facts_equal_those_counted_on_the_meta_device(name):
    what = read_architecture(name)
    for length in (24, 100):
        stored, counted = built_in_facts(name, length), compute_facts(what, length=length)
        assert stored is not None
        assert stored.gflops
        assert counted.gflops
        assert stored.gflops.layers == pytest.approx(counted.gflops.layers)
        assert stored.gflops.fixed == pytest.approx(counted.gflops.fixed, abs=1e-9)
        assert stored.model_dump(exclude={"gflops"}) == counted.model_dump(exclude={"gflops"})


def test_costs_from_coefficients_equal_counted_costs(model_folder):
    what = read_architecture(str(model_folder("bert")))
    stored, counted = compute_facts_by_length(what).at(50).gflops, compute_facts(what, length=50).gflops
    assert stored
    assert counted
    assert stored.total == pytest.approx(counted.total)


def test_budgets_in_a_plan(cli):
    found = cli("plan", "roberta-large", "--budget", "130M", "--budget", "15GFLOPs")
    assert "130M, 15GFLOPs: up to 4 layers fit" in found.out
    half = cli("plan", "roberta-large", "--budget", "250MB", "--dtype", "float16", "--json")
    assert json.loads(half.out)["fits"] == 5
    assert json.loads(half.out)["sizes"][-1]["megabytes"] == pytest.approx(65_646_592 * 2 / 1e6)


def test_a_budget_below_the_embeddings_says_by_how_much_and_what_helps(cli):
    found = cli("plan", "roberta-large", "--budget", "40M")
    assert found.code == 0
    assert "nothing fits" in found.out
    assert "13,050,368 parameters too many" in found.out
    assert "smaller vocabulary" in found.out


def test_a_plan_says_what_shrinking_brings_where_layers_alone_are_not_enough(cli):
    shown = cli("plan", "roberta-large", "--budget", "5x")
    assert shown.code == 0, shown.err
    assert "5x: one layer fits" in shown.out
    sentence = (
        "With `shrink: auto` (assuming that your texts need 10,000 tokens; embeddings 170 wide, 512 feed-forward units "
        "per layer) one layer needs 8,264,862 parameters, and up to 12 layers fit 5x."
    )
    assert sentence in " ".join(shown.out.split())
    planned = json.loads(cli("plan", "roberta-large", "--budget", "5x", "--budget", "30GFLOPs", "--json").out)
    shrink = {"vocabulary": 10_000, "rank": 1024 // 6, "units": 4096 // 8}
    embeddings = (10_000 + 512 + 1 + 2) * 170 + (170 + 1) * 1024  # with positions, one type, the norm, the projection
    layer = 12_596_224 - (4096 - 512) * (2 * 1024 + 1)
    assert planned["shrunk"] == {
        "shrink": shrink, "one_layer": embeddings + layer + 1_049_600, "budget": "5x", "fits": 12
    }  # fmt: skip
    assert planned["fits"] == 1


def test_parts_that_cannot_be_shrunk_stay(cli):
    encoder = json.loads(cli("plan", "t5-base", "--budget", "10x", "--json").out)
    assert encoder["shrunk"]["shrink"] == {"vocabulary": 10_000, "rank": None, "units": 3072 // 8}
    assert encoder["shrunk"]["one_layer"] == 31_754_880 - (32_128 - 10_000) * 768 - (3072 - 384) * 2 * 768
    assert (encoder["fits"], encoder["shrunk"]["fits"]) == (0, 1)
    both = cli("plan", "t5-base", "--budget", "5x", "--head", "lm")  # one feed-forward width for encoder and decoder
    assert "(assuming that your texts need 10,000 tokens) one layer needs" in both.out
    assert "which 5x does not allow" in " ".join(both.out.split())


@pytest.mark.parametrize("budget", ["60%", "5GFLOPs"])
def test_a_budget_that_layers_reach_or_that_is_not_of_size_needs_no_shrinking(budget):
    assert plan_model("roberta-large", parse_budget(budget)).shrunk is None


def test_a_model_without_a_part_to_shrink_has_no_shrunk_size(tmp_path):
    small = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    AutoConfig.for_model("mixtral", num_hidden_layers=3, vocab_size=3000, num_local_experts=2, **small).save_pretrained(
        tmp_path
    )
    planned = plan_model(str(tmp_path), parse_budget("50x"))
    assert planned.fits == 0
    assert planned.shrunk is None


def test_layers_of_different_sizes_are_noted():
    facts = compute_facts(read_architecture("ModernBERT-base"))
    assert len(set(facts.parameters.layers)) == 2  # the first has no attention norm
    found = plan("ModernBERT-base", facts, parse_budget("50%"))
    assert any("Layers differ in size" in note for note in found.notes)
    assert any("Layer 1 always stays" in note for note in found.notes)


def test_milliseconds_are_measured_for_a_budget_in_milliseconds(cli, model_folder):
    found = cli("plan", model_folder("bert"), "--budget", "10s", "--length", "16", "--json")
    assert found.code == 0, found.err
    times = [size["milliseconds"] for size in json.loads(found.out)["sizes"]]
    assert times == sorted(times, reverse=True)
    assert times[-1] > 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["./nowhere"], "does not exist"),
        (["roberta-large", "--budget", "some"], '"some" is not a budget'),
        (["opt-125m", "--head", "token"], "transformers has no class"),
    ],
)
def test_wrong_plans_are_refused(cli, options, says):
    found = cli("plan", *options)
    assert found.code == 2
    assert says in found.err


def test_doctor_on_a_folder(cli, model_folder, tmp_path, task_files):
    found = cli("doctor", model_folder("roberta"), "--out", tmp_path / "start.yaml")
    assert found.code == 0, found.err
    for part in ("roberta (built in)", "4 at RobertaModel.encoder.layer", "safetensors, float32", "tied weights",
                 "RobertaForTokenClassification", "auto: cls", "128 tokens"):  # fmt: skip
        assert part in found.out
    for name, rows in (("train.csv", task_files.train), ("dev.csv", task_files.dev)):
        (tmp_path / name).write_text(rows.read_text())
    data = [f"task.{part}.source={tmp_path / part}.csv" for part in ("train", "dev")]
    config = load_config(tmp_path / "start.yaml", [*data, "selection.budget=null", "selection.k=2"])
    assert config.model.source == str(model_folder("roberta"))


@pytest.mark.parametrize("name", ["t5-base", "gpt2", "ModernBERT-base", "opt-125m", "bart-base"])
def test_doctor_notes_what_is_special_about_a_family(name):
    found = examine(name)
    assert found.parameters.total == sum(found.components.values())
    answer = " ".join((*found.problems, *found.notes))
    assert {"t5-base": "mean of its tokens", "gpt2": "last token", "ModernBERT-base": "attention norm",
            "opt-125m": "one label per token", "bart-base": "--keep-decoder"}[name] in answer  # fmt: skip
    assert found.tied
    assert found.poolings[0] == FAMILIES[found.family].pooling


def test_doctor_on_broken_and_unsupported_models(cli, model_folder, tmp_path):
    import shutil

    shutil.copytree(model_folder("bert"), tmp_path / "bert")
    (tmp_path / "bert" / "model.safetensors").write_bytes(b"nothing")
    found = cli("doctor", tmp_path / "bert")
    assert found.code == 0
    assert "not usable" in found.out
    assert "is not a safetensors file" in found.out
    AutoConfig.for_model("albert").save_pretrained(tmp_path / "albert")
    refused = cli("doctor", tmp_path / "albert")
    assert refused.code == 2
    assert "share one block of weights" in refused.err


@pytest.mark.slow
def test_doctor_proves_a_build_without_its_weights(cli, tmp_path):
    AutoConfig.for_model("olmo2", num_hidden_layers=20).save_pretrained(tmp_path / "olmo")
    found = cli("doctor", tmp_path / "olmo", "--prove", "--json")
    assert found.code == 0, found.err
    answer = json.loads(found.out)
    assert answer["detected"]
    assert answer["tried"]["passed"] == answer["tried"]["cuts"] > 15
    assert answer["tried"]["failures"] == []
    assert "weights" in answer["problems"][0] or "safetensors" in answer["problems"][0]


def test_a_selection_in_other_units(cli, model_folder, tmp_path):
    scores = write_csv(tmp_path / "scores.csv", [("1,p", "0.1")], header="layer,probe,score")
    scores.write_text("layer,probe,score\n" + "\n".join(f"{i},p,0.{i}" for i in range(1, 5)))
    options = ["--model", model_folder("bert"), "--json"]
    limit = json.loads(cli("plan", model_folder("bert"), "--head", "sentence", "--json").out)["sizes"][1]["gflops"]
    found = cli("select", scores, "--budget", f"{limit + 1e-5:.6f}GFLOPs", "--budget", "100%", *options)
    assert found.code == 0, found.err
    assert json.loads(found.out)["k"] == 3
    assert json.loads(found.out)["costs"]["gflops"] <= limit + 1e-5


def test_lengths_above_the_models_maximum_are_refused(cli, model_folder):
    for source in ("roberta-large", model_folder("bert")):
        found = cli("plan", source, "--length", "5000")
        assert found.code == 2
        assert "--length: 5,000 tokens are more than the model accepts" in found.err
    short = build_twin_config(AutoConfig.for_model("bert"), FAMILIES["bert"])  # 64 positions, below the default length
    assert compute_facts(Architecture("short", "given", short, FAMILIES["bert"])).length == 64


def test_operations_that_cannot_be_counted_are_shown_as_unknown(cli, tmp_path):
    small = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = AutoConfig.for_model("mixtral", num_hidden_layers=3, vocab_size=100, num_local_experts=2, **small)
    config.save_pretrained(tmp_path / "moe")
    found = cli("plan", tmp_path / "moe", "--budget", "90%")
    assert found.code == 0, found.err
    assert "unknown" in found.out
    assert "cannot be counted" in found.err


def test_a_plan_of_unequal_layers_is_exact():
    parameters = Parameters(embeddings=20, layers=(30, 10, 30, 10), rest=1)
    cost = Cost(fixed=1, layers=(1, 1, 1, 1))
    facts = Facts(length=8, family="x", part="", layers_at="", layer_1_stays="", longest=None,
                  parameters=parameters, gflops=cost)  # fmt: skip
    found = plan("x", facts, parse_budget("41"))
    assert found.fits == 2  # layers 2 and 4
    assert not any(size.within for size in found.sizes)  # the first layer alone is too large
    assert any("at most 3.3 times smaller" in note for note in found.notes)


def test_a_model_that_does_not_fit_into_memory_is_not_timed(cli):
    found = cli("plan", "Mistral-7B", "--budget", "20ms")
    assert found.code == 2
    assert "of memory" in found.err


def test_a_misspelt_name_gets_a_suggestion(cli):
    assert 'Did you mean "roberta-large"' in cli("plan", "roberta-larg").err


def test_doctor_does_not_overwrite(cli, tmp_path):
    (tmp_path / "mine.yaml").write_text("mine")
    found = cli("doctor", "bert-base", "--out", tmp_path / "mine.yaml")
    assert found.code == 2
    assert "--overwrite" in found.err
    assert (tmp_path / "mine.yaml").read_text() == "mine"
    assert cli("doctor", "bert-base", "--out", tmp_path / "mine.yaml", "--overwrite").code == 0
