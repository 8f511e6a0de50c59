"""The data side: what a participant runs beside its data. Only noised, sealed updates ever leave it."""
