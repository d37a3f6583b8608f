"""How large a KV pool is: in blocks from the usage ratio, in bytes from the model's shape."""
