"""The hub: the registry of environments, their versions, bundles, and who may see and change them."""
