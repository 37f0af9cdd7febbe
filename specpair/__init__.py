"""Code that the verifier and the drafter share; plug-ins, extras, and the imports between installed packages."""
