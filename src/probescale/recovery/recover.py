"""Fine-tuning and prediction, the same recipe for the original and every subnetwork."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import DataCollatorWithPadding, PrinterCallback, Trainer, TrainerCallback, TrainingArguments, set_seed

from probescale.config import RecoveryConfig
from probescale.errors import UserError
from probescale.models.batching import encode, padded_batches
from probescale.models.family import Family
from probescale.models.loading import LoadedModel, fingerprint, quiet_transformers
from probescale.progress import progress
from probescale.tasks.data import Examples


def recover(
    loaded: LoadedModel,
    train: Examples,
    recipe: RecoveryConfig,
    *,
    max_length: int = 128,
    seed: int = 0,
    title: str = "fine-tuning",
) -> None:
    """Train the model in place. The last state is kept: no data is used to choose among states."""
    if recipe.epochs == 0:
        return
    set_seed(seed)
    data = _Tokenised(loaded, train, max_length)
    steps = recipe.epochs * -(-len(data) // recipe.batch_size)
    if recipe.dropout is not None:
        _set_dropout(loaded.model, recipe.dropout)
    with tempfile.TemporaryDirectory() as scratch, quiet_transformers(), progress(title, steps) as advance:
        trainer = _SentenceTrainer(
            model=loaded.model,
            args=_arguments(recipe, scratch, seed),
            train_dataset=data,
            data_collator=DataCollatorWithPadding(loaded.tokenizer),
            callbacks=[_Bar(advance)],
        )
        trainer.family = loaded.family
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    loaded.model.eval()
    loaded.fingerprint = fingerprint(loaded.model)
    if not all(torch.isfinite(parameter).all() for parameter in loaded.model.parameters()):
        raise UserError(
            f"{title} went astray: weights are not finite numbers any more",
            field="recovery.learning_rate",
            hint=f"choose a smaller one than {recipe.learning_rate:g}",
        )


def _set_dropout(model: nn.Module, share: float) -> None:
    """In the modules only: the config, and with it what is saved, stays as it is."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = share
        for name in ("dropout", "attention_dropout", "activation_dropout", "dropout_prob", "dropout_rate"):
            if isinstance(getattr(module, name, None), float):  # where it is handed to a function
                setattr(module, name, share)


def predict(
    loaded: LoadedModel,
    examples: Examples,
    *,
    max_length: int = 128,
    batch_tokens: int = 2048,
    title: str = "evaluating",
) -> np.ndarray:
    """Predicted label numbers, in the order of the examples."""
    model, family = loaded.model, loaded.family
    predicted = np.empty(len(examples), np.int64)
    tokens = encode(loaded.tokenizer, examples.texts, examples.pairs, max_length)
    with torch.inference_mode(), progress(title, len(examples)) as advance:
        for batch, padded in padded_batches(loaded.tokenizer, tokens, batch_tokens):
            padded = padded.to(model.device)
            logits = family.sentence_logits(model(**padded).logits, padded["attention_mask"])
            predicted[batch] = logits.argmax(-1).cpu().numpy()
            advance(len(batch))
    return predicted


def _arguments(recipe: RecoveryConfig, scratch: str, seed: int) -> TrainingArguments:
    return TrainingArguments(
        output_dir=scratch,
        num_train_epochs=recipe.epochs,
        learning_rate=recipe.learning_rate,
        per_device_train_batch_size=recipe.batch_size,
        warmup_steps=recipe.warmup,  # below 1: a share of all steps
        weight_decay=recipe.weight_decay,
        train_sampling_strategy="group_by_length",
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=torch.cuda.is_available(),
        seed=seed,
    )


class _Tokenised(Dataset[dict[str, Any]]):
    def __init__(self, loaded: LoadedModel, examples: Examples, max_length: int) -> None:
        self.tokens = encode(loaded.tokenizer, examples.texts, examples.pairs, max_length)
        self.labels = examples.labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self.tokens[row] | {"labels": self.labels[row]}


class _SentenceTrainer(Trainer):
    """The stock trainer, with the family's way from the classifier's output to one answer per sentence."""

    family: Family

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor | tuple[Tensor, Any]:
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = self.family.sentence_logits(outputs.logits, inputs["attention_mask"])
        loss = nn.functional.cross_entropy(logits, labels)
        return (loss, outputs) if return_outputs else loss


class _Bar(TrainerCallback):
    def __init__(self, advance: Callable[[int], None]) -> None:
        self.advance = advance

    def on_step_end(self, *_: object, **__: object) -> None:
        self.advance(1)
