"""What runs inside an instance: the author's functions, the runtime that serves them, and how a runtime begins."""
