"""The documentation as a site: the pages of the repository, with navigation and a search, by Sphinx; see ADR 0127."""
