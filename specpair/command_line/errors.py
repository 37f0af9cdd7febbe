"""The error of a setting, on both ends."""


class SettingsError(Exception):
    """A setting is unknown or has a bad value. The message names its flag, its variable, or its file, table and key."""
