"""Errors for a user: each carries one clear sentence and an exit code for the command line."""


class LitebertError(Exception):
    """Something a user can fix. The message says what was expected, what came, and what to do."""

    exit_code = 1


class ConfigError(LitebertError):
    """A wrong flag, preset, recipe or configuration value."""

    exit_code = 2


class DataError(LitebertError):
    """A file or text that cannot be used."""

    exit_code = 3


class ConversionError(DataError):
    """Foreign weights that do not fit."""


class CheckpointError(DataError):
    """A checkpoint or snapshot that is missing, damaged or of another kind."""


class MissingExtraError(LitebertError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}; install it with: pip install "
            f"'litebert[{extra}]'"
        )


class DivergedError(LitebertError):
    """Training repeatedly met non-finite losses or gradients."""

    exit_code = 4


class InterruptedRunError(LitebertError):
    """A signal ended a run after its state was saved; the same command resumes it."""

    exit_code = 75
