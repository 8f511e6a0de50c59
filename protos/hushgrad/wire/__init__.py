"""The contract as values: headers, digests, terms and the integer arithmetic that both sides share.

Protobuf types end here; sockets, files of state and clocks are unknown here.
"""
