"""The thin async client of the Kubernetes API: aiohttp for the wire, msgspec for JSON, plain dicts for objects."""
