"""transformers' Trainer with our objective: under `accelerate launch` or torchrun it spans devices and machines."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer_pt_utils import LengthGroupedSampler

from probescale.config import RecoveryConfig
from probescale.errors import UserError
from probescale.models.loading import LoadedModel
from probescale.models.memory import BatchSplitter
from probescale.models.precision import choose_precision
from probescale.recovery.checkpoints import checkpoint_path, find_newest
from probescale.recovery.objective import Objective
from probescale.recovery.predict import select_rows
from probescale.recovery.states import mean_over_tokens
from probescale.utils.distributed import is_main_process, process_count


def _tell_astray(loss: Tensor, numbers: Tensor, step: int, rate: float) -> None:
    """Weights that training has ruined stay so: stop at once."""
    examples = ", ".join(str(int(number) + 1) for number in numbers[:SHOWN])
    raise UserError(
        f"the loss is {loss.item()} at step {step}, with the training examples {examples} and others",
        field="recovery.learning_rate",
        hint=f"choose a smaller one than {rate:g}",
    )


SHOWN = 3  # examples
BEST = "best.safetensors"  # in a checkpoint: the best state so far
LOGGED = 100  # points of a training that a tracker hears of


class RecoveryTrainer(Trainer):
    """Labels, and a teacher's answers and states, are looked up by the number of a row."""

    def __init__(
        self,
        loaded: LoadedModel,
        data: Dataset[dict[str, Any]],
        lengths: list[int],  # in tokens
        collate: Callable[..., dict[str, Tensor]],
        objective: Objective,
        seen: list[Tensor],  # states of the last pass, where the objective asks for them
        arguments: TrainingArguments,
        layer_decay: float,
        checkpoints: Path | None = None,
    ) -> None:
        self.loaded, self.objective, self.seen, self.layer_decay = loaded, objective, seen, layer_decay
        self.lengths, self.checkpoints = lengths, checkpoints
        self.portions, self.share = BatchSplitter(), (1.0, 1.0)
        super().__init__(
            model=loaded.model,
            args=arguments,
            train_dataset=data,
            data_collator=partial(collate, loaded.tokenizer),
        )
        self.remove_callback(PrinterCallback)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor | tuple[Tensor, Any]:
        fields = {name: tensor for name, tensor in inputs.items() if name not in ("rows", "number")}
        outputs = model(**fields)
        objective, (of_rows, of_inputs) = self.objective, self.share
        rows = select_rows(self.loaded.family, outputs.logits, inputs)
        loss = of_rows * objective.answer_weight * objective.loss(*rows)
        if objective.states is not None:
            found = mean_over_tokens(self.seen, inputs["attention_mask"])
            loss = loss + of_inputs * objective.state_weight * objective.state_loss(found, inputs["number"])
        if not torch.isfinite(loss):
            _tell_astray(loss, inputs["number"], self.state.global_step + 1, self.args.learning_rate)
        return (loss, outputs) if return_outputs else loss

    def training_step(
        self, model: nn.Module, inputs: dict[str, Tensor], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """A batch that does not fit into memory is learnt in parts: their gradients add up to those of the batch."""
        if process_count() > 1:  # every part would be waited for by processes that have none
            return super().training_step(model, inputs, num_items_in_batch)
        numbers = inputs["number"].tolist()

        def learn(part: slice) -> Tensor:
            some = {name: tensor[part] for name, tensor in inputs.items()}
            self.share = (1.0, 1.0)
            if len(some["number"]) < len(numbers):
                known = self.objective.counted(some["rows"]) / max(self.objective.counted(inputs["rows"]), 1)
                self.share = (known, len(some["number"]) / len(numbers))
            return super(RecoveryTrainer, self).training_step(model, some)

        def undo() -> None:
            self.seen.clear()
            model.zero_grad()

        return torch.stack(self.portions.run(numbers, inputs["input_ids"].shape[1], learn, undo)).sum(0)

    def _get_train_sampler(self, train_dataset: Any = None) -> LengthGroupedSampler:  # noqa: ANN401 - the trainer's
        """Batches of like length: the same ones, however many processes share each of them."""
        return EpochSampler(self.args.train_batch_size * process_count(), self.lengths, self.args.seed, self._epoch)

    def _epoch(self) -> int:
        """How many are done."""
        return self.state.global_step * int(self.args.num_train_epochs) // max(self.state.max_steps, 1)

    def _get_output_dir(self, trial: object) -> str:
        return str(self.checkpoints or super()._get_output_dir(trial))

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:  # noqa: ANN401 - as the trainer has it
        """Lower layers can learn more slowly: they are shared by all tasks, and change least."""
        if self.layer_decay < 1 and self.optimizer is None:
            chosen, options = self.get_optimizer_cls_and_kwargs(self.args, self.loaded.model)
            self.optimizer = chosen(self._groups(options["lr"]), **options)
        return super().create_optimizer(model)

    def _groups(self, rate: float) -> list[dict[str, Any]]:
        blocks = list(self.loaded.family.layers(self.loaded.model))
        depth = {id(p): n for n, block in enumerate(blocks, 1) for p in block.parameters()}
        embedded = {id(p) for p in self.loaded.model.get_input_embeddings().parameters()}
        decayed = set(self.get_decay_parameter_names(self.loaded.model))
        groups: dict[tuple[int, bool], list[nn.Parameter]] = {}
        for name, parameter in self.loaded.model.named_parameters():
            level = 0 if id(parameter) in embedded else depth.get(id(parameter), len(blocks) + 1)
            groups.setdefault((level, name in decayed), []).append(parameter)
        return [
            {
                "params": parameters,
                "lr": rate * self.layer_decay ** (len(blocks) + 1 - level),
                "weight_decay": self.args.weight_decay if decays else 0.0,
            }
            for (level, decays), parameters in groups.items()
        ]


class EpochSampler(LengthGroupedSampler):
    """The order of an epoch hangs on the seed and the epoch alone: training that was cut off goes on in it."""

    def __init__(self, size: int, lengths: list[int], seed: int, epoch: Callable[[], int]) -> None:
        self.random = torch.Generator()
        super().__init__(size, lengths=lengths, generator=self.random)
        self.seed, self.epoch = seed, epoch

    def __iter__(self) -> Iterator[int]:
        self.random.manual_seed(self.seed)
        for _ in range(self.epoch()):
            list(super().__iter__())  # those before it
        return super().__iter__()


def build_arguments(recipe: RecoveryConfig, folder: str, seed: int, title: str, steps: int) -> TrainingArguments:
    """`folder`: where trackers that write files put them; nothing else is left there."""
    precision = choose_precision(recipe.precision)
    return TrainingArguments(
        output_dir=folder,
        run_name=title,
        num_train_epochs=recipe.epochs,
        learning_rate=recipe.learning_rate,
        per_device_train_batch_size=-(-recipe.batch_size // process_count()),
        warmup_steps=recipe.warmup,  # below 1: a share of all steps
        weight_decay=recipe.weight_decay,
        bf16=precision == "bfloat16",
        fp16=precision == "float16",
        use_cpu=process_count() > 1 and not torch.cuda.is_available(),
        average_tokens_across_devices=False,  # with it, two processes would double the loss
        save_strategy="no",
        report_to=list(recipe.tracking) or "none",
        logging_strategy="steps" if recipe.tracking else "epoch",
        logging_steps=max(steps // LOGGED, 1),
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=torch.cuda.is_available(),
        seed=seed,
    )


def mean_epoch_losses(history: list[dict[str, float]]) -> tuple[float, ...]:
    """The mean of every epoch, from what the trainer logged in it: each entry speaks of the steps since the last."""
    epochs: dict[int, list[tuple[float, float]]] = {}  # epoch -> (loss, steps)
    before = 0.0
    for entry in history:
        if "loss" in entry:
            steps, before = entry["step"] - before, entry["step"]
            epochs.setdefault(math.ceil(entry["epoch"]), []).append((entry["loss"], steps))
    return tuple(
        round(sum(loss * steps for loss, steps in parts) / sum(steps for _, steps in parts), 4)
        for _, parts in sorted(epochs.items())
    )


class ProgressBar(TrainerCallback):
    def __init__(self, advance: Callable[[int], None]) -> None:
        self.advance = advance

    def on_train_begin(self, args: object, state: TrainerState, control: object, **_: object) -> None:
        self.advance(state.global_step)

    def on_step_end(self, *_: object, **__: object) -> None:
        self.advance(1)


class EarlyStop(TrainerCallback):
    """After every epoch: is it still getting better? The best state is put back at the end."""

    def __init__(self, model: nn.Module, loss: Callable[[], float], patience: int, checkpoints: Path | None) -> None:
        self.model, self.loss, self.patience, self.checkpoints = model, loss, patience, checkpoints
        self.best, self.since, self.kept = float("inf"), 0, dict[str, Tensor]()
        if checkpoints and (before := find_newest(checkpoints)):
            with safe_open(before / BEST, "pt") as stored:
                self.kept = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - no mapping
                said = stored.metadata()
            self.best, self.since = float(said["best"]), int(said["since"])

    def on_epoch_end(self, args: object, state: object, control: Any, **_: object) -> None:  # noqa: ANN401
        self.model.eval()
        found = self.loss()
        self.model.train()
        self.since += 1
        if found < self.best:
            self.best, self.since, self.kept = found, 0, copy.deepcopy(self.model.state_dict())
        control.should_training_stop = self.since >= self.patience

    def on_save(self, args: object, state: TrainerState, control: object, **_: object) -> None:
        if self.checkpoints and is_main_process():
            own = {name: tensor.clone() for name, tensor in self.kept.items()}  # tied ones are stored twice
            said = {"best": repr(self.best), "since": str(self.since)}
            save_file(own, checkpoint_path(self.checkpoints, state.global_step) / BEST, said)

    def on_train_end(self, *_: object, **__: object) -> None:
        if self.kept:
            self.model.load_state_dict(self.kept)
