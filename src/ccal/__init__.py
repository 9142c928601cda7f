"""Cross-modality retrieval with CCA projections."""
__version__ = "0.1.0"
