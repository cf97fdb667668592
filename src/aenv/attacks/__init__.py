"""The attacks that an instance must withstand: the list, the programs, and what runs them on this host.

Not here: the walls (`sandbox`). No instance needs this package; the projects that are attacked from are made of
its files (`projects.py`).
"""
