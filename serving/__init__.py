"""One request: assign, choose a checkpoint, call its engine, stream the answer, record the completion."""
