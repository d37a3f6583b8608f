"""A healthy picture of a server to compare with later.

``measure`` takes it, ``store`` keeps it in a file that people can read, ``compare`` says what
changed and whether that is more than noise.
"""
