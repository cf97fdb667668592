"""What environments are made of: packed projects, installed requirements, fetched data."""
