"""MCP as the SDK's server speaks it: tools, resources, prompts, subscriptions and questions."""
