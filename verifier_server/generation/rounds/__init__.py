"""Server-side drafting for several texts together: draft passes, and one pass of the target, for all of them."""
