"""Training a reader: branches over a shared context, snapshots, the adapter."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from generator.errors import GeneratorError
from generator.tuning import (
    Branch,
    Encoded,
    SharedContext,
    Tuner,
    TuningSettings,
    answer_logits,
    attention,
    encode,
    evaluate,
    load_for_tuning,
    save_adapter,
    schedule,
)
from tests.random_llama import random_llama

CONTEXT = SharedContext(
    "[1] The cat is old.\n",
    (Branch("Q: how is it\nA:", " old\n"), Branch("Q: what is it?\nA:", " a cat\n"), Branch("Q: x\nA:", " y\n")),
)
OTHERS = [
    SharedContext(f"[1] The {word} is {word}.\n", (Branch("Q: what\nA:", f" {word}\n"),)) for word in ("b", "cd", "efg")
]
SETTINGS = TuningSettings(
    epochs=2, contexts_per_step=2, learning_rate=0.02, rank=2, alpha=4, dropout=0.1, save_every=1, warmup=0.0
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_llama(tmp_path_factory.mktemp("llama"))


def loaded(folder: Path, settings: TuningSettings = SETTINGS) -> tuple[Any, list[Encoded]]:
    model, tokenizer = load_for_tuning(folder, settings)
    return model, [encode(context, tokenizer) for context in (CONTEXT, *OTHERS)]


def test_a_branch_is_computed_as_if_it_stood_alone(folder: Path) -> None:
    model, tokenizer = load_for_tuning(folder, SETTINGS)
    model.eval()
    logits, labels, branch = answer_logits(model, encode(CONTEXT, tokenizer))
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for number, own in enumerate(CONTEXT.branches, start=1):
        prompt = tokenizer(CONTEXT.text + own.prompt)["input_ids"]
        whole = tokenizer(CONTEXT.text + own.prompt + own.completion)["input_ids"]
        expected = plain(torch.tensor([whole])).logits[0, len(prompt) - 1 : -1]
        assert labels[branch == number].tolist() == whole[len(prompt) :]
        torch.testing.assert_close(logits[branch == number], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.model
def test_a_context_is_tokenised_with_what_follows_it(smol_folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smol_folder)
    # This tokenizer has a token for two line ends, which it does not use where a word follows.
    context = SharedContext("Say it.\n\n", (Branch("Q: what\nA:", " x\n"), Branch("Q: who\nA:", " y\n")))
    encoded = encode(context, tokenizer)
    for number, own in enumerate(context.branches, start=1):
        mine = [id for id, branch in zip(encoded.ids, encoded.branch, strict=True) if branch in (0, number)]
        assert mine == tokenizer(context.text + own.prompt + own.completion)["input_ids"]
        places = [
            place for place, branch in zip(encoded.positions, encoded.branch, strict=True) if branch in (0, number)
        ]
        assert places == list(range(len(mine)))


def test_a_tokenizer_that_joins_prompt_and_answer_is_refused(folder: Path) -> None:
    from tokenizers import AddedToken
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([AddedToken("A:x", normalized=False)])
    with pytest.raises(GeneratorError, match="joins the end of the prompt"):
        encode(SharedContext("", (Branch("Q\nA:", "x\n"),)), tokenizer)


def test_who_sees_whom() -> None:
    seen = attention(torch.tensor([0, 0, 1, 1, 2]))[0, 0]
    assert seen.int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 1],
    ]


def test_the_scores_are_the_loss_and_what_greedy_decoding_gives(folder: Path, tmp_path: Path) -> None:
    model, contexts = loaded(folder)
    _, tokenizer = load_for_tuning(folder, SETTINGS)
    Tuner(model, contexts, replace(SETTINGS, epochs=40, save_every=1000), tmp_path).run()
    scores = evaluate(model, contexts)
    model.eval()
    total, tokens, exact = 0.0, 0, 0
    for context in (CONTEXT, *OTHERS):
        for own in context.branches:
            prompt = torch.tensor([tokenizer(context.text + own.prompt)["input_ids"]])
            wanted = tokenizer(own.completion)["input_ids"]
            made = model.generate(
                input_ids=prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=len(wanted),
                do_sample=False,
                pad_token_id=0,
            )[0, prompt.shape[1] :]
            exact += int(made.tolist() == wanted)
            whole = torch.cat([prompt, torch.tensor([wanted])], dim=1)
            told = model(whole).logits[0, prompt.shape[1] - 1 : -1].log_softmax(-1)
            total -= float(told.detach().gather(1, torch.tensor(wanted)[:, None]).sum())
            tokens += len(wanted)
    assert scores.answers == 6
    assert scores.exact == exact / 6 > 0.5
    assert scores.loss == pytest.approx(total / tokens, rel=1e-4)


def test_training_lowers_the_loss_and_leaves_the_base_alone(folder: Path, tmp_path: Path) -> None:
    model, contexts = loaded(folder)
    before = evaluate(model, contexts)
    frozen = {name: value.clone() for name, value in model.state_dict().items() if "lora_" not in name}
    Tuner(model, contexts, replace(SETTINGS, epochs=10), tmp_path).run()
    assert evaluate(model, contexts).loss < before.loss - 0.5
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in frozen.items())


def test_a_stopped_training_goes_on_to_the_same_weights(folder: Path, tmp_path: Path) -> None:
    model, contexts = loaded(folder)
    whole = Tuner(model, contexts, SETTINGS, tmp_path / "whole")
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole.run()
    assert whole.done == whole.steps == 4
    for until in (1, 3, None):
        resumed, _ = loaded(folder)
        tuner = Tuner(resumed, contexts, SETTINGS, tmp_path / "parts")
        tuner.run(until)
    assert all(torch.equal(value, resumed.state_dict()[name]) for name, value in model.state_dict().items())
    assert (tmp_path / "parts/log.csv").read_text() == (tmp_path / "whole/log.csv").read_text()
    with pytest.raises(GeneratorError, match="other settings"):
        Tuner(resumed, contexts, replace(SETTINGS, rank=3), tmp_path / "parts")


def test_one_update_is_the_gradient_over_all_answer_tokens_of_its_contexts(folder: Path, tmp_path: Path) -> None:
    settings = replace(SETTINGS, contexts_per_step=4, epochs=1, clip=1e9, dropout=0.0)
    model, contexts = loaded(folder, settings)
    again, _ = loaded(folder, settings)
    Tuner(model, contexts, settings, tmp_path).run()
    parts = [answer_logits(again, own) for own in contexts]
    loss = torch.nn.functional.cross_entropy(torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts]))
    loss.backward()
    own = [p for p in again.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(own, lr=settings.learning_rate * schedule(0, 1, 0.0), weight_decay=0.0)
    optimizer.step()
    for mine, theirs in zip((p for p in model.parameters() if p.requires_grad), own, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-3)


def test_the_learning_rate_rises_and_falls_along_a_cosine() -> None:
    rates = [schedule(step, 100, 0.1) for step in range(100)]
    assert rates[:10] == pytest.approx([(step + 1) / 11 for step in range(10)])
    assert rates[10] == pytest.approx(1.0)
    assert rates[55] == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi / 2)) / 2)
    assert 0.1 < rates[99] < 0.102


def test_the_adapter_is_what_peft_loads(folder: Path, tmp_path: Path) -> None:
    model, contexts = loaded(folder)
    Tuner(model, contexts, replace(SETTINGS, epochs=10), tmp_path).run()
    save_adapter(model, tmp_path / "adapter", {"base": {"name": "a llama"}})
    assert json.loads((tmp_path / "adapter/magrag.json").read_text()) == {"base": {"name": "a llama"}}
    assert sorted(path.name for path in (tmp_path / "adapter").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "magrag.json",
    ]
    said = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    assert said["base_model_name_or_path"] == "a llama" and str(folder) not in json.dumps(said)
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    other = PeftModel.from_pretrained(plain, str(tmp_path / "adapter")).eval()
    model.eval()
    ids = torch.tensor([contexts[0].ids])
    torch.testing.assert_close(other(ids).logits, model(ids).logits, atol=0.05, rtol=0.01)


def test_contexts_that_do_not_fit_are_left_out(folder: Path, tmp_path: Path) -> None:
    model, contexts = loaded(folder)
    longest = max(len(own.ids) for own in contexts)
    assert len(Tuner(model, contexts, replace(SETTINGS, max_tokens=longest - 1), tmp_path).contexts) == 3
    with pytest.raises(GeneratorError, match="max_tokens = 5"):
        Tuner(model, contexts, replace(SETTINGS, max_tokens=5), tmp_path)


def test_a_folder_without_a_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(GeneratorError, match="cannot train the model in"):
        load_for_tuning(tmp_path, SETTINGS)
