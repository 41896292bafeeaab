"""Files of clients, made after their documentation, by the name of the client."""

from __future__ import annotations

import json

SECRET = "s3cret-v4lue"

FILES: dict[str, tuple[str, str]] = {
    "claude-desktop": (
        ".config/Claude/claude_desktop_config.json",
        '{"globalShortcut": "Ctrl+Space", "mcpServers": {}}',
    ),
    "claude-code": (
        ".claude.json",
        json.dumps(
            {
                "numStartups": 41,
                "projects": {"/work": {"mcpServers": {"notes": {"command": "other"}}}},
                "mcpServers": {
                    "notes": {"type": "stdio", "command": "notes", "env": {"KEY": SECRET}},
                    "docs": {"type": "http", "url": "https://docs.example/mcp"},
                },
                "oauthAccount": {"emailAddress": "ada@example.com"},
            },
            indent=2,
            ensure_ascii=False,
        ),
    ),
    "cursor": (
        ".cursor/mcp.json",
        (
            "{\n"
            '\t"mcpServers": { // all projects\n'
            f'\t\t"notes": {{"command": "notes", "env": {{"KEY": "{SECRET}"}}}}, // mine\n'
            '\t\t// the second one\n\t\t"search": {\n\t\t\t"command": "search",\n\t\t\t"args": ["a//b", "/*c*/"]\n\t\t}\n'
            "\t}\n}\n"
        ),
    ),
    "vscode": (
        ".config/Code/User/mcp.json",
        (
            "\ufeff// of the default profile\r\n{\r\n"
            '    "inputs": [\r\n        {"type": "promptString", "id": "key", "password": true},\r\n    ],\r\n'
            '    "servers": {\r\n'
            '        "asks": {\r\n            "type": "stdio",\r\n            "command": "asks",\r\n'
            '            "env": {"KEY": "${input:key}"},\r\n        },\r\n'
            '        "local": {\r\n            "type": "http",\r\n'
            '            "url": "http://127.0.0.1:1/mcp",\r\n        },\r\n'
            "    },\r\n}\r\n"
        ),
    ),
    "windsurf": (".codeium/windsurf/mcp_config.json", ""),
    "devin-desktop": (
        ".config/devin/mcp_config.json",
        (
            '{\n    "mcpServers": {\n        "off": {\n            "command": "off",\n            "disabled": true\n'
            "        }\n    }\n}"
        ),
    ),
    "codex": (
        ".codex/config.toml",
        (
            '# Codex\nmodel = "gpt-6"\nnotify = [\n  "[not a table]",\n]\n\n'
            f'[mcp_servers.notes]\ncommand = "notes"\nenabled_tools = ["read"]\n\n'
            f'[mcp_servers.notes.env]\nKEY = "{SECRET}"\n\n'
            '# how it looks\n[tui]\ntheme = "dark"\n'
        ),
    ),
    "gemini-cli": (
        ".gemini/settings.json",
        (
            '{\n  "theme": "Dracula",\n  "mcpServers": {\n    "notes": {\n      "command": "notes",\n'
            f'      "env": {{\n        "KEY": "{SECRET}"\n      }},\n      "trust": true\n    }}\n  }}\n}}\n'
        ),
    ),
    "zed": (
        ".config/zed/settings.json",
        (
            '// Zed\n{\n  "theme": "One Dark", // at night\n  "context_servers": {\n    "search": {\n'
            '      "source": "custom",\n      "command": "search",\n      "args": [],\n      "env": {},\n    },\n  },\n'
            '  "vim_mode": false,\n}\n'
        ),
    ),
    "cline": (
        ".cline/data/settings/cline_mcp_settings.json",
        (
            '{\n  "mcpServers": {\n    "notes": {\n      "command": "notes",\n      "autoApprove": ["read"],\n'
            '      "disabled": false,\n      "timeout": 60\n    }\n  }\n}\n'
        ),
    ),
    "goose": (
        ".config/goose/config.yaml",
        (
            "# Goose\nGOOSE_PROVIDER: anthropic\nextensions:\n  developer:\n    bundled: true\n    enabled: true\n"
            "    name: developer\n    type: builtin\n  # mine\n  notes:\n    cmd: notes\n    args:\n    - --all\n"
            f"    enabled: true\n    envs:\n      KEY: {SECRET}\n    type: stdio\nGOOSE_MODE: smart_approve\n"
        ),
    ),
    "opencode": (
        ".config/opencode/opencode.jsonc",
        (
            '{\n  "$schema": "https://opencode.ai/config.json",\n  "mcp": {\n    "search": {\n      "type": "local",\n'
            '      // fast\n      "command": ["search", "--fast"],\n      "enabled": true,\n    },\n  },\n}\n'
        ),
    ),
}
"""The place below the home of a user, and the text."""
