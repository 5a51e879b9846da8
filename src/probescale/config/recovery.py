"""`recovery`: how the original and the cut models are trained."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from probescale.utils.sections import Int, Section, Source

Auto = Literal["auto"]
Tracker = Literal["tensorboard", "mlflow", "wandb", "trackio"]  # of the trainer's; also the names of their packages
Epochs = Annotated[Int, Field(ge=0, le=10**4)]
Rate = Annotated[float, Field(gt=0, le=1)]
BatchSize = Annotated[Int, Field(ge=1, le=10**6)]
Dropout = Annotated[float, Field(ge=0, lt=1)] | Literal["model"]
ClassWeights = Literal["none", "square_root", "balanced"]


class OriginalConfig(Section):
    """`recovery.original`: settings for fine-tuning the original.

    auto: as for the subnetworks where they have a setting of the user's; else chosen.
    """

    epochs: Epochs | Auto = Field(default="auto", description="Passes over the labelled data; 0: it is used as it is.")
    learning_rate: Rate | Auto = Field(default="auto", description="Peak learning rate.")
    batch_size: BatchSize | Auto = Field(default="auto", description="Examples per step.")
    dropout: Dropout | Auto = Field(
        default="auto",
        description="Dropout in training; model: the model's own. auto: the model's own, or 0 where there is only time "
        "for fewer epochs than usual.",
    )
    retrain: bool = Field(
        default=False,
        description="Train a new head even if the model was fine-tuned for these very labels. Otherwise such a model "
        "is used as it is.",
    )
    keep: bool = Field(
        default=False,
        description="Keep the fine-tuned original in the run folder, as a model folder (original/).",
    )


class RecoveryConfig(Section):
    """`recovery`: the training recipe. `auto`: chosen by the model, the data and the time."""

    epochs: Epochs | Auto = Field(default="auto", description="Passes over the training texts; the paper uses 3.")
    learning_rate: Rate | Auto = Field(
        default="auto",
        description="Peak learning rate of AdamW; linear warm-up and decay. auto: by the width of the model; with the "
        "strategy tried, short trainings choose among three.",
    )
    texts: Annotated[Int, Field(ge=1)] | Auto = Field(
        default="auto",
        description="Texts per epoch: all labelled ones, and as many others as this allows. auto: all of them, or as "
        "many as the time allows.",
    )
    batch_size: BatchSize | Auto = Field(default="auto", description="Examples per step.")
    original: OriginalConfig = Field(
        default_factory=OriginalConfig,
        description="Settings of the original only, which learns from labels alone.",
    )
    teacher: Source | None = Field(
        default=None,
        description="A model fine-tuned for this task (any family) whose predictions the subnetworks learn. By default "
        "the original, fine-tuned.",
    )
    warmup: float = Field(default=0.1, ge=0, lt=1, description="Share of all steps used for warm-up.")
    weight_decay: float = Field(default=0.01, ge=0, description="AdamW's weight decay.")
    dropout: Dropout | Auto = Field(
        default="auto",
        description="Dropout in training; model: the model's own. auto: 0 for subnetworks, which is faster on a CPU; "
        "without distil the model's own.",
    )
    layer_decay: float = Field(
        default=1.0, gt=0, le=1, description="Learning rate of a layer as a share of the layer above; 1: equal for all."
    )
    validation: float = Field(
        default=0.0, ge=0, lt=1, description="Part of train held out to stop at the best epoch; 0: train to the end."
    )
    patience: Int = Field(default=2, ge=1, description="Epochs without an improvement after which training stops.")
    precision: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto",
        description="auto: bfloat16 on a GPU that supports it, else float32. One that fails is not used.",
    )
    adapters: Literal["none", "lora"] = Field(
        default="none",
        description="lora: learn small matrices beside those of the layers instead of the weights, and add them in at "
        "the end; for models whose full training does not fit into memory.",
    )
    adapter_rank: Int = Field(default=32, ge=1, le=10**4, description="Rank of the adapters.")
    save_memory: bool = Field(
        default=False,
        description="Compute the states of the layers twice instead of keeping them (gradient checkpointing): less "
        "memory, about a third slower. Not with states or healing.",
    )
    distil: bool = Field(
        default=True, description="Subnetworks also learn from the predictions of the fine-tuned original."
    )
    start: Literal["teacher", "pretrained"] = Field(
        default="teacher",
        description="With distil: whether subnetworks are cut from the fine-tuned original, head included (teacher), "
        "or from the weights before fine-tuning, with a new head (pretrained), as in the paper.",
    )
    class_weights: ClassWeights | Auto = Field(
        default="auto",
        description="How much rows of rare labels count in the loss on labels. balanced: all labels count alike, "
        "however many rows they have; square_root: by the root of that weight; none: all rows count alike. auto: "
        "square_root where one label has 90 % of the rows and the metric is an F1, else none. Only for tasks where "
        "every row has one class.",
    )
    soft: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Weight of the teacher's predictions for labelled texts; the rest is the weight of the label.",
    )
    temperature: float = Field(default=2.0, gt=0, le=100, description="Temperature of the teacher's predictions.")
    states: float = Field(
        default=0.0, ge=0, description="Weight of the distance to the teacher's states at kept layers; 0: none."
    )
    pairs: float = Field(
        default=0.2,
        ge=0,
        description="Embeddings only: weight of the pairs in train (questions with their passages, or pairs with "
        "scores) beside the original's vectors; 0: their texts are learned as single ones.",
    )
    dimensions: tuple[Annotated[Int, Field(ge=1)], ...] = Field(
        default=(),
        description="Embeddings only: smaller vectors that are learned as well, such as [128, 64]: the first so many "
        "numbers (Matryoshka), which `SentenceTransformer(..., truncate_dim=128)` gives.",
    )
    healing: Int = Field(
        default=0, ge=0, le=10**4, description="Epochs before training in which only the teacher's states are learned."
    )
    augment: Annotated[Int, Field(ge=0, le=1000)] | Auto = Field(
        default="auto",
        description="Number of changed copies of every text, labelled or not, for the teacher to label. auto: as many "
        "as it takes where there are few texts.",
    )
    tracking: tuple[Tracker, ...] = Field(
        default=(), description="Trackers that get the metrics of every training; each has its own setup."
    )
