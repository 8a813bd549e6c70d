"""What the norms of an encoder say on a corpus or on sentence pairs, and the pilot that settles it: `magrag diagnose`."""
