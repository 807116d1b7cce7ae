"""What tells pages apart: the field's attacks, as scikit-learn classifiers over traces. Start at :func:`make`."""
