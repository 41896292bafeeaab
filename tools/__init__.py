"""What a caller can invoke: session tools, and services that open connections."""
