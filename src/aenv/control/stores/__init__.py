"""Where hub and gateway keep records. `base` is the contract; each other module is one way to keep it."""
