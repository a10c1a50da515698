"""Change points found in made-up and in labelled series, beside apache-otava's and asv's rules."""
