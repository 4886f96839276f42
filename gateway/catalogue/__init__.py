"""What operators see, declared once: metrics and log events. The reference pages are generated from here."""
