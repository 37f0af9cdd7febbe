"""Which draft tokens are accepted: the strategies, rejection sampling, and the reasons for each decision."""
