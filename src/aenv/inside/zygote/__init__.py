"""How the runtime begins its life in a sandbox: forked from a zygote, or alone in a sandbox that others make."""
