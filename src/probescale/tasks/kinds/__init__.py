"""Kinds of task, one file each. A file that is added here is registered by being here."""

from __future__ import annotations

from probescale.tasks.kinds.kind import Kind as Kind
from probescale.tasks.kinds.kind import Rendered as Rendered
from probescale.tasks.kinds.registry import KINDS as KINDS
from probescale.tasks.kinds.registry import find_kind as find_kind
from probescale.tasks.kinds.registry import kind_for_head as kind_for_head
from probescale.tasks.kinds.registry import task_kind as task_kind
from probescale.utils.registry import import_files

import_files(__name__, __path__)
