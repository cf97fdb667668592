"""Our speed against the published package's, measured side by side. See docs/performance.md."""
