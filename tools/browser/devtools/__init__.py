"""The DevTools protocol and the parts of Playwright that its API does not offer."""
