"""What was made from facts, across the rooms: datasets, and checkpoints trained on them."""

from collections.abc import Callable, Collection, Mapping

from datagen.api import Exports
from ingest.intake import FactId
from serving.checkpoints import Checkpoints


def derived(
    exports: Exports, checkpoints: Checkpoints
) -> Callable[[str, Collection[FactId]], Mapping[str, list[str]]]:
    """What an erasure asks: datasets are marked and emptied, checkpoints are only named."""

    def mark(erasure: str, facts: Collection[FactId]) -> dict[str, list[str]]:
        datasets = exports.erase(erasure, {fact.id for fact in facts})
        trained = [each.id for each in checkpoints.all() if each.dataset in datasets]
        return {"datasets": datasets, "checkpoints": trained}

    return mark
