"""Results as a page that works offline. Entered by `report.pages`."""
