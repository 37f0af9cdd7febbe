"""Options, each defined once. Requests, flags, checks and reference pages are made from them.

Here is what an option is. Those of a text are fields of `speculation.text_options`, those of an engine of
`engines.load_options`, those of each end of `verifier_server.options` and `drafter_client.program_options`.
"""
