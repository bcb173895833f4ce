"""What a plug-in imports of the gateway: this package, `gateway.event`, and nothing else.

The four protocols that come with the gateway live by the same rule; a test holds it.
`docs/plugin.md` builds a plug-in step by step.
"""
