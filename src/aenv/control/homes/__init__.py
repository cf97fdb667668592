"""The home folder as a whole: what takes its space, what can go, how to save and restore the rest."""
