"""What the user got wrong: one clear line on stderr, exit status 2."""


class UserFault(Exception):
    """The text says what is wrong and what to do."""
