"""Built-in environments, one folder each; they use only public names."""
