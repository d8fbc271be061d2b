"""Examples to checkpoint to registry. The only room that may load a model; empty until its first trainer lands."""
