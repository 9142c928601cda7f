"""`ccal demo`: train and search on data that come with the package."""

from pathlib import Path
from typing import Annotated

import typer


def command(
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FOLDER", help="For rendered tunes and report.html."),
    ] = Path("runs/demo"),
    digits: Annotated[
        bool, typer.Option("--digits", help="Half a minute without music: halves of digits.")
    ] = False,
) -> None:
    """Watch it work in some minutes: sheet music and sound of folk tunes find each other.

    Renders tunes that come with the extra `music`, trains small networks on them, evaluates these
    beside the model that comes with ccal, and lets that model find recordings in their scores. The
    rendered tunes stay in the folder, so a second time is quicker.

    Examples:

    `ccal demo`

    `ccal demo --digits`
    """
    from ccal.optional import require

    if digits:
        require("sklearn", package="scikit-learn", purpose="The demo with digits")
        from ccal.experiments.digits import compare

        print("Each test half looks for its other half among 500.\n")
        print(compare())
        print("\nYour own pairs: ccal train --help")
        return
    from ccal.experiments.folk_tunes_demo import main
    from ccal.progress import counting

    require("verovio", extra="music", purpose="The demo with music")
    require("matplotlib", extra="plots", purpose="The demo's report")
    main(out, progress=counting)
    print("Next: ccal identify RECORDING, ccal serve, or your own pairs with ccal train --help")
