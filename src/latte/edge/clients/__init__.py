"""The exchange of a federation as a device sees it: over HTTP, or through a folder that Flower carries."""
