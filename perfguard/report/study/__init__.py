"""Studies as pages and Markdown: pure functions of the evidence and the paper's figures. Front ends may enter."""
