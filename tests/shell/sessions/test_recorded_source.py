"""The source of recorded tests, from journal entries of all kinds."""

from __future__ import annotations

import ast
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from statehold.client.integrations import testing
from statehold.sessions.records import JournalKind, JournalRecord
from statehold.shell.sessions.recording.literals import lay_out
from statehold.shell.sessions.recording.parameters import Parameters
from statehold.shell.sessions.recording.recorded_test import RecordedTest, write_test
from statehold.shell.sessions.recording.steps import StepReader

ROOT = Path(__file__).resolve().parents[3]
EMAIL = "ada@example.org"
BUTTON = {"locator": 'get_by_role("button", name="Save", exact=True)', "kind": "role"}

TEXTS = st.text(max_size=300) | st.text(
    alphabet="ab \\\"'{}\n.*[]()%\u2019\u0430\u0422", max_size=300
)
"""Texts of all kinds, and texts of signs that mean something in Python, in patterns or to a linter."""


def entry(
    seq: int,
    tool: str,
    request: Any,
    facts: Any = None,
    *,
    service: str = "browser",
    status: str = "ok",
) -> JournalRecord:
    return JournalRecord(
        session_id="sh_a",
        seq=seq,
        kind=JournalKind.CALL,
        epoch=1,
        service=service,
        tool=tool,
        status=status,
        started_at=1_795_824_000.0,
        request=request,
        facts=facts,
    )


def write(*entries: JournalRecord, name: str = "work", **values: str) -> RecordedTest:
    parameters = Parameters(values)
    reader = StepReader(
        parameters,
        prefixes={"shell": "shell_"},
        browsers=frozenset({"browser"}),
        reads=frozenset({"browser_snapshot", "browser_verify_value", "browser_wait_for"}),
    )
    return write_test(entries, reader, parameters, name=name)


def lines(recorded: RecordedTest) -> list[str]:
    """Return the statements of the test, each on one line."""
    [function] = [
        node for node in ast.parse(recorded.source).body if isinstance(node, ast.AsyncFunctionDef)
    ]
    return [ast.unparse(statement) for statement in function.body[1:]]


def check_style(folder: Path, *sources: str) -> None:
    for number, source in enumerate(sources):
        (folder / f"test_{number}.py").write_text(lay_out(source), encoding="utf-8")
    ruff = Path(sys.executable).with_name("ruff")
    options = ["--config", str(ROOT / "pyproject.toml"), "--no-cache", str(folder)]
    for command in (["check", "--ignore=TID251,E501,RUF001,RUF002"], ["format", "--check"]):
        done = subprocess.run(
            [ruff, *command, *options], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@given(texts=st.lists(TEXTS, min_size=1, max_size=5))
def test_any_text_comes_back_from_the_source(texts: Sequence[str]) -> None:
    request = {"command": texts[0], "more": [{"a": text} for text in texts]}
    recorded = write(entry(1, "run", request, {"first": texts[0]}, service="shell"))
    arguments: dict[str, Any] = {}
    calls = [node for node in ast.walk(ast.parse(recorded.source)) if isinstance(node, ast.Call)]
    for call in calls:
        if ast.unparse(call.func) == "s.call":
            arguments = {each.arg or "": ast.literal_eval(each.value) for each in call.keywords}
    assert arguments == request
    for call in calls:
        if ast.unparse(call.func) == "says":
            pattern = eval(ast.unparse(call.args[1]), {"re": re, **vars(testing)})
            assert re.fullmatch(pattern, texts[0].strip() or texts[0]) or re.fullmatch(
                pattern, texts[0]
            )


def test_the_source_of_difficult_texts_is_in_order(tmp_path: Path) -> None:
    """A linter and a formatter find nothing, whatever the lengths, quotes and letters."""
    words = [
        "Ada's",
        'a "b"',
        "\u2019\u2013\u00d7",
        "\u041d\u0415\u0422",
        "\u20ac5",
        "x\\y",
        "{z}",
        "3.20",
        "12:03",
        EMAIL,
    ]
    sources: list[str] = []
    for length, several in itertools.product((1, 3, 9, 30), range(4)):
        text = " ".join(
            itertools.islice(itertools.cycle(words[several:] + words[:several]), length)
        )
        target = {"locator": f"get_by_text({json.dumps(text[:90])}, exact=True)", "fragile": True}
        facts = {
            "target": target,
            "url": f"http://shop.test/{text}",
            "title": text,
            "appeared": [f"status: {text}"[:120]],
        }
        values = {"/a": text[:200], "/b": 12345, "/c": None, "/d": True, "/e": 0.5}
        recorded = write(
            entry(1, "browser_click", {"target": "e1"}, facts),
            entry(
                2,
                "browser_fill_form",
                {"fields": [{"target": "e2", "name": text, "value": text}] * 2},
                {"targets": [BUTTON, target]},
            ),
            entry(
                3,
                "run",
                {"command": text, "list": [text, 1], "none": None, "empty": {}, "class": [[]]},
                {"values": values},
                service="shell",
            ),
            entry(
                4,
                "query",
                {"sql": text + " [redacted]"},
                {"first": text, "last": text[1:]},
                service="db",
            ),
            entry(5, text, {}, status="error"),
            name=text,
            email=EMAIL,
            **({} if length < 3 else {"ada": "Ada's"}),
        )
        sources.append(recorded.source)
    check_style(tmp_path, *sources)


def test_elements_are_located_as_when_the_call_ran() -> None:
    row = {
        "locator": 'get_by_role("button")',
        "scope": 'get_by_role("row", name="Tea")',
        "kind": "role",
    }
    order = {"locator": 'get_by_role("link", name="Order A-6a1657", exact=True)', "fragile": True}
    mail = {"locator": f'get_by_text("{EMAIL}", exact=True)'}
    recorded = write(
        entry(1, "browser_click", {"target": "e1", "element": "the button"}, {"target": row}),
        entry(2, "browser_click", {"target": "e2"}, {"target": order}),
        entry(3, "browser_click", {"target": "e3"}, {"target": mail}),
        entry(
            4, "browser_drag", {"startTarget": "e4", "endTarget": "e5"}, {"targets": [row, BUTTON]}
        ),
        entry(5, "browser_click", {"target": "getByText('Home')"}),
        entry(6, "browser_click", {"target": "e6"}),
        entry(7, "browser_click", {"target": "f1e7"}, {"url": "http://shop.test/"}),
        email=EMAIL,
    )
    tea = "get_by_role('row', name='Tea').get_by_role('button')"
    save = "get_by_role('button', name='Save', exact=True)"
    assert lines(recorded) == [
        f"""await s.call('browser_click', target="{tea}")""",
        """await s.call('browser_click', target=f"get_by_role('link', name=re.compile(r'^Order {ID}$'))")""",
        """await s.call('browser_click', target=f"get_by_text(re.compile(r'^{re.escape(email)}$'))")""",
        f"""await s.call('browser_drag', startTarget="{tea}", endTarget="{save}")""",
        """await s.call('browser_click', target="getByText('Home')")""",
    ]
    assert "go by a place or a number, of entries: 2." in recorded.source
    left_out = [(each.entry.seq, each.reason) for each in recorded.left_out]
    assert left_out == [(6, "its element has no locator"), (7, "its element has no locator")]


def test_a_page_that_is_read_again_is_asserted_once_until_the_next_step() -> None:
    said = {"appeared": ["status: Saved", "alert: Ready"]}
    click = "browser_click", {"target": "e1"}, {"target": BUTTON}
    reads = [entry(seq, "browser_snapshot", {}, said) for seq in (2, 3, 4)]
    recorded = write(
        entry(1, *click), *reads, entry(5, *click), entry(6, "browser_snapshot", {}, said)
    )
    assertions = [line for line in lines(recorded) if "page_says" in line]
    assert (
        assertions
        == [
            "await page_says(s, 'status: Saved')",
            "await page_says(s, 'alert: Ready')",
        ]
        * 2
    )
    assert recorded.left_out_groups == {("browser_snapshot", "it only reads"): [2, 3, 4, 6]}


def test_failed_and_reading_steps_are_left_out_but_what_the_page_said_is_asserted() -> None:
    said = {"url": "http://shop.test/", "title": "Shop", "appeared": ["status: Saved", "/url: /x"]}
    recorded = write(
        entry(1, "browser_click", {"target": "e1"}, {"target": BUTTON, "url": "http://shop.test/"}),
        entry(2, "browser_snapshot", {}, said),
        entry(3, "browser_wait_for", {"time": 2}),
        entry(4, "browser_wait_for", {"text": "Saved"}),
        entry(5, "browser_tabs", {"action": "list"}),
        entry(6, "browser_verify_value", {"target": "e2", "value": "7"}, {"target": BUTTON}),
        entry(7, "browser_click", {"target": "e1"}, {"appeared": ["alert: No"]}, status="error"),
        entry(8, "query", {}, {"values": {"/count": 1}}, service="db"),
        entry(9, "run", {}, status="outcome_unknown", service="shell"),
    )
    save = "get_by_role('button', name='Save', exact=True)"
    assert lines(recorded) == [
        f"""await s.call('browser_click', target="{save}")""",
        r"await page_says(s, 'Page URL: http://shop\\.test/')",
        "await page_says(s, 'Page Title: Shop')",
        "await page_says(s, 'status: Saved')",
        "await s.call('browser_wait_for', text='Saved')",
        f"""await s.call('browser_verify_value', target="{save}", value='7')""",
        "result = await s.call('query')",
        "assert value_at(result, '/count') == 1",
    ]
    assert "Left out:\n    browser_snapshot: it only reads (entry 2)\n" in recorded.source
    left_out = {each.entry.seq: each.reason for each in recorded.left_out}
    reads = dict.fromkeys((2, 3, 5), "it only reads")
    assert left_out == reads | {7: "it failed", 9: "it ended as outcome_unknown"}


def test_a_line_that_went_away_by_itself_is_not_asserted() -> None:
    page = {"url": "http://shop.test/", "title": "Shop"}
    click = {"target": BUTTON, **page}
    recorded = write(
        entry(1, "browser_navigate", {"url": "http://shop.test/"}, page),
        entry(
            2,
            "browser_click",
            {"target": "e1"},
            {**click, "appeared": ["alert: Hi", "status: Wait"]},
        ),
        entry(3, "browser_wait_for", {"textGone": "Wait"}, {**page, "gone": ["status: Wait"]}),
        entry(4, "browser_click", {"target": "e1"}, {**click, "gone": ["alert: Hi"]}),
        entry(5, "browser_click", {"target": "e1"}, {**click, "appeared": ["status: Wait"]}),
    )
    assert [line for line in lines(recorded) if "s.call" not in line][2:] == [
        "await page_says(s, 'alert: Hi', result)",
        "await page_lacks(s, 'status: Wait')",
        "await page_lacks(s, 'alert: Hi')",
        "await page_says(s, 'status: Wait', result)",
    ]


def test_values_that_were_not_recorded_are_required() -> None:
    field = {"name": "Repeat it", "type": "textbox", "target": "e3", "value": "[redacted]"}
    key = {"name": "2nd", "type": "textbox", "target": "e3", "value": "%KEY% [redacted]"}
    password = {"locator": 'get_by_label("Pass word", exact=True)'}
    recorded = write(
        entry(1, "browser_type", {"target": "e1", "text": "[redacted]"}, {"target": password}),
        entry(2, "browser_type", {"target": "e1", "text": "[redacted]"}, {"target": password}),
        entry(3, "browser_fill_form", {"fields": [field, key]}, {"targets": [BUTTON, BUTTON]}),
        entry(4, "run", {"command": "export API_TOKEN=[redacted]; date +%H%M"}, service="shell"),
        entry(5, "put", {"truncated": '{"a": "b', "bytes": 9000}, service="files"),
        entry(6, "put", {"withheld": True}, service="files"),
        entry(7, "put", {"class": "a", "run_id": "http://a:[redacted]@b"}, service="files"),
    )
    assert lines(recorded)[:7] == [
        "pass_word = require_variable('TEST_PASS_WORD')",
        "repeat_it = require_variable('TEST_REPEAT_IT')",
        "value_2nd = require_variable('TEST_2ND')",
        "api_token = require_variable('TEST_API_TOKEN')",
        "arguments_5 = require_arguments('TEST_ARGUMENTS_5')",
        "arguments_6 = require_arguments('TEST_ARGUMENTS_6')",
        "password = require_variable('TEST_PASSWORD')",
    ]
    assert lines(recorded)[-4:] == [
        "await s.call('shell_run', command=f'export API_TOKEN={api_token}; date +%H%M')",
        "await s.call('put', arguments_5)",
        "await s.call('put', arguments_6)",
        "await s.call('put', {'class': 'a', 'run_id': f'http://a:{password}@b'})",
    ]
    assert next(iter(recorded.required)) == "TEST_PASS_WORD"
    assert "    TEST_PASS_WORD (entries 1, 2)\n" in recorded.source
    assert "know these secrets: KEY." in recorded.source


def test_results_of_other_services_are_asserted_value_by_value() -> None:
    values = {
        "/exit_code": 0,
        "/id": "A-6a1657",
        "/mail": EMAIL,
        "/said": f"for {EMAIL} at 12:03",
        "/size": 123456,
        "/part": 0.5,
        "/ok": True,
        "/none": None,
        "/token": "[redacted]",
        "/duration_ms": 12,
        "/times/0/pid": 71,
    }
    text = {"first": "12 rows", "last": "x" * 500}
    recorded = write(
        entry(1, "run", {"for": EMAIL}, {"values": values, "exit_code": 0}, service="shell"),
        entry(2, "run", {}, text, service="shell"),
        email=EMAIL,
    )
    assert lines(recorded) == [
        "result = await s.call('shell_run', {'for': email})",
        "assert value_at(result, '/exit_code') == 0",
        "assert matches(value_at(result, '/id'), ID)",
        "assert value_at(result, '/mail') == email",
        "assert matches(value_at(result, '/said'), f'for {re.escape(email)} at {TIME}')",
        "assert matches(value_at(result, '/size'), NUMBER)",
        "assert value_at(result, '/part') == 0.5",
        "assert value_at(result, '/ok') is True",
        "assert value_at(result, '/none') is None",
        "assert matches(value_at(result, '/token'), '.*')",
        "result = await s.call('shell_run')",
        "says(result, '12 rows')",
        f"says(result, '{'x' * 500}.*')",
    ]


def test_a_line_that_is_gone_is_asserted_unless_another_took_its_place() -> None:
    page = {"url": "http://shop.test/", "title": "Shop"}
    click = {"target": BUTTON, **page}
    gone = ["status: 2 items", "listitem: Tea", 'button "Remove"', "text: 12:03", 'row "Milk"']
    recorded = write(
        entry(1, "browser_navigate", {"url": "http://shop.test/"}, page),
        entry(
            2,
            "browser_click",
            {"target": "e1"},
            {**click, "appeared": ["status: 1 item"], "gone": gone},
        ),
        entry(
            3, "browser_click", {"target": "e1"}, {**click, "asks": "Sure?", "gone": ["text: x"]}
        ),
        entry(
            4, "browser_handle_dialog", {"accept": True}, {**page, "files": ["a-2026-11-28.pdf"]}
        ),
        entry(
            5,
            "browser_click",
            {"target": "e1"},
            {"target": BUTTON, "url": "http://shop.test/b", "gone": ["text: y"]},
        ),
    )
    assert [line for line in lines(recorded) if "s.call" not in line][2:] == [
        "await page_says(s, 'status: 1 item', result)",
        "await page_lacks(s, 'listitem: Tea')",
        "await page_lacks(s, 'row Milk')",
        r"says(result, '.*Sure\\?.*')",
        r"has_file(result, f'a-{DATE}\\.pdf')",
        r"await page_says(s, 'Page URL: http://shop\\.test/b')",
    ]
