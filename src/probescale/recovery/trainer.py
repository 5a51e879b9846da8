"""transformers' Trainer with an Objective; `accelerate launch` and torchrun spread it over devices and machines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Subset
from transformers import PrinterCallback, Trainer, TrainingArguments
from transformers.trainer_pt_utils import LengthGroupedSampler

from probescale.errors import Diverged
from probescale.models.loading import LoadedModel
from probescale.models.memory import BatchSplitter
from probescale.models.precision import choose_precision
from probescale.recovery.inputs import select_model_fields, select_rows
from probescale.recovery.recipe import Recipe
from probescale.recovery.states import mean_over_tokens
from probescale.recovery.training_set import TrainingSet
from probescale.utils.distributed import process_count

SHOWN_EXAMPLES = 3  # in an error message
LOGGED_POINTS = 100  # of a training's loss curve, for a tracker


class RecoveryTrainer(Trainer):
    """Minimises an Objective, which finds labels and the teacher's outputs by the numbers of rows and inputs."""

    def __init__(
        self,
        loaded: LoadedModel,
        data: TrainingSet,
        captured: list[Tensor],  # every layer's output in the latest forward pass, if the objective compares states
        arguments: TrainingArguments,
        layer_decay: float,
        checkpoints: Path | None = None,
    ) -> None:
        self.loaded, self.objective, self.captured, self.layer_decay = loaded, data.objective, captured, layer_decay
        self.lengths, self.checkpoints = data.inputs.tokens.lengths[data.used].tolist(), checkpoints
        self.used, self.splitter = data.used, BatchSplitter()
        self.shares = (1.0, 1.0)  # of the batch's rows and inputs in the part that is learned now
        super().__init__(
            model=loaded.model,
            args=arguments,
            train_dataset=Subset(data.inputs, data.used),
            data_collator=partial(data.inputs.collate, loaded.tokenizer),
        )
        self.remove_callback(PrinterCallback)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor | tuple[Tensor, Any]:
        outputs = model(**select_model_fields(inputs))
        objective, (row_share, input_share) = self.objective, self.shares
        rows = select_rows(self.loaded, outputs[0], inputs)
        loss = row_share * objective.output_weight * objective.loss(*rows)
        if objective.states is not None:
            states = mean_over_tokens(self.captured, inputs["attention_mask"])
            loss = loss + input_share * objective.state_weight * objective.state_loss(states, inputs["number"])
        if objective.pairs is not None:
            loss = loss + input_share * objective.pair_weight * objective.pairs.loss(*rows)
        if not torch.isfinite(loss):
            self._raise_diverged(loss, inputs["number"])
        return (loss, outputs) if return_outputs else loss

    def _raise_diverged(self, loss: Tensor, numbers: Tensor) -> None:
        """Stop at once: no later step repairs weights that are not finite."""
        examples = ", ".join(str(int(number) + 1) for number in numbers[:SHOWN_EXAMPLES])
        raise Diverged(
            f"the loss is {loss.item()} at step {self.state.global_step + 1}, in a batch with the training examples "
            f"{examples} and others",
            rate=self.args.learning_rate,
        )

    def training_step(
        self, model: nn.Module, inputs: dict[str, Tensor], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Learn one batch, in parts where it does not fit into memory: their gradients add up to the batch's."""
        if process_count() > 1:  # other processes would wait for parts that they do not have
            return super().training_step(model, inputs, num_items_in_batch)
        numbers = inputs["number"].tolist()

        def learn(part: slice) -> Tensor:
            fields = {name: tensor[part] for name, tensor in inputs.items()}
            self.shares = (1.0, 1.0)
            if len(fields["number"]) < len(numbers):
                count = self.objective.count_learnable
                learnable = count(fields["rows"]) / max(count(inputs["rows"]), 1)
                self.shares = (learnable, len(fields["number"]) / len(numbers))
            return super(RecoveryTrainer, self).training_step(model, fields)

        def undo() -> None:
            self.captured.clear()
            model.zero_grad()

        return torch.stack(self.splitter.run(numbers, inputs["input_ids"].shape[1], learn, undo)).sum(0)

    def _get_train_sampler(self, train_dataset: Any = None) -> LengthGroupedSampler:  # noqa: ANN401 - the trainer's
        """Batches of texts of similar length, which do not depend on the number of processes."""
        size, pairs = self.args.train_batch_size * process_count(), self.objective.pairs
        arrange = partial(pairs.arrange, numbers=self.used) if pairs else list
        return EpochSampler(size, self.lengths, self.args.seed, self._epochs_done, arrange)

    def _epochs_done(self) -> int:
        """How many epochs are complete."""
        return self.state.global_step * int(self.args.num_train_epochs) // max(self.state.max_steps, 1)

    def _get_output_dir(self, trial: object) -> str:
        return str(self.checkpoints or super()._get_output_dir(trial))

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:  # noqa: ANN401 - as the trainer has it
        """AdamW whose learning rate falls from layer to layer downwards, by the factor `layer_decay`."""
        if self.layer_decay < 1 and self.optimizer is None:
            chosen, options = self.get_optimizer_cls_and_kwargs(self.args, self.loaded.model)
            self.optimizer = chosen(self._groups(options["lr"]), **options)
        return super().create_optimizer(model)

    def _groups(self, rate: float) -> list[dict[str, Any]]:
        """Parameters by depth (0: embeddings, L + 1: head), and by whether weight decay applies to them."""
        blocks = list(self.loaded.family.layers(self.loaded.model))
        depth = {id(p): n for n, block in enumerate(blocks, 1) for p in block.parameters()}
        embedded = {id(p) for p in self.loaded.model.get_input_embeddings().parameters()}
        decayed = set(self.get_decay_parameter_names(self.loaded.model))
        groups: dict[tuple[int, bool], list[nn.Parameter]] = {}
        for name, parameter in self.loaded.model.named_parameters():
            if not parameter.requires_grad:
                continue
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
    """An order that depends on seed and epoch alone, so that a resumed training sees the same batches."""

    def __init__(
        self,
        size: int,
        lengths: list[int],
        seed: int,
        epochs_done: Callable[[], int],
        arrange: Callable[[list[int]], list[int]] = list,
    ) -> None:
        """`arrange`: brings together in a batch what belongs together."""
        self.random = torch.Generator()
        super().__init__(size, lengths=lengths, generator=self.random)
        self.seed, self.epochs_done, self.arrange = seed, epochs_done, arrange

    def __iter__(self) -> Iterator[int]:
        self.random.manual_seed(self.seed)
        for _ in range(self.epochs_done()):
            list(super().__iter__())  # draw the orders of the epochs before
        return iter(self.arrange(list(super().__iter__())))


def build_arguments(recipe: Recipe, folder: str, seed: int, title: str, steps: int) -> TrainingArguments:
    """The recipe as transformers' TrainingArguments. Trackers that write files put them into `folder`."""
    precision = choose_precision(recipe.precision)
    arguments = TrainingArguments(
        output_dir=folder,
        run_name=title,
        num_train_epochs=recipe.epochs,
        learning_rate=recipe.learning_rate,
        per_device_train_batch_size=-(-recipe.batch_size // process_count()),
        warmup_steps=recipe.warmup,  # below 1: a fraction of all steps
        weight_decay=recipe.weight_decay,
        bf16=precision == "bfloat16",
        fp16=precision == "float16",
        use_cpu=not torch.cuda.is_available(),  # like everything else here: a Mac's GPU is not used, or timed against
        average_tokens_across_devices=False,  # with it, two processes would double the loss
        save_strategy="no",
        report_to=list(recipe.tracking) or "none",
        logging_strategy="steps" if recipe.tracking else "epoch",
        logging_steps=max(steps // LOGGED_POINTS, 1),
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=torch.cuda.is_available(),
        seed=seed,
    )
    # Without a launcher, transformers would make every batch as many times larger as there are GPUs.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments


def mean_epoch_losses(history: list[dict[str, float]]) -> tuple[float, ...]:
    """The mean loss of every epoch, from the trainer's log: each entry is a mean over the steps since the last one."""
    epochs: dict[int, list[tuple[float, float]]] = {}  # epoch -> (loss, steps)
    last_step = 0.0
    for entry in history:
        if "loss" in entry:
            steps, last_step = entry["step"] - last_step, entry["step"]
            epochs.setdefault(math.ceil(entry["epoch"]), []).append((entry["loss"], steps))
    return tuple(
        round(sum(loss * steps for loss, steps in parts) / sum(steps for _, steps in parts), 4)
        for _, parts in sorted(epochs.items())
    )
