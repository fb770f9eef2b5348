"""dokl export"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dokl.base.progress import progress
from dokl.cli.options import examples, remark, share_of
from dokl.cli.results import loading

if TYPE_CHECKING:
    from dokl.tables.models.table import TableModel

PRECISIONS = ("double", "float")


@click.command(
    epilog=examples(
        "dokl export temp.dokl temp.onnx                  for ONNX runtimes",
        "dokl export temp.dokl temp.onnx --std            with standard deviations, and large",
        "dokl export temp.dokl temp.c --precision float   temp.c and temp.h, plain C99",
        "dokl export temp.dokl temp.c --precision float --centres 100   for a microcontroller",
        "dokl export temp.dokl temp.h                     all in one header",
        "dokl export temp.dokl small.dokl --predict-only  a small model file",
    )
)
@click.argument("path", metavar="MODEL", type=click.Path(path_type=Path))
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path))
@click.option("--predict-only", is_flag=True, help="OUT is a model file that only predicts.")
@click.option("--centres", type=click.IntRange(1), metavar="N",
              help="Solve again on at most N centres; prints the loss.")  # fmt: skip
@click.option("--std", is_flag=True,
              help="ONNX: include the standard deviation of each row.")  # fmt: skip
@click.option("--precision", type=click.Choice(PRECISIONS), default="double", show_default=True,
              help="Arithmetic of ONNX and C.")  # fmt: skip
@click.option("--interval", type=click.FloatRange(0, 100, min_open=True, max_open=True),
              default=90.0, show_default=True, metavar="PERCENT",
              help="Coverage of the intervals in ONNX and C.")  # fmt: skip
@click.option("--node", metavar="NAME",
              help="Network: the node that predicts. Default: an unknown node.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@click.option("--quiet", "-q", is_flag=True, help="No remarks, no progress.")
def export(
    path: Path, out: Path, predict_only: bool, centres: int | None, std: bool, precision: str,
    interval: float, node: str | None, overwrite: bool, quiet: bool,
) -> None:  # fmt: skip
    """Write a MODEL file as OUT: an ONNX graph, C99 source, or a small copy.

    The suffix of OUT selects the format: .onnx (extra dokl[onnx]), .c with a .h beside it, .h for a
    single header; any other suffix, or --predict-only, is a model file that only predicts. All read
    raw rows (times as seconds since 1970, UTC) and give the same predictions. C of a gradient
    method also learns.

    A bank keeps matrices for learning and for the uncertainty of each row. Exports leave them out:
    their intervals have one width, the average of the full model's. With --std, ONNX includes the
    matrices and is a hundred times larger. A node of a network (--node) has one width, the average
    over its newest rows.

    With --centres the model is solved again on N selected centres. The increase of the error is
    estimated and printed, and widens the intervals.
    """
    kind = out.suffix.lower()
    _check(kind, predict_only, centres, std)
    with loading(quiet):
        from dokl.base.files import check_new
        from dokl.tables.models import TableModel

    made = [out, out.with_suffix(".h")] if kind == ".c" else [out]
    for file in made:
        check_new(file, overwrite)
    how = {"precision": precision, "node": node, "level": share_of(interval)}
    model = TableModel.load(path)
    if centres is not None:
        model = _fewer(model, centres, quiet)
    if kind == ".onnx":
        from dokl.tables.export.onnx import write_onnx

        write_onnx(model, out, std=std, **how)  # type: ignore[arg-type]
    elif kind in (".c", ".h"):
        from dokl.tables.export.c_source import write_c

        write_c(model, out, **how)  # type: ignore[arg-type]
    else:
        model.predict_only().save(out)
    for line in _about(model, kind, node):
        remark(line, quiet)
    before = path.stat().st_size
    for file in made:
        remark(f"{file}: {file.stat().st_size:,} bytes, where {path} has {before:,}", quiet)


def _check(kind: str, predict_only: bool, centres: int | None, std: bool) -> None:
    """Refuse options that contradict each other."""
    if kind not in (".onnx", ".c", ".h") and not predict_only:
        raise click.UsageError(
            "OUT must end in .onnx, .c or .h; for a small model file add --predict-only"
        )
    if std and (kind != ".onnx" or predict_only or centres is not None):
        raise click.UsageError(
            "--std needs .onnx and the matrices of the full model, which --predict-only and "
            "--centres leave out"
        )


def _fewer(model: TableModel, centres: int, quiet: bool) -> Any:
    """The model on fewer centres, with its loss of accuracy reported."""
    from dokl.tables.export.fewer_centres import fewer_centres

    with progress(2 * centres, "fewer centres", False if quiet else None, unit=None) as bar:
        small, cost = fewer_centres(model, centres, bar)
    for line in cost.lines():
        remark(line, quiet)
    return small


def _about(model: TableModel, kind: str, node: str | None) -> Iterator[str]:
    """What is to be known of a graph or of a source."""
    if kind not in (".onnx", ".c", ".h"):
        return
    if model.preprocessor is not None and model.preprocessor.times:
        times = ", ".join(model.preprocessor.times)
        yield f"times go in as seconds since 1970, UTC: {times}"
    if not hasattr(model.estimator, "network_"):
        return
    if node is None:
        yield "it predicts for an unknown node: --node NAME exports one of the network's"
    if not model.classifying:
        has = "intervals have one width" if model.has_intervals else "there are no intervals"
        yield f"{has} in an export of a network"
