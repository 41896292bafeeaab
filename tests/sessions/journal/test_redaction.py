"""Values that are secret by name or by form are not written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statehold.sessions.errors import ServiceUnavailable
from statehold.sessions.journal.entries import CallEntry, excerpt, transition_entry
from statehold.sessions.journal.redaction import Redactor
from statehold.sessions.services import ToolResult

REDACTOR = Redactor(patterns=[r"CARD-\d{4}"])

SECRETS = [
    ("Authorization: Bearer abc123def456ghi7", "abc123def456ghi7"),
    ("curl -H 'authorization: Digest user'", "Digest user"),
    ("Bearer abcdefghijklmnopqrstuvwx", "abcdefghijklmnopqrstuvwx"),
    ("postgres://ada:hunter2@db.example.org/x", "hunter2"),
    ('{"password": "hunter 2", "n": 1}', "hunter 2"),
    (r"{\"api_key\": \"abc123\"}", "abc123"),
    ("password=hunter2&next=1", "hunter2"),
    ("db_password = 'hunter 2'", "hunter 2"),
    ("ACCESS-TOKEN: abc", ": abc"),
    ('{"userPassword": "hunter 2"}', "hunter 2"),
    ("X-Api-Key: abc123", "abc123"),
    ("Cookie: sid=1; other=2\nnext", "other=2"),
    ("key sk-proj-abcdefghij1234567890", "abcdefghij1234567890"),
    ("ghp_abcdefghijklmnopqrst", "abcdefghijklmnopqrst"),
    ("AKIAABCDEFGHIJKLMNOP", "ABCDEFGHIJKLMNOP"),
    ("eyJhbGciOi.eyJzdWIiOiIx.sig", "eyJzdWIiOiIx"),
    ("jwt-eyJhbGciOi.eyJzdWIiOiIx.sig", "eyJzdWIiOiIx"),
    ("at AbCdEf0123456789AbCdEf0123456789xyz", "0123456789"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\n-----END RSA PRIVATE KEY-----", "MIIEabc"),
    ("paid with CARD-1234", "1234"),
    ("ghp_abcdefghijklmnopqrst-----BEGIN PRIVATE KEY-----\nMIIEabc", "MIIEabc"),
]

BEGINNINGS = [
    *("sk-", "sk_", "pk-", "pk_", "rk-", "rk_", "gho_", "ghp_", "ghs_", "ghu_", "ghr_"),
    *("github_pat_", "glpat-", "xoxb-", "xoxp-", "npm_", "pypi-", "hf_", "dop_v1_", "shpat_"),
    *("SG.", "ya29.", "AIza", "AKIA", "ASIA"),
]

HARMLESS = [
    "A basic understanding of bearer bonds",
    "http://127.0.0.1:8931/s/work/mcp and https://example.org/a@b",
    "the tokens: 15, secretary: Ada",
    "sh_abcdefghijklmnopqrstuvwx23 0123456789abcdef0123456789abcdef01234567",
    "7a1d5c3e-1111-4222-8333-444455556666",
    "/home/ada/Projects/Some2Long3Directory4Name5With6Digits7/file",
]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_secrets_in_a_text_are_replaced(text: str, secret: str) -> None:
    redacted = REDACTOR.text(text)
    assert secret not in redacted
    assert "[redacted]" in redacted
    assert REDACTOR.text(redacted).count("[redacted]") == redacted.count("[redacted]")


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_a_key_is_known_by_its_beginning(beginning: str) -> None:
    key = f"{beginning}0123456789ABCDEF"
    assert REDACTOR.text(f"use {key} here") == "use [redacted] here"


@given(
    st.sampled_from(SECRETS),
    st.text(st.sampled_from("aB1 .-_:/@=\"'\n\u0130"), max_size=40),
    st.text(st.sampled_from("aB1 .-_:/@=\"'\n\u0130"), max_size=40),
)
def test_a_secret_is_replaced_whatever_is_around_it(
    case: tuple[str, str], before: str, after: str
) -> None:
    text, secret = case
    assert secret not in REDACTOR.text(f"{before}\n{text}\n{after}")


def call_of(arguments: dict[str, Any], outcome: ToolResult | None = None) -> CallEntry:
    fields = {"session_id": "s", "node": "n", "epoch": 1, "seq": 1, "service": "s", "tool": "t"}
    times = {"started_at": 1.0, "ended_at": 2.0, "generation": 1, "operation_id": None, "run": None}
    limits = {"limit": 1_000_000, "redactor": REDACTOR, "outcome": outcome and excerpt(outcome)}
    return CallEntry(arguments=arguments, **{**fields, **times, **limits})  # pyright: ignore[reportArgumentType]


_TEXTS = st.sampled_from([*(text for text, _ in SECRETS), *HARMLESS, "", "CARD-1234"])
_NUMBERS = st.one_of(st.integers(-(2**80), 2**80), st.floats(allow_nan=False, allow_infinity=False))


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), _NUMBERS, _TEXTS),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from(["name", "Api-Key", "n"]), inner, max_size=3),
        ),
        max_leaves=6,
    )
)
def test_arguments_are_kept_as_they_are_but_for_their_secrets(value: object) -> None:
    arguments = {"given": value}
    record = call_of(arguments).record()
    assert record.request == REDACTOR.value(arguments)


def test_deep_nesting_is_cut_off() -> None:
    value: object = "x"
    for _ in range(49):
        value = [value]
    assert call_of({"given": value}).record().request == {"given": value}
    assert REDACTOR.value({"given": [value]}) != {"given": [value]}
    deeper = call_of({"given": [value]}).record().request
    assert deeper == REDACTOR.value({"given": [value]})


def test_half_a_surrogate_pair_is_a_text_as_any() -> None:
    assert REDACTOR.text("half a pair: \ud800") == "half a pair: \ud800"
    assert "hunter2" not in REDACTOR.text("\ud800 password=hunter2")


@pytest.mark.parametrize("text", HARMLESS)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert REDACTOR.text(text) == text


@pytest.mark.parametrize("key", ["apiKey", "API-KEY", "api_key", "Set-Cookie", "clientSecret"])
def test_a_name_is_secret_however_it_is_spelled(key: str) -> None:
    assert REDACTOR.value({key: ["x", {"y": 1}]}) == {key: "[redacted]"}


NAMES_OF_SECRETS = [
    *(
        "user_password",
        "userPassword",
        "x-api-key",
        "X-API-Key",
        "XApiKey",
        "db.password",
        "OLD_PASSWD",
    ),
    *(
        "password_",
        "password2",
        "password_1",
        "new-password-confirmation",
        "passwordHash",
        "token_value",
    ),
    *(
        "SECRET_KEY",
        "aws_secret_access_key",
        "awsSecretAccessKey",
        "client_secret_value",
        "appSecret",
    ),
    *("githubToken", "GITHUB_TOKEN", "access_token_2", "session cookie", "Proxy-Authorization"),
    *("rsa_private_key", "user.apiKey", "OPENAI_APIKEY", "oauth2Token"),
]
OTHER_NAMES = [
    *("token_count", "max_tokens", "maxTokens", "tokens", "tokenizer", "tokenType", "token_limit"),
    *("pageToken", "next_page_token", "progressToken", "eos_token", "cost_per_token"),
    *(
        "author",
        "authority",
        "authorized",
        "co_author",
        "passive",
        "passenger",
        "compass",
        "bypass",
    ),
    *(
        "keyboard",
        "primary_key",
        "api_keyboard",
        "key",
        "secretary",
        "secretariat",
        "cookie_banner",
    ),
    *("password_policy", "password_length", "reset_password_url", "apikeys_page", "cookieConsent"),
]


@pytest.mark.parametrize("name", NAMES_OF_SECRETS)
def test_a_name_is_secret_as_a_part_of_a_longer_one(name: str) -> None:
    arguments = {name: "hunter2", "deep": [{name: ["hunter2"], "n": 1}]}
    assert call_of(arguments).record().request == {
        name: "[redacted]",
        "deep": [{name: "[redacted]", "n": 1}],
    }


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_a_name_that_only_sounds_like_one_is_not(name: str) -> None:
    arguments = {name: "blue", "deep": {name: 15}}
    assert call_of(arguments).record().request == arguments


def test_yes_and_no_are_no_secrets_under_a_longer_name() -> None:
    arguments: dict[str, object] = {"has_password": True, "use-cookie": False, "api_token": None}
    assert REDACTOR.value(arguments) == arguments
    assert REDACTOR.value({"token": True}) == {"token": "[redacted]"}


def test_names_of_ones_own_are_found_as_parts_too() -> None:
    redactor = Redactor({"pin", "TaxId", "x"})
    arguments = {"userPin": 1234, "user_tax-id": 5, "spinner": 1, "opinion": 2, "axis": 3}
    wanted = {"userPin": "[redacted]", "user_tax-id": "[redacted]"}
    assert redactor.value(arguments) == {**arguments, **wanted}


def test_a_secret_that_stands_as_a_name_is_replaced() -> None:
    secrets = ["ghp_abcdefghijklmnopqrst", "CARD-1234", "sk-proj-abcdefghij1234567890"]
    arguments: dict[str, Any] = {**dict.fromkeys(secrets, 1), "password=hunter2": 2, "n": 3}
    request: Any = call_of({"deep": [arguments], **arguments}).record().request
    assert not any(secret in str(request) for secret in (*secrets, "hunter2"))
    # None of them makes another one disappear.
    assert sorted(str(value) for key, value in request.items() if key != "deep") == list("11123")


def test_names_of_any_kind_and_length_are_looked_at() -> None:
    long = f"password {'x' * 200}"
    arguments: dict[object, object] = {1: "password=hunter2", long: 1, f"{long} token=hunter2": 2}
    redacted = {1: "password=[redacted]", long: 1, f"{long} token=[redacted]": 2}
    assert REDACTOR.value(arguments) == redacted


def test_a_secret_in_the_kind_of_a_block_is_replaced() -> None:
    blocks = [{"type": "ghp_abcdefghijklmnopqrst"}, {"type": ["hunter2"]}, {"type": "image"}, {}]
    long = {"type": "x" * 100_000}
    outcome = ToolResult({"content": [*blocks, long]})
    record = call_of({}, outcome).record()
    assert record.result == {
        "content": [
            {"type": "[redacted]"},
            {"type": None},
            {"type": "image"},
            {"type": None},
            {"type": "x" * 500},
        ],
        "is_error": False,
    }


def test_a_secret_across_a_cut_is_replaced() -> None:
    for start in range(60, 100):
        cut = REDACTOR.text("word " * 100, 100)
        assert cut == f"{('word ' * 100)[:100]}... (500 characters)"
        text = "x " * (start // 2) + "Bearer abcdefghijklmnopqrstuvwxyz0123456789 " + "y " * 100
        assert "abcd" not in REDACTOR.text(text, 100)


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_no_secret_is_in_what_the_journal_writes(text: str, secret: str) -> None:
    """No request, result, error or cause holds it."""
    common: dict[str, Any] = {"session_id": "s", "epoch": 1, "seq": 1, "redactor": REDACTOR}
    call: dict[str, Any] = {
        **common,
        "node": "n",
        "service": "s",
        "tool": "t",
        "arguments": {"deep": [{"text": text}]},
        "started_at": 1.0,
        "ended_at": 2.0,
        "generation": 1,
        "operation_id": None,
        "run": None,
        "limit": 4096,
    }
    result = ToolResult({"content": [{"type": "text", "text": text}]})
    written = [
        CallEntry(**call, outcome=excerpt(result)).record(),
        CallEntry(**call, outcome=ServiceUnavailable(f"It said: {text}")).record(),
        transition_entry(
            **common, at=1.0, code="T14", event="lost", source="idle", target="error", cause=text
        ),
    ]
    for entry in written:
        stored = f"{entry.request} {entry.result} {entry.error}"
        assert secret not in stored
        assert "[redacted]" in stored


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN PRIVATE KEY-----" * 4000,
        "a-" * 20_000 + "://" * 5000,
        "password" * 10_000,
        "x" * 100_000,
        "sk-" * 30_000,
        "eyJaaaaaa-" * 30_000,
        "Bearer " * 10_000,
        "://" + "a" * 90_000,
        'token="' * 10_000,
    ],
)
def test_no_text_takes_long(text: str) -> None:
    """Time that grows with the square of the text's length would be minutes here, longer than the limit of a test."""
    assert len(REDACTOR.text(text)) <= len(text) * 2


NEW_SECRETS = [
    ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "wJalrXUtnFEMI"),
    ("export DB_PASS=hunter2", "hunter2"),
    ("mysql --password hunter2 -h db", "hunter2"),
    ("tool --db-password 'hunter2'", "hunter2"),
    ("tool --api-key hunter2", "hunter2"),
    ("curl -u ada:hunter2 https://site.example", "hunter2"),
    ("curl --user ada:hunter2 https://site.example", "hunter2"),
    ('{"name": "password", "value": "hunter 2"}', "hunter 2"),
    ('{"name":"db_password","value":"hunter2"}', "hunter2"),
    (r"{\"key\": \"API_TOKEN\", \"value\": \"hunter2\"}", "hunter2"),
    *(
        (f'{{"{name}": "hunter2"}}', "hunter2")
        for name in ("pwd", "pass", "passphrase", "credential", "otp", "pin", "jwt", "cvv", "dsn")
    ),
    *((f"{name}=hunter2", "hunter2") for name in ("pwd", "pass", "otp", "pin", "cvv", "dsn")),
]


@pytest.mark.parametrize(("text", "secret"), NEW_SECRETS)
def test_secrets_of_command_lines_and_pairs_are_replaced(text: str, secret: str) -> None:
    redacted = REDACTOR.text(text)
    assert secret not in redacted
    assert "[redacted]" in redacted


@pytest.mark.parametrize(
    "text",
    [
        "pin: left, pass: 3, pwd: /home/ada",
        "PWD=/home/ada and OLDPWD=~/x",
        "docker run -u 1000:1000 --name web image",
        "the tests pass, a spinning pin, otp is short",
        "git commit --author ada -m message",
        '{"name": "color", "value": "blue"}',
        "--token-count 5",
        "compass=north, opinion: none",
    ],
)
def test_ordinary_words_beside_the_new_names_stay(text: str) -> None:
    assert REDACTOR.text(text) == text


def test_the_value_beside_the_name_of_a_secret_and_behind_a_flag_is_replaced() -> None:
    arguments = {
        "fields": [{"name": "Password", "value": "x1"}, {"name": "city", "value": "Rome"}],
        "args": ["run", "--password", "x2", "-u", "ada:x3", "--name", "web", "-u", "1000:1000"],
    }
    assert REDACTOR.value(arguments) == {
        "fields": [
            {"name": "Password", "value": "[redacted]"},
            {"name": "city", "value": "Rome"},
        ],
        "args": [
            *("run", "--password", "[redacted]", "-u", "ada:[redacted]"),
            *("--name", "web", "-u", "1000:1000"),
        ],
    }
    assert REDACTOR.secret_texts(arguments) == ["x1"]
    for name in ("first_pass", "pass_count", "map_pin", "passes"):
        assert REDACTOR.value({name: "x"}) == {name: "x"}


def test_the_secrets_of_the_configuration_are_replaced_wherever_they_stand() -> None:
    redactor = Redactor(secrets=["s3cret/v4lue", "abc"])
    text = 'told s3cret/v4lue, as s3cret%2Fv4lue and ["s3cret/v4lue"]: abc'
    assert redactor.text(text) == 'told [redacted], as [redacted] and ["[redacted]"]: abc'
    assert redactor.value({"a": ["s3cret/v4lue"]}) == {"a": ["[redacted]"]}


def test_known_secrets_that_overlap_are_replaced_as_one_and_no_mask_is_searched() -> None:
    redactor = Redactor(secrets=["blue-whale", "whale-watch", "redacted"])
    assert redactor.text("a blue-whale-watch, redacted") == "a [redacted], [redacted]"
    assert redactor.without_known("password=x blue-whale", "***") == "password=x ***"


@pytest.mark.parametrize("name", ["pass", "PIN", "password", "Api-Key"])
@pytest.mark.parametrize("sign", ["=", "\n=", "  = ", "='", "\t=\n"])
def test_an_assignment_is_recognised_however_its_sign_is_spaced(name: str, sign: str) -> None:
    words = "The passenger passed a compass: he was pinning it - re-used = good. " * 3
    for text in (f"{words}{name}{sign}x1y2z3 {words}", f"{name}{sign}x1y2z3"):
        assert "x1y2z3" not in REDACTOR.text(text)
        assert REDACTOR.text(text).count("[redacted]") == 1
