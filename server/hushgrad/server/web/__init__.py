"""What people look at: a page, its live events, and metrics, on a port and in a thread of their own.

Needs the extra `web`; nothing else of the server imports it before `web_listen` is set.
"""
