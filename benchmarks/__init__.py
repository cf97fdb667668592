"""Our speed: against the published package's, side by side, or against a target. See docs/performance.md."""
