"""The SDK: `Environment` and the HTTP client below it."""
