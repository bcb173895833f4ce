"""Dictionaries, definitions, their versions, and the files they come from."""

import json
import os

import pytest

from gateway.protocols.pomelo.routes import Unusable, Watched, js_json, load


def test_versions(vectors):
    """Versions are Pomelo's, so that caches of its clients stay good."""
    first = vectors("protobuf")[0]
    found = load(first["dictionary"], first["source"])
    assert found.dictionary is not None
    assert found.dictionary.version == first["dictVersion"]
    assert found.protos is not None
    assert found.protos.version == first["version"]


def test_keys_in_the_order_of_javascript():
    """Numbers first and sorted, then the others as they came."""
    value = {"b": 1, "10": 2, "9": [{"1": "x", "a": None, "0": 1}], "a": 3, "01": 4}
    assert js_json(value) == (
        '{"9":[{"0":1,"1":"x","a":null}],"10":2,"b":1,"a":3,"01":4}'
    )


def test_codes():
    """A list counts from 1; an object gives its own codes."""
    listed = load(["x", "y"]).dictionary
    given = load({"x": 7, "y": 65535}).dictionary
    assert listed is not None
    assert given is not None
    assert listed.codes == {"x": 1, "y": 2}
    assert given.codes == {"x": 7, "y": 65535}


def test_nothing():
    """Without options nobody is told anything."""
    found = load(None, None, None)
    assert (found.dictionary, found.protos) == (None, None)
    assert load([]).dictionary is None


def test_one_side_of_protos():
    """Definitions of one side are told with an empty other side."""
    found = load(server_protos={"onX": {"optional uInt32 x": 1}}).protos
    assert found is not None
    assert found.client == {}
    assert "onX" in found.answers


@pytest.mark.parametrize(
    ("routes", "why"),
    [
        (7, "must be a list"),
        ([""], "is not a route"),
        ([1], "is not a route"),
        (["x" * 256], "more than 255 bytes"),
        (["a😀"], "every client"),
        (["a", "a"], "twice"),
        ({"a": 1, "b": 1}, "twice"),
        ({"a": 0}, "is not 1 to 65535"),
        ({"a": 65536}, "is not 1 to 65535"),
        ({"a": "1"}, "is not 1 to 65535"),
    ],
)
def test_unusable_dictionaries(routes, why):
    """A dictionary that some client could not use is refused with its reason."""
    with pytest.raises(Unusable, match=why) as caught:
        load(routes)
    assert str(caught.value).startswith("options.routes: ")


def test_files(tmp_path):
    """Each option may be the path of a JSON file; a change of it is noticed, and while an
    editor replaces it, what was read stays good.
    """
    routes, protos = tmp_path / "dictionary.json", tmp_path / "serverProtos.json"
    routes.write_text('["a"]')
    protos.write_text(json.dumps({"onX": {"optional uInt32 x": 1}}))
    files = Watched(routes, None, str(protos))
    found = load(routes, None, str(protos))
    assert found.dictionary is not None
    assert found.dictionary.codes == {"a": 1}
    assert found.protos is not None
    assert not files.changed
    os.utime(protos, ns=(1, 1))
    assert files.changed
    protos.unlink()
    assert not files.changed


def test_a_file_with_a_byte_order_mark(tmp_path):
    """Editors on Windows write one, and Pomelo's `require` takes it."""
    routes = tmp_path / "dictionary.json"
    routes.write_text('["游戏.房间.进入"]', encoding="utf-8-sig")
    loaded = load(routes=routes)
    assert loaded.dictionary is not None
    assert loaded.dictionary.codes == {"游戏.房间.进入": 1}


@pytest.mark.parametrize("text", [None, "{", '{"a": "x"}', '["\\ud83d"]', "[" * 9999])
def test_unusable_files(tmp_path, text):
    """Missing, no JSON, no dictionary, half a character: the error names the option."""
    routes = tmp_path / "dictionary.json"
    if text is not None:
        routes.write_text(text)
    with pytest.raises(Unusable, match=r"options\.routes: "):
        load(routes)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"optional uInt32 id": 1},
        {"optional string msg": 1},
        {"required uInt32 code": 1, "required string name": 2},
        {"optional string code": 1},
        {"optional bool code": 1},
        {"repeated uInt32 code": 1},
    ],
)
def test_responses_that_can_not_say_whether_it_is_stored(answer):
    """Their routes are mute, and those of them with requests are told apart."""
    requests = {"a.b.c": {"optional uInt32 n": 1}, "other": {"optional uInt32 n": 1}}
    found = load(None, requests, {"a.b.c": answer, "onPush": {"optional uInt32 id": 1}})
    assert found.protos is not None
    assert found.protos.mute == {"a.b.c", "onPush"}
    assert found.protos.mute_requests == ["a.b.c"]


@pytest.mark.parametrize(
    "answer",
    [
        {"required uInt32 code": 1},
        {"optional int32 code": 1},
        {"optional double code": 1},
        {"optional uInt32 code": 1, "optional string name": 2},
    ],
)
def test_responses_that_can(answer):
    """A number `code` is enough, if it is the only field that is required."""
    found = load(None, {"a.b.c": {"optional uInt32 n": 1}}, {"a.b.c": answer})
    assert found.protos is not None
    assert not found.protos.mute


def test_errors_name_the_file(tmp_path):
    """Option, file, route, what it says, and what would be right."""
    path = tmp_path / "definitions.json"
    for option, text, why in (
        ("routes", '{"a.b.c": 0}', "'a.b.c': code 0 is not 1 to 65535"),
        (
            "client_protos",
            '{"a.b.c": {"requird uInt32 x": 1}}',
            (
                "a.b.c: 'requird uInt32 x' must be 'required|optional|repeated TYPE NAME' "
                "or 'message NAME'"
            ),
        ),
        (
            "server_protos",
            '{"a.b.c": {"message M": {}, "required uInt8 x": 1}}',
            (
                "a.b.c: required uInt8 x: the type must be one of bool, double, float, "
                "int32, M, sInt32, sInt64, string, uInt32, uInt64, not 'uInt8'"
            ),
        ),
    ):
        path.write_text(text)
        with pytest.raises(Unusable) as caught:
            load(**{option: path})
        assert str(caught.value) == f"options.{option}: {path}: {why}"
