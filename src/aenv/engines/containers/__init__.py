"""What every engine that makes containers shares: image, command, variables, labels, resources, the ready line.

Pure: nothing here talks to an engine of containers.
"""
