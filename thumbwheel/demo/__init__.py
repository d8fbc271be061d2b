"""`thumbwheel demo`: the whole loop once, through the real doors, with a truth to compare with."""

import asyncio
import shutil
import signal
import sys
import time
from importlib.resources import as_file, files
from pathlib import Path

from rich.progress import Progress

from ingest.importers import read_history
from thumbwheel.client import Api
from thumbwheel.datasets import fetch_dataset
from thumbwheel.demo.engine import scripted_engine, serving
from thumbwheel.demo.population import Population
from thumbwheel.demo.process import ServerProcess, free_port
from thumbwheel.demo.traffic import Ledger, Traffic
from thumbwheel.door import OUT
from thumbwheel.show import show_manifest, show_report

FOLDER = Path(".thumbwheel-demo")
EXPERIMENT = "demo"
_AUDIT_AT_ONCE = 5_000


def run(developers: int, *, seed: int, keep: bool) -> int:
    """0 when nothing was lost or doubled; the result stays in `.thumbwheel-demo`."""
    # Asked to stop, the demo must not leave its server behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    shutil.rmtree(FOLDER, ignore_errors=True)
    population = Population(seed, developers)
    server = ServerProcess(FOLDER, free_port())
    chances = dict(population.behaviour.right)
    with serving(scripted_engine(chances)) as engine:
        OUT.print(f"Starting the server on the scratch folder {FOLDER} …")
        server.start()
        api = Api.connect(server.url, server.key)
        try:
            imported = _import_sample(api)
            set_up(api, population, engine)
            ledger = _simulate(population, server)
            wait_until_stored(api)
            exact = _tell_facts(api, ledger, imported)
            _tell_effect(api, population)
            _export(api)
            _tell_next(server, keep=keep)
        finally:
            api.close()
            server.stop()
    return 0 if exact else 1


def _import_sample(api: Api) -> list[tuple[str, str]]:
    """(source, id) of the facts of the real history that comes with the product."""
    sample = files("ingest.importers") / "sample" / "aider-history.md"
    with as_file(sample) as path:
        history = read_history("aider", path)
    events = list(history.events(consent="training", user="sample"))
    taken = sum(receipt["accepted"] for receipt in api.send_events(iter(events)))
    counts = history.summary.counts
    OUT.print(
        f"Imported a real developer's history with aider: {counts['sessions']} sessions, "
        f"{counts['applied_edits']} applied edits, {counts['undo']} undos, {taken} facts."
    )
    return [(event["source"], event["id"]) for event in events]


def set_up(api: Api, population: Population, engine: str) -> None:
    """Both scripted checkpoints are registered and an experiment between them runs."""
    control, treatment = population.behaviour.checkpoints
    for checkpoint in (control, treatment):
        api.post("/v1/checkpoints", {"id": checkpoint, "engine": {"kind": "openai", "url": engine}})
    api.post(f"/v1/checkpoints/{control}/alias", {"alias": "champion"})
    api.post(
        "/v1/experiments",
        {
            "key": EXPERIMENT,
            "variants": [{"key": each, "checkpoint": each} for each in (control, treatment)],
            "metrics": {
                "goals": ["thumbs_net"],
                "guardrails": [{"metric": "undo_rate", "margin": 0.02}],
            },
            "planned_units": population.size,
            "min_days": 0,
        },
    )
    api.post(f"/v1/experiments/{EXPERIMENT}/start")


def _simulate(population: Population, server: ServerProcess) -> Ledger:
    turns = sum(developer.turns for developer in population.developers())
    OUT.print(
        f"{population.size} SIMULATED developers now take {turns:,} turns with two scripted "
        "checkpoints, over the real endpoints."
    )
    with Progress(console=OUT, transient=True) as progress:
        task = progress.add_task("turns", total=turns)
        traffic = Traffic(
            population, server.url, server.key, on_turn=lambda: progress.advance(task)
        )
        asyncio.run(traffic.run())
    return traffic.ledger


def wait_until_stored(api: Api, *, patience_s: float = 60) -> None:
    """Everything acknowledged is queryable. Raises: TimeoutError."""
    deadline = time.monotonic() + patience_s
    while _lag(api):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the log still holds {_lag(api)} records")
        time.sleep(0.2)


def audit(api: Api, facts: list[tuple[str, str]]) -> dict[str, int]:
    """Of these facts: how many are stored, lost, doubled."""
    found = {"stored": 0, "missing": 0, "repeated": 0}
    for start in range(0, len(facts), _AUDIT_AT_ONCE):
        part = [{"source": s, "id": i} for s, i in facts[start : start + _AUDIT_AT_ONCE]]
        answer = api.post("/v1/events/audit", {"facts": part})
        found["stored"] += answer["stored"]
        found["missing"] += len(answer["missing"])
        found["repeated"] += len(answer["repeated"])
    return found


def _lag(api: Api) -> int:
    text = api.http.get("/metrics").text
    line = next(line for line in text.splitlines() if line.startswith("thumbwheel_log_lag "))
    return int(float(line.split()[1]))


def _tell_facts(api: Api, ledger: Ledger, imported: list[tuple[str, str]]) -> bool:
    found = audit(api, [*imported, *ledger.acknowledged])
    OUT.print(
        f"\nFacts acknowledged: {found['stored'] + found['missing']:,}   "
        f"lost: {found['missing']}   duplicated: {found['repeated']}   "
        f"(completions served: {ledger.completions:,})"
    )
    return not found["missing"] and not found["repeated"]


def _tell_effect(api: Api, population: Population) -> None:
    report = api.get(f"/v1/experiments/{EXPERIMENT}/report")
    OUT.print()
    show_report(OUT, report)
    OUT.print(
        "  (this demo may ship at once; a real experiment runs whole weeks, `min_days`, first)"
    )
    OUT.print("\nThe simulation knows the truth:")
    for each in report["metrics"]:
        key = each["metric"]["key"]
        truth, (comparison,) = population.behaviour.true_effects()[key], each["comparisons"]
        low, high = comparison["interval"] or (float("-inf"), float("inf"))
        inside = "inside" if low <= truth <= high else "OUTSIDE"
        OUT.print(
            f"  {key}: estimated {comparison['effect']:+.4f}, true {truth:+.4f}, "
            f"{inside} the interval {low:+.4f} … {high:+.4f}"
        )


def _export(api: Api) -> None:
    OUT.print("\nTraining sets from the same facts:")
    for kind in ("sft", "kto"):
        folder = FOLDER / "export" / kind
        manifest = fetch_dataset(api, kind, {}, folder)
        show_manifest(OUT, manifest, folder)


def _tell_next(server: ServerProcess, *, keep: bool) -> None:
    OUT.print("\nWhere to look next:")
    if keep:
        OUT.print(f"  console       {server.url}/#key={server.key}   (until ^C)")
        OUT.print("  report        .venv/bin/thumbwheel report demo "
                   f"--server {server.url} --data {FOLDER}")  # fmt: skip
        try:
            while True:
                time.sleep(1)
        except KeyboardInterrupt:
            return
    OUT.print(f"  serve it      .venv/bin/thumbwheel up --data {FOLDER}")
    OUT.print(f"  console       http://127.0.0.1:8420/#key={server.key}   (while it serves)")
    OUT.print(f"  report        .venv/bin/thumbwheel report demo --data {FOLDER}")
    OUT.print(f"  training set  head -c 600 {FOLDER}/export/kto/data.jsonl")
    OUT.print("  your own work .venv/bin/thumbwheel import aider .aider.chat.history.md "
               f"--data {FOLDER} --consent training")  # fmt: skip
