"""The built-in browser: one Playwright context per session, and the tools that drive it."""
