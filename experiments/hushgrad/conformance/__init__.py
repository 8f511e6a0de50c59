"""The conformance kit: plays one side of the contract and judges whoever plays the other.

A CLIENT under test is any command. The kit starts it, may kill it at any moment and start it again, and gives it these
environment variables:

  HUSHGRAD_SERVER       host:port of the server, plain gRPC.
  HUSHGRAD_PARTICIPANT  the name to join with.
  HUSHGRAD_STATE_DIR    a folder for everything that must survive; it exists, and is empty at the first start.
  HUSHGRAD_DATA         path of an .npz file with the arrays X, float64 of shape (N, f), and y, int64 of shape (N,). The
                        same records lie beside it with the same stem as .csv, with the header x0, x1, ..., label.
  HUSHGRAD_PRIVACY      JSON: records (N to declare, at least the rows of the file), clip_norm, noise_multiplier,
                        sampler ("poisson"), sample_size (s; a record takes part with probability s / records), epsilon
                        and delta (the most that the whole run may cost).

The model is always logistic regression without penalty: the arrays `weights`, shape (f,), and `bias`, shape (), labels
0 and 1, loss log(1 + exp(-m)) with m = (2y - 1)(w.x + b).

The command ends with exit code 0 when the federation has ended, 3 when the budget does not allow the run, 5 when a
conflict needs a person, and any other code that is not 0 when it cannot take part for another reason.

A SERVER under test is an address, and a fresh federation made from the files that `server --write-terms` writes.
"""
