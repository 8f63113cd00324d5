"""Weights from elsewhere: word vectors, other vocabularies."""
