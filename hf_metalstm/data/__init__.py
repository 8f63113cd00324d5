"""Readers, generators, collators and samplers."""
