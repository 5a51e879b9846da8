"""How a saved model is used: for report.md and the model card."""

from __future__ import annotations

from probescale.models.family import Family
from probescale.tasks.kinds import Kind
from probescale.tasks.task import Task


def usage(task: Task, family: Family, folder: str = "model") -> str:
    """Markdown with Python that loads the folder of a model with transformers alone."""
    return _usage(task, family).replace('"model"', f'"{folder}"')


def _usage(task: Task, family: Family) -> str:
    kind = task.kind
    if not kind.encodes and kind.unit == "text" and family.mean_of_token_logits:
        return _mean_of_tokens(kind, family)
    code = _python(kind.pipeline_import, "", kind.pipeline_call(task.train.names))
    return f"{kind.usage_note}\n\n{code}" if kind.usage_note else code


def _mean_of_tokens(kind: Kind, family: Family) -> str:
    what, answer = kind.outputs
    stock = family.classifier_class
    code = _python(
        f"from transformers import {stock}, AutoTokenizer",
        "",
        f'model, tokenizer = {stock}.from_pretrained("model"), AutoTokenizer.from_pretrained("model")',
        'batch = tokenizer(["some text"], padding=True, return_tensors="pt")',
        'mask = batch["attention_mask"].unsqueeze(-1)',
        f"{answer} = (model(**batch).logits * mask).sum(1) / mask.sum(1)",
    )
    return f"""transformers has no sentence classifier for this encoder. The folder holds a token classifier;
a text's {what} the mean of its tokens' logits under the attention mask:

{code}"""


def _python(*lines: str) -> str:
    return "\n".join(["```python", *lines, "```"])
