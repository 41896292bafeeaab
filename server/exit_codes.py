"""The exit codes of the commands. Imports nothing: `statehold call` has no time for it."""

OK = 0
FAILURE = 1
USAGE = 2
NOT_FOUND = 3
BUSY = 4
TOOL_FAILED = 5
ASKS = 6
UNKNOWN = 7
FENCED = 75
INTERRUPTED = 130

EXIT_CODES = {
    OK: "it worked",
    FAILURE: "a service, the server or the store is not available, a limit is reached, or a check found something wrong",
    USAGE: "the command line, an argument or the configuration is wrong; nothing ran",
    NOT_FOUND: "there is no such session, task, caller, token or node, or it has ended",
    BUSY: "the session or its login is busy, paused, driven by a person or open in another process; or the node lives",
    TOOL_FAILED: "the tool says that it failed (call, answer, tasks)",
    ASKS: "the tool asks something: statehold answer (call, answer, tasks)",
    UNKNOWN: "the outcome is unknown (a lost server, a cancelled call, a task that goes on): look before you repeat it",
    FENCED: "other nodes took over the sessions of this server: start it again (`[cluster]`)",
    INTERRUPTED: "interrupted with Ctrl-C",
}

CODES = {
    "invalid_argument": USAGE,
    "name_taken": USAGE,
    "service_not_bound": USAGE,
    "session_not_found": NOT_FOUND,
    "call_not_found": NOT_FOUND,
    "session_closed": NOT_FOUND,
    "session_expired": NOT_FOUND,
    "session_busy": BUSY,
    "session_paused": BUSY,
    "human_in_control": BUSY,
    "login_busy": BUSY,
    "outcome_unknown": UNKNOWN,
    "call_timeout": UNKNOWN,
}
"""The exit codes of our errors; those of all others are FAILURE."""
