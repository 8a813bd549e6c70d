"""Trainings that differ in the similarity alone, evaluated and compared: `magrag sweep`."""
