"""dokl export"""

from __future__ import annotations

from pathlib import Path

import click

from dokl.cli.common import examples, remark


@click.command(
    epilog=examples(
        "dokl export temp.dokl small.dokl --predict-only",
        "dokl export temp.dokl small.dokl --predict-only --overwrite -q",
    )
)
@click.argument("path", metavar="MODEL", type=click.Path(path_type=Path))
@click.argument("out", metavar="SMALL", type=click.Path(path_type=Path))
@click.option("--predict-only", is_flag=True, help="Leave out what only learning needs.")
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
@click.option("--quiet", "-q", is_flag=True, help="No remarks.")
def export(path: Path, out: Path, predict_only: bool, overwrite: bool, quiet: bool) -> None:
    """Write a small copy of a MODEL file that only predicts.

    The copy predicts the same and does not learn. It is for models without settings, whose experts
    keep matrices to learn with. Its intervals have one width, the average of the full model's;
    standard deviations it has none.
    """
    if not predict_only:
        raise click.UsageError("say what to leave out: --predict-only")
    from dokl.files import check_new
    from dokl.models import TableModel

    check_new(out, overwrite)
    TableModel.load(path).predict_only().save(out)
    before, after = path.stat().st_size, out.stat().st_size
    remark(f"{out}: {after:,} bytes, where {path} has {before:,}", quiet)
