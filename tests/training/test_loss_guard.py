"""A loss that is no number stops the training, with where it stood."""

import math

import pytest
import torch
from transformers import TrainerCallback, TrainingArguments

from hf_metalstm.training.loss_guard import GuardedTrainer, NonFiniteLossError


class Spoil(TrainerCallback):
    """Writes a value into a weight after the given step."""

    def __init__(self, step, value):
        self.step, self.value = step, value

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step == self.step:
            with torch.no_grad():
                model.embeddings.weight.fill_(self.value)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_with_step_rate_and_gradient_norm(make_trainer, value):
    trainer = make_trainer(callbacks=[Spoil(2, value)], lr_scheduler_type="constant", logging_steps=1)
    with pytest.raises(NonFiniteLossError) as error:
        trainer.train()
    message = str(error.value)
    norm = trainer.state.log_history[-1]["grad_norm"]
    assert f"at step 3 (learning rate 0.05, last gradient norm {norm:.3g})" in message
    assert "loss is nan" in message and ("books" in message or "dvd" in message)
    assert [entry["step"] for entry in trainer.state.log_history] == [1, 2]
    assert all(entry["loss"] > 0 for entry in trainer.state.log_history)


def test_the_very_first_loss_is_checked_and_no_step_is_made(make_trainer, make_model):
    model = make_model()
    with torch.no_grad():
        model.heads[0].bias.fill_(math.nan)
        model.heads[1].bias.fill_(math.nan)
    before = model.embeddings.weight.clone()
    trainer = make_trainer(model=model)
    with pytest.raises(NonFiniteLossError, match=r"loss is nan at step 1 \(.*last gradient norm none yet\)"):
        trainer.train()
    assert torch.equal(model.embeddings.weight, before)


def test_any_trainer_can_stand_on_it(make_model, make_rows, tmp_path):
    class Broken(GuardedTrainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return super().compute_loss(model, inputs) * math.inf

    rows = [{**row, "input_ids": row["input_ids"][:3], "task_ids": 0} for row in make_rows(4)]
    arguments = TrainingArguments(str(tmp_path), use_cpu=True, report_to="none", disable_tqdm=True)
    with pytest.raises(NonFiniteLossError, match="loss is inf at step 1.*The batch has 4 rows"):
        Broken(make_model(), arguments, train_dataset=rows).train()
