"""What all facts share: field types, the content marker, the base of every `data` object."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

Consent = Literal["metrics", "code", "training"]
CONSENT_LEVELS: tuple[Consent, ...] = ("metrics", "code", "training")

Ratio = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]


_CONTENT_KEY = "x-thumbwheel-content"


class _Content:
    """Marks a field that holds what a person or a model wrote; taken only at consent ≥ code."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(schema) | {_CONTENT_KEY: True}


CONTENT = _Content()
ContentText = Annotated[str, CONTENT]
ContentJson = Annotated[Any, CONTENT]


class Data(BaseModel):
    """The `data` of a fact. Unknown fields are kept: a newer client may say more than we know."""

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True)


def content_names(kind: object) -> Iterator[str]:
    """Wire names of the content fields of the models in a type, at any depth."""
    if not (isinstance(kind, type) and get_origin(kind) is None and issubclass(kind, BaseModel)):
        for part in get_args(kind):
            yield from content_names(part)
        return
    for name, field in kind.model_fields.items():
        marks = (field.metadata, *map(get_args, get_args(field.annotation)))
        if any(CONTENT in each for each in marks):
            yield field.alias or name
        yield from content_names(field.annotation)
