"""Registries find the files of their folder, and show help where there is some."""

from __future__ import annotations

from probescale.deploy.formats import EXPORTERS
from probescale.probing.probes import PROBES
from probescale.tasks.kinds import KINDS
from probescale.utils.registry import first_doc_line, import_files


def test_every_file_of_a_folder_is_registered():
    assert set(PROBES) >= {"linear", "mlp"}
    assert set(KINDS) >= {"class", "number", "tags"}
    assert set(EXPORTERS) >= {"onnx"}


def test_a_file_that_is_added_is_imported(tmp_path, monkeypatch):
    package = tmp_path / "added_probes"
    package.mkdir()
    (package / "__init__.py").write_text("FOUND = []\n")
    (package / "mine.py").write_text("from added_probes import FOUND\nFOUND.append('mine')\n")
    monkeypatch.syspath_prepend(tmp_path)
    import added_probes  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]

    import_files("added_probes", added_probes.__path__)
    assert added_probes.FOUND == ["mine"]


def test_the_first_line_of_a_docstring():
    def documented():
        """What you get.

        More.
        """

    assert first_doc_line(documented) == "What you get."
    assert first_doc_line(lambda: None) == ""
