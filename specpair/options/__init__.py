"""Options, each said once; requests, flags, checks and reference pages are made from them."""
