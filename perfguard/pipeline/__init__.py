"""The use cases: each joins the stages of one command. The only place where the independent parts meet."""
