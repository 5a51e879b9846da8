"""validate: every problem of a configuration, at once."""

from __future__ import annotations

from probescale.cli.app import app
from probescale.cli.options import Config, Set, show


@app.command()
def validate(config: Config, set_: Set = []) -> None:  # noqa: B006
    """Check the configuration of a run or a study and list every problem at once; computes and downloads nothing."""
    from probescale.pipeline.validate import load_config
    from probescale.study.cells import load_study
    from probescale.utils.yaml_files import read_yaml

    if "study" in read_yaml(config):
        show(f"{config}: no problems found in {len(load_study(config, set_).cells)} cells")
        return
    load_config(config, set_)
    show(f"{config}: no problems found")
