"""The data port: calls of instances that run here go straight through, everything else to the owner process."""
