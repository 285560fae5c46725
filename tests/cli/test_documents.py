"""Text becomes objects, or one line that says why not."""

from pathlib import Path

import pytest

from gputask.cli.documents import parse, read
from gputask.cli.errors import BadInputError


def problems(text: str, file: str = "f.yaml") -> tuple[str, ...]:
    with pytest.raises(BadInputError) as caught:
        parse(text, file)
    return caught.value.lines


def test_each_document_and_each_item_of_a_list_knows_its_line():
    text = "kind: Node\n---\n---\nkind: List\nitems:\n- kind: Pod\n- kind: NodeList\n  items:\n  - kind: Node\n"
    assert [(d.place, d.value) for d in parse(text, "f.yaml")] == [
        ("f.yaml:1", {"kind": "Node"}),
        ("f.yaml:6", {"kind": "Pod"}),
        ("f.yaml:9", {"kind": "Node"}),
    ]


def test_json_as_kubectl_prints_it():
    assert [d.value for d in parse('{"kind": "List", "items": [{"kind": "Node"}]}', "f.json")] == [{"kind": "Node"}]


def test_several_json_objects_in_a_row_are_several_documents():
    assert [d.value for d in parse('{"kind": "Node"}\n---\n{"kind": "Pod"}\n', "f.json")] == [
        {"kind": "Node"},
        {"kind": "Pod"},
    ]


def test_json_objects_in_a_row_need_no_line_between_them_and_know_their_lines():
    assert [(d.place, d.value) for d in parse('{"kind": "Node"}\n{"kind": "Pod"} {"kind": "Node"}\n', "stdin")] == [
        ("stdin", {"kind": "Node"}),
        ("stdin:2", {"kind": "Pod"}),
        ("stdin:2", {"kind": "Node"}),
    ]


def test_timestamps_stay_texts_and_keys_are_texts():
    assert parse("at: 2026-01-31T12:00:00Z\n1: a\ntrue: b\n", "f.yaml")[0].value == {
        "at": "2026-01-31T12:00:00Z",
        "1": "a",
        "true": "b",
    }


def test_anchors_and_merges_of_ordinary_size_are_understood():
    assert parse("base: &b {a: 1}\nmore: {<<: *b, c: 2}\n", "f.yaml")[0].value == {
        "base": {"a": 1},
        "more": {"a": 1, "c": 2},
    }


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\na: 2\n", "f.yaml:2: malformed YAML: key 'a' stands here twice; remove one"),
        ("a: &a [*a]\n", "f.yaml:1: malformed YAML: an alias refers to what contains it"),
        ("? [1]\n: 2\n", "f.yaml:1: malformed YAML: a key is a list or a mapping; write it as text"),
        ('{"a": 1, "a": 2}', "f.yaml: key 'a' stands twice in one object; remove one"),
    ],
)
def test_malformed_text_is_one_line_with_its_place(text, line):
    assert problems(text) == (line,)


@pytest.mark.parametrize(("text", "place"), [("a: [1,\n b\n", "f.yaml:3"), ("a: x\n\tb: 1\n", "f.yaml:2")])
def test_what_the_parser_itself_refuses_is_one_line_with_its_place(text, place):
    (line,) = problems(text)
    assert line.startswith(f"{place}: malformed YAML: ")
    assert "\n" not in line


def test_malformed_json_is_one_line_with_its_place():
    assert problems('{"a": 1,\n "b" 2}', "f.json") == ("f.json:2: malformed JSON: Expecting ':' delimiter",)


def test_no_python_object_is_ever_made():
    assert "could not determine a constructor" in problems("!!python/object/apply:os.system [ls]")[0]


def test_an_alias_bomb_is_refused_before_it_grows():
    levels = [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 30)]
    assert problems("\n".join(["l0: &l0 [x, x, x, x, x, x, x, x, x]", *levels])) == (
        "f.yaml:1: malformed YAML: its aliases make it far larger than it is written; write it out",
    )


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"a":' * 5000 + "1" + "}" * 5000])
def test_text_nested_without_end_is_one_line(text):
    assert len(problems(text)) == 1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: " + "9" * 5000, "f.yaml:1: malformed YAML: '99999999999999999999' is no int"),
        ("a: 1\nb: !!int x", "f.yaml:2: malformed YAML: 'x' is no int"),
        ("a: !!timestamp x", "f.yaml:1: malformed YAML: 'x' is no timestamp"),
        ("a: !!map [x]", "f.yaml:1: malformed YAML: is tagged as a mapping and is none"),
        ('{"a": NaN}', "f.yaml: NaN is no number that an API server takes; write at most 100 digits"),
        (
            '{"a": ' + "9" * 5000 + "}",
            "f.yaml: 99999999999999999999 is no number that an API server takes; write at most 100 digits",
        ),
    ],
)
def test_a_value_that_is_not_what_it_looks_like_is_one_line(text, line):
    assert problems(text) == (line,)


def test_a_folder_is_its_yaml_and_json_files_by_name(tmp_path: Path):
    (tmp_path / "b.yaml").write_text("kind: B\n")
    (tmp_path / "a.json").write_text('{"kind": "A"}')
    (tmp_path / "notes.md").write_text("kind: C\n")
    assert [d.value for d in read([str(tmp_path)])] == [{"kind": "A"}, {"kind": "B"}]


def test_every_file_that_cannot_be_read_has_its_line(tmp_path: Path):
    (tmp_path / "latin.yaml").write_bytes(b"a: \xff\n")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInputError) as caught:
        read([str(tmp_path / "gone.yaml"), str(tmp_path / "latin.yaml"), str(tmp_path / "empty")])
    assert caught.value.lines == (
        f"{tmp_path}/gone.yaml: cannot be read: No such file or directory",
        f"{tmp_path}/latin.yaml: is not UTF-8 text (byte 3); save it as UTF-8",
        f"{tmp_path}/empty: no file in this folder ends in .yaml, .yml, .json",
    )


def test_a_file_name_that_no_system_takes_is_one_line():
    with pytest.raises(BadInputError) as caught:
        read(["x" * 5000])
    assert caught.value.lines == (f"{'x' * 80}: cannot be read: File name too long",)
