"""Mode `auto`: measure the link, remember what each mode achieved, select the mode of a text."""
