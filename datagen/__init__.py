"""Facts to examples: training sets with a manifest that says where each row comes from."""
