"""How a process is shut in: namespaces, control groups, a root file system, a way out to listed hosts."""
