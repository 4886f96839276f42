"""How much, how often and when: rates, queues, deadlines and the spread of reconnects."""
