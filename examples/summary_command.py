"""A summary by a model: asks any address that speaks the chat API of OpenAI. Needs nothing but Python.

    [summary]
    command = ["python", "examples/summary_command.py"]
    every_messages = 20

Set OPENAI_BASE_URL (such as http://127.0.0.1:11434/v1 of Ollama), OPENAI_MODEL, and OPENAI_API_KEY if it needs one.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request

PROMPT = """\
Sum up this session of an agent in at most 150 words: goals, decisions, results, open questions. Answer with one JSON object:
{"summary": "...", "topics": ["at most five words or phrases"], "name": "a name of at most six words"}"""


def main() -> None:
    url = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1").rstrip("/")
    body = {
        "model": os.environ.get("OPENAI_MODEL", "gpt-4o-mini"),
        "messages": [
            {"role": "system", "content": PROMPT},
            {"role": "user", "content": sys.stdin.read()},
        ],
        "response_format": {"type": "json_object"},
    }
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("OPENAI_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"{url}/chat/completions", data, headers)
    with urllib.request.urlopen(request, timeout=55) as response:
        answer = json.load(response)["choices"][0]["message"]["content"]
    # Models like to put JSON into a block of Markdown.
    beginning, end = answer.index("{"), answer.rindex("}") + 1
    print(json.dumps(json.loads(answer[beginning:end])))


if __name__ == "__main__":
    main()
