"""Event hooks: which events of the journal are posted to whom, in which form and signed how, and when again."""
