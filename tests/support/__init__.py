"""What the tests share: private servers, fakes and waiting."""
