"""The gateway's own publishers: `tap` shows events live, `events` all from one on.

docs/rsio.md says how to use them; `gateway tap` does.  Nothing is imported here, so that
`publisher`, the interface, costs its importers neither Parquet nor the admin port.
"""
