"""The trainer of two objectives: parts of a step weigh what they hold."""

import pytest
import torch
from torch.utils.data import Dataset
from transformers import TrainingArguments

from hf_metalstm import GPT1Config, GPT1DoubleHeadsModel, GPT1ForSequenceClassification
from hf_metalstm.training.gpt1_trainer import GPT1Trainer

SIZES = dict(vocab_size=31, n_embd=16, n_layer=2, n_head=2, n_positions=20)
STILL = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, clf_pdrop=0.0)


class Rows(Dataset):
    """Texts of very different lengths, one row without a label."""

    def __init__(self, choices: bool):
        make = torch.Generator().manual_seed(0)
        shape = (5, 2, 12) if choices else (5, 12)
        ids = torch.randint(1, 31, shape, generator=make)
        lengths = torch.randint(2, 13, shape[:-1], generator=make)
        mask = (torch.arange(12) < lengths[..., None]).long()
        right = torch.tensor([0, 1, -100, 1, 0])
        names = ("labels", "mc_labels") if choices else ("lm_labels", "labels")
        self.columns = {"input_ids": ids, "attention_mask": mask, names[0]: ids.masked_fill(mask == 0, -100)}
        self.columns[names[1]] = right

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {name: column[index] for name, column in self.columns.items()}


def stack(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def build(model_class: type, **changes: object) -> torch.nn.Module:
    torch.manual_seed(0)
    return model_class(GPT1Config(**{**SIZES, **STILL, **changes}))


@pytest.mark.parametrize("reduction", ["token", "sequence"])
@pytest.mark.parametrize("model_class", [GPT1DoubleHeadsModel, GPT1ForSequenceClassification])
def test_accumulated_batches_of_uneven_texts_are_one_large_batch(model_class, reduction, tmp_path):
    results = []
    for size, steps in ((5, 1), (1, 5), (2, 3)):
        model = build(model_class, lm_loss_reduction=reduction)
        args = TrainingArguments(
            output_dir=str(tmp_path), use_cpu=True, max_steps=1, learning_rate=0.1, lr_scheduler_type="constant",
            optim="sgd", max_grad_norm=0.0, report_to="none", disable_tqdm=True, save_strategy="no", logging_steps=1,
            per_device_train_batch_size=size, gradient_accumulation_steps=steps,
        )  # fmt: skip
        trainer = GPT1Trainer(model, args, train_dataset=Rows(model_class is GPT1DoubleHeadsModel), data_collator=stack)
        trainer.train()
        results.append((trainer.state.log_history[0]["loss"], model.state_dict()))
    whole = build(model_class, lm_loss_reduction=reduction)
    loss = whole(**stack(list(Rows(model_class is GPT1DoubleHeadsModel)))).loss
    loss.backward()
    for logged, weights in results:
        assert logged == pytest.approx(loss.item(), rel=1e-4)
        for name, parameter in whole.named_parameters():
            torch.testing.assert_close(weights[name], parameter - 0.1 * parameter.grad, rtol=1e-5, atol=1e-6)


def test_evaluation_gives_the_loss_of_each_batch(tmp_path):
    model = build(GPT1DoubleHeadsModel)
    args = TrainingArguments(
        output_dir=str(tmp_path), use_cpu=True, report_to="none", disable_tqdm=True, per_device_eval_batch_size=5,
        label_names=["labels", "mc_labels"],
    )  # fmt: skip
    rows = Rows(True)
    trainer = GPT1Trainer(model, args, eval_dataset=rows, data_collator=stack)
    with torch.no_grad():
        wanted = model.eval()(**stack(list(rows))).loss.item()
    assert trainer.evaluate()["eval_loss"] == pytest.approx(wanted, rel=1e-5)


def test_batches_without_labels_are_refused_in_words(tmp_path):
    args = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none", disable_tqdm=True, max_steps=1)
    rows = Rows(True)
    rows.columns = {"input_ids": rows.columns["input_ids"]}
    trainer = GPT1Trainer(build(GPT1DoubleHeadsModel), args, train_dataset=rows, data_collator=stack)
    with pytest.raises(ValueError, match="no labels of any objective, only input_ids"):
        trainer.train()
