"""The client's half: returns an array of the size that came."""

from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Any) -> Message:
    """Answers with an array of the right size; nothing is learned."""
    (shape,) = [array.shape for array in message.content["arrays"].to_numpy_ndarrays()]
    content = RecordDict(
        {"arrays": ArrayRecord([np.ones(shape, np.float32)]), "metrics": MetricRecord({"num-examples": 1})}
    )
    return Message(content=content, reply_to=message)
