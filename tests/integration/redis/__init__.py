"""``RedisGrid`` against real Redis servers, which are killed, stopped, emptied and rolled back."""
