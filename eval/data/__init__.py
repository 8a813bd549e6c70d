"""From a name, a file or a hub data set to questions, judgments and sentence pairs."""
