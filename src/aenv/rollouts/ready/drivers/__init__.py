"""Programs that drive Python packages of others; each is run by itself and imports nothing of aenv."""
