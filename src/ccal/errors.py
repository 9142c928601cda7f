"""What can go wrong, as exceptions a person can act on."""


class CcalError(Exception):
    """Base of every error that ccal raises on purpose."""


class InputError(CcalError, ValueError):
    """The data or a parameter is not what the function can work with."""


class NotFittedError(CcalError, RuntimeError):
    """Projections were asked for before any were computed."""


class SmallBatchWarning(UserWarning):
    """The batch is so small for its dimension that CCA mostly fits noise."""
