"""The program of the child processes that check states against schemas. It is run by path and imports nothing of ours.

A line of input is a JSON list of one or two JSON texts: a schema, and a value. A line of output is null, or the first error.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from functools import lru_cache
from typing import Any, Final

import jsonschema_rs

PATTERN_BYTES: Final = 1 << 20
"""Size of a compiled pattern: some 30,000 characters, with every counted repetition written out."""
MEMORY_BYTES: Final = 1 << 30


@lru_cache(maxsize=32)
def _validator(schema: str) -> jsonschema_rs.Validator:
    document = json.loads(schema)
    document.pop("$schema", None)
    return jsonschema_rs.Draft202012Validator(
        document,
        mask="the value",  # error texts are short, and hold nothing of the state
        offline=True,
        pattern_options=jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES),
        validate_formats=False,
    )


def first_error(schema: str, *values: str) -> dict[str, Any] | None:
    """Return the first error of a schema, or of a value that is checked against it, None if there is none."""
    try:
        validator = _validator(schema)
        for value in values:
            validator.validate(json.loads(value))
    except jsonschema_rs.ValidationError as error:
        return {
            "path": error.instance_path,
            "schema_path": error.schema_path,
            "rule": error.kind.name,
            "message": error.message,
        }
    except (ArithmeticError, RecursionError, ValueError) as error:
        return {"path": [], "schema_path": [], "rule": "", "message": str(error)}
    return None


def main() -> None:
    """Answer until the input ends. The system ends this process when a check takes more than `seconds` of the processor."""
    seconds = float(sys.argv[1])
    sys.set_int_max_str_digits(0)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        answer = json.dumps(first_error(*json.loads(line)))
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
