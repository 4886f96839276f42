import re
from typing import Any

import pytest

from gateway.adapters.admin import OPERATIONS
from gateway.adapters.admin.openapi import document

DOCUMENT: dict[str, Any] = document(OPERATIONS, version="1.2.3")


def references(part: object) -> set[str]:
    if isinstance(part, dict):
        return {each for value in part.values() for each in references(value)} | (
            {part["$ref"]} if "$ref" in part else set()
        )
    if isinstance(part, list):
        return {each for value in part for each in references(value)}
    return set()


def test_the_document_is_valid() -> None:
    # It takes seconds to import, as it prepares grammars: not in every process that collects tests.
    from openapi_spec_validator import OpenAPIV31SpecValidator  # noqa: PLC0415

    OpenAPIV31SpecValidator(DOCUMENT).validate()


def test_bounds_of_parameters_are_told() -> None:
    (limit,) = [
        each["schema"] for each in DOCUMENT["paths"]["/v1/sessions"]["get"]["parameters"] if each["name"] == "limit"
    ]

    assert limit == {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}


def test_every_schema_is_there_and_used() -> None:
    used = {each.rsplit("/", 1)[1] for each in references(DOCUMENT)}

    assert used == set(DOCUMENT["components"]["schemas"])


def test_every_operation_is_in_it_once_with_its_permission() -> None:
    told = {each["operationId"]: each["description"] for path in DOCUMENT["paths"].values() for each in path.values()}

    assert set(told) == {each.name for each in OPERATIONS}
    assert len(told) == len(OPERATIONS)
    for operation in OPERATIONS:
        wanted = "Any token will do." if operation.action is None else f"Permission: `{operation.action.value}`."
        assert wanted in told[operation.name]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_the_parameters_of_a_path_are_declared(operation: Any) -> None:
    names = set(re.findall(r"{(\w+)}", operation.path))
    declared = DOCUMENT["paths"][operation.path][operation.method.lower()]["parameters"]

    assert {each["name"] for each in declared if each["in"] == "path"} == names
    assert all(each["required"] for each in declared if each["in"] == "path")


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_problems_are_told_as_such(operation: Any) -> None:
    responses = DOCUMENT["paths"][operation.path][operation.method.lower()]["responses"]

    assert {"400", "401", "403", "404", "421", "429", "503"} <= set(responses)
    for status, response in responses.items():
        if int(status) >= 400:
            assert list(response["content"]) == ["application/problem+json"]


def test_names_begin_with_small_letters_and_statuses_are_right() -> None:
    for operation in OPERATIONS:
        assert re.fullmatch(r"[a-z]+[A-Za-z]*", operation.name)
        assert (operation.result is None) == (operation.status == 204)
        assert operation.method in {"GET", "PUT", "POST", "DELETE"}


def test_what_may_be_begun_and_not_confirmed_is_told() -> None:
    responses = DOCUMENT["paths"]["/v1/sessions/{session}"]["delete"]["responses"]

    assert "content" not in responses["204"]
    assert references(responses["202"]) == {"#/components/schemas/PendingClose"}
    for operation in OPERATIONS:
        assert operation.pending is None or operation.status != 202, "nobody could tell which of the two it is"
