"""The Mini Program IDE: a project in an instance, an agent that builds it, and the server of its page."""
