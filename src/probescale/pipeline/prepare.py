"""Load a task and its model, and refuse at once what cannot work: bad data, an impossible budget."""

from __future__ import annotations

from dataclasses import replace

from probescale.config import OtherModel, RunConfig
from probescale.errors import UserError
from probescale.models.facts import check_length
from probescale.models.loading import LoadedModel, load_classifier, load_encoder, read_trained_labels
from probescale.models.shrink.shrinker import Shrinker
from probescale.pipeline.lengths import describe_cut
from probescale.pipeline.provenance import provenance
from probescale.pipeline.teachers import check_teacher, load_token_teacher
from probescale.pipeline.validate import check_budget, check_computed_twice, check_other_model, refuse_encoder
from probescale.pipeline.workbench import Workbench, choose_for_others
from probescale.probing.probe import check_probes
from probescale.recovery.embedder import Embedder
from probescale.recovery.label_scale import refuse_far_numbers
from probescale.tasks.kinds import find_kind
from probescale.tasks.label_matching import match_labels
from probescale.tasks.notes import describe_data
from probescale.tasks.task import Task, count_with_tuning, load_task
from probescale.tasks.unlabelled import joined, load_unlabelled
from probescale.utils.progress import console


def prepare(config: RunConfig, validation: float | None = None, *, quiet: bool = False) -> Workbench:
    """Load task and model; everything that can be refused is refused now: bad data, an impossible budget.

    `validation`: the share of train that is held out, to decide on. `quiet`: what there is to say was said before.
    """
    find_kind(config.task.kind).check_run(config)
    task = load_task(config.task, config.seed)
    for note in () if quiet else describe_data(task):
        console.print(f"note: {note}", soft_wrap=True)
    check_probes(task, config)
    check_budget(config, len(task.train.names))
    for number, other in enumerate(config.compare):
        if isinstance(other, OtherModel):
            check_other_model(other, task.kind.head, number, twice=config.recovery.save_memory)
    if config.recovery.distil and config.recovery.teacher:
        check_teacher(config.recovery, task)
    task, loaded = _load_model(config, task)
    if task.kind.own_head and config.recovery.distil and config.recovery.teacher:
        load_token_teacher(config.recovery.teacher, loaded)
    if task.kind.encodes:
        task = with_original(task, loaded, config)
    _check_poolings(config, loaded)
    cut = describe_cut(loaded, task.train, config.model.max_length)
    if cut and not quiet:
        console.print(f"note: {cut}", soft_wrap=True)
    record = provenance(loaded, task, config.seed)
    task = task.with_validation(validation, config.seed) if validation else task
    return Workbench(config, task, loaded, _make_shrinker(loaded, task, config), record)


def prepare_again(bench: Workbench, rows: int | None, dev: int | None, tokens: int | None) -> Workbench:
    """The same bench with so many labelled rows, rows of dev and tokens per text; each None: as before.

    The sizes of a ladder stay those that were planned: with fewer rows, others might fit.
    """
    rungs = bench.rungs
    most = rows if rows is None or bench.task.tuning is None else count_with_tuning(rows)
    fewer = {name: value for name, value in (("max_train", most), ("max_dev", dev)) if value is not None}
    bench = bench.with_length(tokens) if tokens else bench
    if bench.config.selection.ladder == "auto":
        bench = bench.with_selection(ladder=tuple(rungs))
    task = bench.config.task.model_copy(update=fewer)
    again = prepare(bench.config.model_copy(update={"task": task}), quiet=True)
    return replace(again, costs=bench.costs)


def prepare_other(bench: Workbench, other: OtherModel) -> Workbench:
    """The same task for another model, to be trained with the recipe of the original on labels alone."""
    model = bench.config.model.model_copy(update={"source": other.model, "revision": other.revision})
    recovery = bench.config.recovery.model_copy(update={"distil": False})
    config = bench.config.model_copy(update={"model": model, "recovery": recovery, "compare": ()})
    task, loaded = _load_model(config, replace(bench.task, unlabelled=None), field="compare")
    if recovery.save_memory:
        check_computed_twice(type(loaded.model))
    longest = loaded.family.longest_input(loaded.model.config)
    check_length(model.max_length, longest, field="model.max_length")
    recipe = choose_for_others(bench, bench.chosen_recipe).model_copy(update={"augment": 0, "texts": None})
    if loaded.head_is_trained:
        recipe = recipe.model_copy(update={"original_epochs": 0})
    return replace(bench, config=config, task=task, loaded=loaded, recipe=recipe)


def _load_model(config: RunConfig, task: Task, field: str = "model.source") -> tuple[Task, LoadedModel]:
    """The model, with its own head where it was fine-tuned for these labels; and the task, in that order of labels."""
    model, kind = config.model, task.kind
    if kind.encodes:
        return task, load_encoder(model.source, model.revision, allow_pickle=model.allow_pickle, field=field)
    if kind.unit == "token":
        refuse_encoder(model.source, model.revision, field=field)
    names, called = () if kind.own_head else None, "the model" if field == "model.source" else model.source
    if not kind.own_head and not config.recovery.original.retrain:
        labels = read_trained_labels(model.source, model.revision, kind.head, kind.problem_type, field=field)
        names = labels and (match_labels(labels, task.train.names) if kind.named else ())
        if labels and names is None:
            console.print(
                f"note: {called} was fine-tuned for other labels ({', '.join(labels[:5])}); it gets a new head for "
                f"{', '.join(task.train.names[:5])}"
            )
    task = task.with_names(names) if names else task
    loaded = load_classifier(
        model.source,
        model.revision,
        task.train.names,
        config.seed,
        head=kind.head,
        problem_type=kind.problem_type,
        keep_head=names is not None,
        allow_pickle=model.allow_pickle,
        field=field,
    )
    if kind.standardised and not loaded.head_is_trained:
        refuse_far_numbers(task.train.row_labels, loaded.model)
    return task, loaded


def with_original(task: Task, loaded: LoadedModel, config: RunConfig) -> Task:
    """The same task with what the original, as it is, says of its texts."""
    if not config.recovery.distil or config.recovery.teacher:
        wrong = "teacher" if config.recovery.teacher else "distil"
        raise UserError(
            "embeddings are learned from the original alone", field=f"recovery.{wrong}", hint="leave it out"
        )
    return task.with_embeddings(Embedder(loaded, config.model.max_length))


def _check_poolings(config: RunConfig, loaded: LoadedModel) -> None:
    for number, probe in enumerate(config.task.probes):
        if probe.pooling == "cls" and loaded.tokenizer.cls_token_id is None:
            raise UserError(
                "this model's inputs do not begin with a token for the whole text",
                field=f"task.probes.{number}.pooling",
                hint="use mean, or auto",
            )


def _make_shrinker(loaded: LoadedModel, task: Task, config: RunConfig) -> Shrinker:
    """A Shrinker that counts the tokens of every text except those of dev and of what is held out."""
    texts = joined(task.train, task.unlabelled)
    if config.shrink.corpus is not None:
        unseen = joined(joined(task.dev, task.validation), task.tuning)
        corpus = load_unlabelled(config.shrink.corpus, texts, unseen, config.seed, field="shrink.corpus")
        texts = joined(texts, corpus)
    return Shrinker(loaded, texts, max_length=config.model.max_length)
