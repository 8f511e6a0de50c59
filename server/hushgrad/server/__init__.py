"""The model side: takes noised updates, adds them up exactly once, and publishes versions of one model.

Knows arrays of integers, never data, losses or machine learning. The protocol is decided in cores without sockets,
clocks, threads or files (`aggregation`, `admission`, `membership`, tied together by `federation`); `store` makes what
they decide durable; `services`, `watch` and `app` put them on the network.
"""
