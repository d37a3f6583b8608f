"""How well leaks are told from load: simulated engines, real recordings, every detector."""
