"""A training set, fetched from the server that builds it."""

import time
from pathlib import Path
from typing import Any

from rich.progress import Progress

from thumbwheel.client import Api, ServerSays


def fetch_dataset(api: Api, format: str, chosen: dict[str, str], out: Path) -> dict[str, Any]:
    """The manifest, once the set and its files are in `out`. Raises: ServerSays."""
    dataset = api.post("/v1/datasets", {"format": format, "filter": chosen})["id"]
    with Progress(transient=True) as progress:
        task = progress.add_task("reading answers", total=None)
        while (state := api.get(f"/v1/datasets/{dataset}"))["status"] == "building":
            progress.update(task, completed=state["answers_read"])
            time.sleep(0.2)
    if state["status"] == "failed":
        raise ServerSays(f"the dataset was not built: {state['detail']}")
    out.mkdir(parents=True, exist_ok=True)
    for name in (*(file["name"] for file in state["files"]), "manifest.json"):
        api.download(f"/v1/datasets/{dataset}/files/{name}", out / name)
    return dict(state)
