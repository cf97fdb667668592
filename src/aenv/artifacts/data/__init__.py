"""Folders of data that environments need and that cannot be shipped: fetched, checked, kept in `<home>/data`."""
