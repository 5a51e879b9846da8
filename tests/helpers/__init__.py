"""What tests are made of: tiny models, small data, ways to disturb a run."""
