"""dokl export"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from dokl.cli.common import examples, remark, share_of
from dokl.cli.meter import loading

PRECISIONS = ("double", "float")


@click.command(
    epilog=examples(
        "dokl export temp.dokl temp.onnx                  for ONNX runtimes",
        "dokl export temp.dokl temp.onnx --predict-only   the same without matrices",
        "dokl export temp.dokl temp.c --precision float   temp.c and temp.h, plain C99",
        "dokl export temp.dokl temp.h                     all in one header",
        "dokl export temp.dokl small.dokl --predict-only  a small model file",
    )
)
@click.argument("path", metavar="MODEL", type=click.Path(path_type=Path))
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path))
@click.option("--predict-only", is_flag=True, help="Leave out what only learning needs.")
@click.option("--precision", type=click.Choice(PRECISIONS), default="double", show_default=True,
              help="Of what ONNX and C compute with.")  # fmt: skip
@click.option("--interval", type=click.FloatRange(0, 100, min_open=True, max_open=True),
              default=90.0, show_default=True, metavar="PERCENT",
              help="What the intervals in ONNX and C are to hold.")  # fmt: skip
@click.option("--node", metavar="NAME",
              help="Of a network, who predicts; else as for a node never seen.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
@click.option("--quiet", "-q", is_flag=True, help="No remarks.")
def export(
    path: Path, out: Path, predict_only: bool, precision: str, interval: float, node: str | None,
    overwrite: bool, quiet: bool,
) -> None:  # fmt: skip
    """Write a MODEL file as OUT: an ONNX graph, C99 source, or a small copy.

    The end of OUT says which: .onnx (extra dokl[onnx]), .c with a .h beside it, .h for a single
    header; anything else is a model file that only predicts, which --predict-only confirms. All
    take raw rows in (of times their seconds since 1970, UTC) and predict the same; C of a gradient
    method learns as well.

    Models of experts keep matrices to learn with, and to know how sure they are of a row. ONNX has
    them unless --predict-only leaves them out, C and the small copy never: their intervals have one
    width, the average of the full model's, and no standard deviations. So it is with networks
    everywhere: a node (--node) has one width, the average of its intervals for its newest rows.
    """
    kind = out.suffix.lower()
    if kind not in (".onnx", ".c", ".h") and not predict_only:
        raise click.UsageError(
            "end OUT in .onnx, .c or .h, or say that a model file is to be small: --predict-only"
        )
    with loading(quiet):
        from dokl.base.files import check_new
        from dokl.tables.models import TableModel

    made = [out, out.with_suffix(".h")] if kind == ".c" else [out]
    for file in made:
        check_new(file, overwrite)
    how = {"precision": precision, "node": node, "level": share_of(interval)}
    model = TableModel.load(path)
    if kind == ".onnx":
        from dokl.tables.export.onnx import write_onnx

        write_onnx(model, out, sure=not predict_only, **how)  # type: ignore[arg-type]
    elif kind in (".c", ".h"):
        from dokl.tables.export.c_source import write_c

        write_c(model, out, **how)  # type: ignore[arg-type]
    else:
        model.predict_only().save(out)
    for line in _told(model, kind, node):
        remark(line, quiet)
    before = path.stat().st_size
    for file in made:
        remark(f"{file}: {file.stat().st_size:,} bytes, where {path} has {before:,}", quiet)


def _told(model: Any, kind: str, node: str | None) -> Iterator[str]:
    """What is to be known of a graph or of a source."""
    if kind not in (".onnx", ".c", ".h"):
        return
    if model.preprocessor is not None and model.preprocessor.times:
        times = ", ".join(model.preprocessor.times)
        yield f"times go in as seconds since 1970, UTC: {times}"
    if not hasattr(model.estimator, "network_"):
        return
    if node is None:
        yield "it predicts as for a node never seen: --node NAME exports one of the network's"
    if not model.classifying:
        has = "intervals have one width" if model.has_intervals else "there are no intervals"
        yield f"{has} in an export of a network"
