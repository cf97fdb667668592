"""The Kubernetes engine: an instance is a Pod.

`kubernetes_engine.py` begins here; `pod_manifest.py`, `pod_templates.py` and `pod_state.py` are pure.
"""
