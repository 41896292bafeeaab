"""The words of a command that calls tools of the background server; shared/commands.py is the other end.

A connection begins with `{"verb": "command", "session": NAME, "presence": WORD, "settings": DIGESTS}`, each member but the
first optional. The answer says whether the session is new; without a session it has the names of all. Then both sides speak
MCP of 2026-07-28 as on stdio. Imports nothing: `statehold call` takes as
long as its imports.
"""

VERB = "command"

ANY, NEW, EXISTING = "any", "new", "existing"
"""The values of `presence`: whether the session may, must not, or must exist."""

TEXT_ARGUMENTS = "statehold/text_arguments"
"""A member of the `_meta` of a call from a command: texts by argument. The server makes of them what the schema wants."""
TEXT_ANSWERS = "statehold/text_answers"
"""The same for the answers to forms, by question: `{"schema": SCHEMA, "texts": TEXTS}`."""
RESULT_TOKENS = "statehold/result_tokens"
"""A member of the `_meta` of a call: the tokens of a page that its caller reads; see CallerOptions.result_tokens."""
