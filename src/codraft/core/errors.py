"""The exceptions a user can cause; everything else that is raised is a bug of ours."""


class SpecError(ValueError):
    """Bad usage, spec or input: one sentence naming field, value, allowed range and next action. Exit code 2."""


class NotRunError(SpecError):
    """A head that may be as it should be, of a graph or in a format that codraft does not run. To a user it is a
    SpecError; `inspect` has to tell it from a broken file."""


class CapabilityError(RuntimeError):
    """Something that is not installed or not possible here; names what to install. Exit code 3."""
