"""Another model as teacher: whether its labels or its tokens are those of the task."""

from __future__ import annotations

from probescale.config import RecoveryConfig
from probescale.errors import UserError
from probescale.models.loading import LoadedModel, load_classifier, read_trained_labels
from probescale.tasks.label_matching import match_labels
from probescale.tasks.task import Task


def match_teacher(source: str, task: Task) -> tuple[str, ...]:
    """The task's labels in the order of another fine-tuned model, from which subnetworks learn."""
    kind, own, field = task.kind, task.train.names, "recovery.teacher"
    labels = read_trained_labels(source, None, kind.head, kind.problem_type, field=field)
    if labels is None:
        raise UserError(
            f"{source} was not fine-tuned for such a task", field=field, hint=f"give a model with a {kind.head} head"
        )
    names = match_labels(labels, own) if kind.named else ()
    if names is None:
        raise UserError(
            f"its labels are {', '.join(labels[:10])}; those of the task are {', '.join(own[:10])}",
            field=field,
            hint="name the task's labels with task.labels, or give another teacher",
        )
    return names


def load_token_teacher(source: str, student: LoadedModel) -> LoadedModel:
    """Another generative model, from whose likeliest tokens subnetworks learn."""
    field = "recovery.teacher"
    teacher = load_classifier(source, None, (), 0, head="lm", keep_head=True, field=field)
    if teacher.tokenizer.get_vocab() != student.tokenizer.get_vocab():
        raise UserError(
            f"{source} has another tokenizer than {student.source}: its tokens mean something else",
            field=field,
            hint="give a model of the same family, or leave it out",
        )
    return teacher


def check_teacher(settings: RecoveryConfig, task: Task) -> None:
    """Refuse a teacher that does not fit, before anything is trained."""
    assert settings.teacher
    if task.kind.own_head:
        return  # its tokenizer is compared once the model is loaded
    match_teacher(settings.teacher, task)
    if settings.states or settings.healing:
        raise UserError(
            "the states of another model are no targets for those of the cut model",
            field="recovery.states" if settings.states else "recovery.healing",
            hint="leave it out, or leave recovery.teacher out",
        )
