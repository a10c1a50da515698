"""Results as Markdown: comments on pull requests and job summaries. Entered by `cli` and `integrations.github`."""
