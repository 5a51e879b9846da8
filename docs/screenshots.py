"""Photograph the page of a run and that of a study for the documentation: wide and on a phone, light and dark.

    python docs/screenshots.py RUN STUDY

RUN and STUDY are folders with a report.html. Needs playwright and a chromium; writes docs/start/figures/run-*.png and
docs/guides/figures/study-*.png, each with few colours so that it stays small.
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

DOCS = Path(__file__).parent
SIZES = {"wide": (1280, 1500), "phone": (390, 1700)}  # pixels; what is below is cut off
COLOURS = 256
LARGEST = 150_000  # bytes


def main(run: str, study: str) -> None:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        photograph(browser, Path(run) / "report.html", DOCS / "start" / "figures" / "run")
        photograph(browser, Path(study) / "report.html", DOCS / "guides" / "figures" / "study")
        browser.close()


def photograph(browser: Browser, page: Path, stem: Path) -> None:
    """Write stem-wide-light.png, stem-wide-dark.png, stem-phone-light.png and stem-phone-dark.png."""
    for size, (width, height) in SIZES.items():
        for scheme in ("light", "dark"):
            opened = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            opened.goto(page.resolve().as_uri())
            taken = Image.open(io.BytesIO(opened.screenshot()))
            opened.close()
            path = stem.with_name(f"{stem.name}-{size}-{scheme}.png")
            taken.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
                path, optimize=True
            )
            if path.stat().st_size > LARGEST:
                sys.exit(f"{path} is larger than {LARGEST:,} bytes: use fewer colours")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
