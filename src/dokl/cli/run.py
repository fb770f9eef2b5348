"""dokl run"""

from __future__ import annotations

from pathlib import Path

import click

from dokl.cli.common import echo_json, examples, output_switches


@click.command(
    epilog=examples(
        "dokl run --example > my.toml        a commented configuration to start from",
        "dokl run my.toml                    files are read and written beside my.toml",
        "dokl run my.toml --out results --engine reference --json",
    )
)
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option("--example", is_flag=True, help="Print a commented configuration and stop.")
@click.option("--engine", help="Instead of the configuration's engine.")
@click.option("--runs", type=int, help="Instead of the configuration's number of runs.")
@click.option("--seed", type=int, help="Instead of the configuration's seed.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder for plot and JSON; made if absent."
)
@output_switches
def run(
    config: Path | None, example: bool, engine: str | None, runs: int | None, seed: int | None,
    out: Path | None, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Simulate a network described by one CONFIG file (TOML)."""
    from dokl.jobs import simulate as job

    if example:
        click.echo(job.EXAMPLE, nl=False)
        return
    if config is None:
        raise click.UsageError("name a CONFIG file; 'dokl run --example > my.toml' prints one")
    sim = job.overridden(job.load(config), engine, runs, seed)
    traces = job.simulate(sim, config.parent, False if quiet else None)
    folder = config.parent if out is None else out
    folder.mkdir(parents=True, exist_ok=True)
    written = job.write_outputs(sim, traces, folder)
    if as_json:
        echo_json(job.results(sim, traces))
        return
    from dokl.report import table

    rows = [
        [row["who"], row["what"], job.shown(row["mean"], row["what"]), str(row["runs"])]
        for row in job.summary(traces)
    ]
    table("mean over the last tenth of the steps", ["", "what", "value", "runs"], rows)
    if not quiet:
        engine_used = next(iter(traces.values())).engine
        seconds = sum(trace.seconds for trace in traces.values())
        click.echo(f"engine {engine_used}, {seconds:.1f} s", err=True)
        for path in written:
            click.echo(f"wrote {path}", err=True)
