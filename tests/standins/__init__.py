"""Programs that stand in for those of others, and speak the same protocols."""
