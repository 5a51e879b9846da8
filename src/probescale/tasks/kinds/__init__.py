"""Kinds of task, one file each. A file that is added here is registered by being here."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from probescale.tasks.kinds.kind import Kind as Kind
from probescale.tasks.kinds.kind import Rendered as Rendered
from probescale.tasks.kinds.registry import KINDS as KINDS
from probescale.tasks.kinds.registry import find_kind as find_kind
from probescale.tasks.kinds.registry import kind_for_head as kind_for_head
from probescale.tasks.kinds.registry import task_kind as task_kind

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
